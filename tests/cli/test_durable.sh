#!/usr/bin/env bash
# Durable stores: what comes back, backups, snapshots, verifying, dumping and repairing the log.
. "$(dirname "$0")/harness.sh"

region() { echo "/dev/shm/ringfence.$(stat -c %D "$1").$(printf %x "$(stat -c %i "$1")")"; }
# The power fails: shared memory is gone.
lose_memory() { rm "$(region "$store")"; }

begin() {
    ringfence init "$store" --segment-bytes 1M "$@" >/dev/null
    ringfence run create "$store" 1 --hex-prefixes 1 >/dev/null
}
run_field() { field "$1" "$(ringfence run list "${2:-$store}" --json | grep '"run":"1"')"; }
last_segment() { ls "$store"/log.* | tail -n 1; }

case_what_was_acknowledged_comes_back() {
    begin
    if [ "$(stat -f -c %T "$store")" != tmpfs ]; then
        has "$(ringfence status "$store")" "durable, operations wait for the disk"
    fi
    lease=$(ringfence claim "$store" 1 --shard 3)
    ringfence checkpoint "$lease" --key 2x
    second=$(ringfence claim "$store" 1 --shard 4)
    ringfence complete "$second" --key 3y
    lose_memory
    expect 3 ringfence status "$store"
    has "$err" "not in memory" "ringfence recover"
    expect 0 ringfence recover --dry-run "$store"
    has "$out" "would succeed" "16"
    [ ! -e "$(region "$store")" ] || fail "a dry run brought it back"
    expect 0 ringfence recover "$store"
    same "$(run_field done)" 1
    expect 0 ringfence shard show "$store" 1 3 --json --reveal
    same "$(field cursor_key "$out")" 2x
    same "$(field leased "$out")" false
    expect 5 ringfence complete "$lease"
    lease=$(ringfence claim "$store" 1 --shard 3 --json)
    [ "$(field fence "$lease")" -gt 1000000000 ] || fail "the fence did not rise with the incarnation"
    expect 0 ringfence status --json "$store"
    same "$(field incarnation "$out")" 1
    same "$(field log "$out")" good
}

case_whoever_works_brings_it_back() {
    begin
    lose_memory
    expect 0 ringfence work "$store" 1 --workers 2 --quiet -- true
    lose_memory
    expect 0 ringfence procs --reap "$store"
    same "$(run_field done)" 16
    same "$(run_field status)" done
}

case_init_does_not_overwrite_a_store_that_is_not_in_memory() {
    begin
    lose_memory
    expect 13 ringfence init "$store"
    has "$err" "ringfence recover"
    expect 13 ringfence init --volatile "$store"
    expect 0 ringfence recover "$store"
    same "$(run_field shards)" 16
}

case_a_volatile_store_has_no_log() {
    ringfence init --volatile "$store"
    local command
    for command in "log dump" "log verify" "recover --dry-run" verify snapshot; do
        expect 13 ringfence $command "$store"
        has "$err" "is volatile: it has no log"
    done
    expect 13 ringfence backup "$store" "$work/copy"
    has "$err" "is volatile: it has no log"
}

case_a_backup_is_a_store() {
    begin
    ringfence work "$store" 1 --workers 1 --quiet --halt soon,success=5 -- true || true
    local done
    done=$(run_field done)
    [ "$done" -ge 5 ]
    expect 0 ringfence backup "$store" "$work/copy"
    expect 0 ringfence recover "$work/copy"
    same "$(run_field done "$work/copy")" "$done"
    expect 0 ringfence verify "$work/copy"
    expect 0 ringfence work "$work/copy" 1 --quiet -- true
    same "$(run_field done "$work/copy")" 16
    same "$(run_field done)" "$done"
    local code=0
    ringfence backup "$store" "$work/copy" 2>"$work/e" || code=$?
    [ "$code" != 0 ] || fail "a backup was overwritten"
    same "$(run_field done "$work/copy")" 16
    ringfence destroy --yes "$work/copy"
    expect 3 ringfence backup "$work/none" "$work/copy"
}

case_a_backup_has_the_capacities_and_the_group_of_its_store() {
    local group
    group=$([ "$(id -u)" = 0 ] && echo 65534 || id -g)
    begin --max-shards 20 --group "$group"
    ringfence backup "$store" "$work/copy" >/dev/null
    local file
    for file in "$store"/* "$work/copy"/* "$store" "$work/copy"; do
        [[ $(stat -c '%A %g' "$file") == ?rw?rw?---" $group" ]] || fail "$(stat -c '%n %A %g' "$file")"
    done
    ringfence recover "$work/copy" >/dev/null
    expect 10 ringfence run create "$work/copy" 2 --hex-prefixes 1
    has "$err" "limit is 20"
    ringfence destroy --yes "$work/copy"
}

case_a_store_is_compared_with_its_log() {
    begin
    ringfence work "$store" 1 --quiet --halt soon,success=4 -- true || true
    expect 0 ringfence verify "$store" --json
    same "$(field differences "$out")" 0
    same "$(field shards "$out")" 16
    lose_memory
    expect 0 ringfence verify "$store" --json
    same "$(field shards "$out")" 16
    [ ! -e "$(region "$store")" ] || fail "verifying brought it back"
}

case_a_store_that_differs_from_its_log_is_told() {
    command -v python3 >/dev/null || skip "there is no python3"
    begin
    lease=$(ringfence claim "$store" 1 --shard 3)
    ringfence checkpoint "$lease" --key 2-sesame-key
    expect 0 ringfence verify "$store" --json
    has "$out" '"differences":0,"found":[]}'
    # While others use it and change nothing it is compared as well.
    ringfence monitor "$store" --for 60s >"$work/events" &
    watched() { ! flock -n -x "$store/lock" true; }
    eventually watched
    expect 0 ringfence verify "$store"
    kill %1
    # A key in memory is not the one in the log.
    cat >"$work/spoil" <<'END'
import os, sys
fd, at = os.open(sys.argv[1], os.O_RDWR), 0
while True: # the region is full of holes
    at = os.lseek(fd, at, os.SEEK_DATA)
    end = os.lseek(fd, at, os.SEEK_HOLE)
    found = os.pread(fd, end - at, at).find(b"2-sesame-key")
    if found >= 0:
        os.pwrite(fd, b"2-sesama", at + found)
        break
    at = end
END
    python3 "$work/spoil" "$(region "$store")"
    expect 1 ringfence verify "$store" --json
    has "$out" '"found":[{"difference":"'
    [ "$(field differences "$out")" -ge 1 ] || fail "no difference"
    lacks "$out" sesam
    expect 1 ringfence verify "$store"
    has "$out" "difference: "
    lacks "$out" sesam
}

case_a_store_that_is_in_memory_needs_no_recovery() {
    begin
    expect 0 ringfence recover "$store"
    has "$out" "nothing to do"
    lose_memory
    expect 0 ringfence recover "$store" --json
    same "$(field recovery "$out")" done
    expect 0 ringfence recover "$store" --json
    same "$(field recovery "$out")" none
    ringfence destroy --yes "$store"
    ringfence init --volatile "$store" >/dev/null
    expect 0 ringfence recover "$store"
    has "$out" "nothing to do"
    expect 13 ringfence repair "$store"
    has "$err" "is volatile: it has no log"
    lacks "$err" snapshot
}

case_snapshots_shorten_a_recovery() {
    begin
    ringfence work "$store" 1 --quiet -- true
    expect 0 ringfence recover --dry-run "$store" --json
    local before
    before=$(field records "$out")
    [ "$before" -ge 33 ] || fail "$before records only"
    expect 0 ringfence snapshot "$store"
    expect 0 ringfence recover --dry-run "$store" --json
    [ "$(field records "$out")" -lt "$before" ] || fail "no shorter"
    same "$(field shards "$out")" 16
    lose_memory
    expect 0 ringfence recover "$store"
    same "$(run_field done)" 16
}

case_the_log_is_dumped() {
    begin
    ringfence work "$store" 1 --workers 2 --quiet -- sh -c 'echo "${RINGFENCE_START}sesame" >&3'
    ringfence run create "$store" 2 --hex-prefixes 1
    ringfence shard park "$store" 2 5 --reason poisoned
    expect 0 ringfence log dump "$store"
    lacks "$out" sesame
    same "$(grep -c ' completed run=1 ' <<<"$out")" 16
    same "$(grep -c ' checkpointed run=1 ' <<<"$out")" 16
    has "$out" "run_activated run=1" "made=16" "parked run=2 shard=5" "run_completed"
    local all
    all=$(wc -l <<<"$out")
    expect 0 ringfence log dump "$store" --json
    same "$(wc -l <<<"$out")" "$all"
    expect 0 ringfence log dump "$store" --type parked --json
    same "$(field shard "$out")" 5
    same "$(field run "$out")" 2
    expect 0 ringfence log dump "$store" --shard 5 --type completed --type parked
    same "$(wc -l <<<"$out")" 2
    expect 0 ringfence log dump "$store" --limit 3
    same "$(wc -l <<<"$out")" 3
    expect 0 ringfence log dump "$store" --reveal --type checkpointed
    same "$(grep -c sesame <<<"$out")" 16
    expect 0 ringfence log dump "$store" --stats --json
    same "$(field records "$out")" "$all"
    expect 0 ringfence log dump "$store" --stats --type parked --type completed --json
    same "$(field records "$out")" 17
    has "$out" '"events":[{"event":"completed","records":16},{"event":"parked","records":1}]'
    expect 0 ringfence log dump "$store" --stats --shard 5 --type completed --json
    same "$(field records "$out")" 1
    expect 0 ringfence log dump "$store" --stats --limit 3 --json
    same "$(field records "$out")" 3
    # All bytes that a record has, and only when asked for.
    lease=$(ringfence claim "$store" 2 --shard 3)
    ringfence checkpoint "$lease" --key 2sesame --token sesame-token
    ringfence shard split "$store" 2 3 --at 2t --residual --lease "$lease" >/dev/null
    expect 0 ringfence log dump "$store" --shard 3
    lacks "$out" sesame
    has "$out" "cursor_token_len=12" "end_len=2"
    expect 0 ringfence log dump "$store" --shard 3 --reveal --json
    has "$out" '"cursor_key":"2sesame","cursor_token":"sesame-token"' '"start":"2","end":"2t","metadata":""'
    local last
    last=$(field epoch "$(ringfence log dump "$store" --json | tail -n 1)")
    expect 0 ringfence log dump "$store" --start "$last" --json
    same "$(field epoch "$(head -n 1 <<<"$out")")" "$last"
    expect 0 ringfence log dump "$store" --end 1
    same "$(wc -l <<<"$out")" 1
    for beyond in $((last + 2)) 18446744073709551615; do
        expect 0 ringfence log dump "$store" --start "$beyond"
        same "$out$err" ""
        expect 0 ringfence log dump "$store" --start "$beyond" --stats --json
        same "$(field batches "$out")" 0
    done
    expect 2 ringfence log dump "$store" --type nonsense
    # Epochs and stamps are in order.
    ringfence log dump "$store" | awk '$1 < epoch || ($1 == epoch && $2 < stamp) { exit 1 } { epoch = $1; stamp = $2 }' || fail "out of order"
}

case_the_log_is_followed() {
    begin
    ringfence log dump "$store" --follow --type parked --limit 2 --json >"$work/log" &
    local follower=$!
    ringfence shard park "$store" 1 5
    got() { [ "$(wc -l <"$work/log")" -ge "$1" ]; }
    eventually got 1
    ringfence shard park "$store" 1 6
    wait "$follower"
    same "$(field shard "$(tail -n 1 "$work/log")")" 6
}

case_who_follows_a_log_is_told_when_it_can_not_go_on() {
    begin
    ringfence log dump "$store" --follow --json >"$work/log" 2>"$work/stderr" &
    local follower=$! code=0
    followed() { [ -s "$work/log" ]; }
    eventually followed
    kill -STOP "$follower"
    local next
    next=$(($(field epoch "$(tail -n 1 "$work/log")") + 1))
    for shard in 1 2 3 4; do ringfence shard park "$store" 1 $shard; done
    printf 'XXXX' | dd of="$store/log.0000000000000000" bs=1 seek=$((4096 * (next + 2) + 100)) conv=notrunc status=none
    kill -CONT "$follower"
    wait "$follower" || code=$?
    same "$code" 12
    has "$(cat "$work/stderr")" "damaged"
    # Or what comes next is not there any more.
    ringfence destroy --yes "$store"
    ringfence init "$store" --segment-bytes 64K >/dev/null
    ringfence run create "$store" 1 --hex-prefixes 1 >/dev/null
    rm "$work/log"
    ringfence log dump "$store" --follow --json >"$work/log" 2>"$work/stderr" &
    follower=$! code=0
    eventually followed
    kill -STOP "$follower"
    ringfence work "$store" 1 --workers 1 --quiet -- true
    for i in 1 2 3; do ringfence run create "$store" 2$i --hex-prefixes 1 >/dev/null; ringfence snapshot "$store" >/dev/null; done
    [ ! -e "$store/log.0000000000000000" ] || fail "no segment was removed"
    kill -CONT "$follower"
    wait "$follower" || code=$?
    same "$code" 3
    has "$(cat "$work/stderr")" "does not reach back to epoch" "--start"
}

case_a_log_that_grows_while_it_is_read_is_not_damaged() {
    command -v strace >/dev/null || skip "there is no strace"
    begin --segment-bytes 8M
    # The read that has the end of the log in it is the first one that is large. The reader is stopped behind it,
    # and goes on when the batches after that end are more than it has read.
    local traced=(env "ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0" strace -o "$work/trace" -e trace=pread64) read
    "${traced[@]}" ringfence log verify "$store" >/dev/null
    read=$(grep '^pread64' "$work/trace" | awk -F', ' '$(NF - 1) >= 1000000 { print NR; exit }')
    [ "$read" -ge 1 ] || fail "$(cat "$work/trace")"
    "${traced[@]}" -e "inject=pread64:signal=SIGSTOP:when=$read" ringfence log verify "$store" --json >"$work/out" 2>"$work/stderr" &
    local reader=$! code=0
    stopped() { grep -q 'stopped by SIGSTOP' "$work/trace"; }
    eventually stopped
    ringfence work "$store" 1 --workers 1 --quiet --halt soon,success=1 -- \
        sh -c 't=$(head -c 12000 /dev/zero | tr "\\0" t); for i in $(seq 100 219); do printf "%s%d\\t%s\\n" "$RINGFENCE_START" $i $t; done >&3' || true
    kill -CONT "$(pgrep -P "$reader")"
    wait "$reader" || code=$?
    same "$code $(cat "$work/stderr")" "0 "
    [ "$(field records "$(cat "$work/out")")" -ge 120 ] || fail "$(cat "$work/out")"
}

case_a_start_that_is_not_written_yet_is_waited_for() {
    begin
    local start follower
    start=$(($(field last_epoch "$(ringfence log dump "$store" --stats --json)") + 5))
    ringfence log dump "$store" --follow --start "$start" --limit 1 --json >"$work/log" 2>&1 &
    follower=$!
    for shard in 1 2 3 4 5 6 7; do ringfence shard park "$store" 1 $shard; done
    wait "$follower"
    [ "$(field epoch "$(cat "$work/log")")" -ge "$start" ] || fail "this came: $(cat "$work/log")"
}

case_a_torn_end_is_no_damage() {
    begin
    ringfence work "$store" 1 --quiet -- true
    expect 0 ringfence log verify "$store" --json
    local epoch
    epoch=$(field last_epoch "$out")
    lose_memory
    # Bytes of a batch that was never finished.
    head -c 4096 /dev/urandom | dd of="$(last_segment)" bs=4096 seek=$((epoch + 1)) conv=notrunc status=none
    expect 0 ringfence log verify "$store" --json
    same "$(field last_epoch "$out")" "$epoch"
    expect 0 ringfence repair "$store"
    has "$out" "nothing has to be repaired"
}

# In a block of the first segment, where a batch's header is: small batches take a block each.
damage() { printf 'XXXX' | dd of="$store/log.0000000000000000" bs=1 seek=$((4096 * $1 + 100)) conv=notrunc status=none; }

case_damage_is_named_and_repaired_only_when_asked() {
    begin
    ringfence work "$store" 1 --workers 1 --quiet -- true
    expect 0 ringfence log verify "$store"
    damage 10
    expect 12 ringfence log verify "$store"
    has "$err" "log.0000000000000000" "offset" "damaged" "ringfence repair --truncate"
    has "$out" "damaged"
    expect 13 ringfence repair "$store"
    has "$err" "is in memory" "ringfence snapshot"
    lose_memory
    expect 12 ringfence recover "$store"
    expect 12 ringfence recover --dry-run "$store"
    expect 12 ringfence verify "$store"
    expect 1 ringfence repair "$store"
    has "$out" "lost records seen" "not done: say --truncate"
    expect 12 ringfence recover "$store"
    expect 0 ringfence repair --truncate "$store" --copy "$work/copy" --json
    local kept
    kept=$(field kept_up_to_epoch "$out")
    [ "$kept" -ge 5 ] && [ "$kept" -lt 12 ] || fail "kept up to epoch $kept"
    [ "$(field lost_records_seen "$out")" -ge 10 ] || fail "it does not say what is lost"
    [ -e "$work/copy/log.0000000000000000" ] && [ -e "$work/copy/store" ] || fail "there is no copy"
    ls "$store" | grep tmp >/dev/null && fail "something is left behind"
    expect 0 ringfence recover "$store"
    local done
    done=$(run_field done)
    [ "$done" -ge 1 ] && [ "$done" -lt 16 ] || fail "$done are done"
    expect 0 ringfence work "$store" 1 --quiet -- sh -c 'echo "$RINGFENCE_FENCE"'
    same "$(wc -l <<<"$out")" $((16 - done))
    # No fence of before comes again: they all rose with the incarnation.
    awk '$1 < 1000000000 { exit 1 }' <<<"$out" || fail "a fence was repeated"
    expect 0 ringfence verify "$store"
    lose_memory
    expect 0 ringfence recover "$store"
    same "$(run_field done)" 16
    expect 0 ringfence log verify "$store"
}

case_damage_behind_a_snapshot_goes_back_to_the_one_before() {
    begin
    local last first second
    first=$(field snapshot_epoch "$(ringfence snapshot "$store" --json)")
    ringfence work "$store" 1 --workers 1 --quiet -- true
    expect 0 ringfence log verify "$store" --json
    last=$(field last_epoch "$out")
    second=$(field snapshot_epoch "$(ringfence snapshot "$store" --json)")
    lose_memory
    damage $((last / 2))
    expect 0 ringfence recover --dry-run "$store" # the newest does not need it
    same "$(field snapshot_epoch "$(ringfence recover --dry-run "$store" --json)")" "$second"
    damage "$second" # a batch a block
    damage $((second + 1))
    expect 12 ringfence recover --dry-run "$store"
    expect 0 ringfence repair --truncate "$store" --json
    same "$(field from_snapshot "$out")" "$first"
    same "$(ls "$store"/snapshot.* | wc -l)" 1
    expect 0 ringfence recover "$store"
    [ "$(run_field done)" -lt 16 ] || fail "nothing was lost?"
    expect 0 ringfence work "$store" 1 --quiet -- true
    rm -r "$store".damaged-*
}

case_the_copy_of_what_is_repaired_is_beside_it() {
    local name
    for name in "$store/" .; do
        begin
        ringfence work "$store" 1 --workers 1 --quiet -- true
        damage 10
        lose_memory
        cd "$store"
        expect 0 ringfence repair --truncate "$name" --json
        has "$(field copy "$out")" "$work/store.damaged-"
        [ -e "$(field copy "$out")/store" ] || fail "it is not there"
        same "$(ls -A "$store" | grep -c damaged)" 0
        cd "$work"
        expect 0 ringfence recover "$store"
        ringfence destroy --yes "$store"
        rm -r "$store".damaged-*
    done
}

case_a_damaged_segment_header_is_repaired_too() {
    begin
    ringfence work "$store" 1 --workers 1 --quiet -- true
    lose_memory
    local before segment
    before=$(ls "$store"/log.*)
    expect 0 ringfence recover "$store" # a second incarnation, which begins in a new segment
    segment=$(comm -13 <(echo "$before") <(ls "$store"/log.*) | head -n 1)
    ringfence run create "$store" 2 --hex-prefixes 1
    lose_memory
    printf 'XXXX' | dd of="$segment" bs=1 seek=20 conv=notrunc status=none
    expect 12 ringfence recover "$store"
    expect 0 ringfence repair --truncate "$store" --copy "$work/copy"
    expect 0 ringfence recover "$store"
    same "$(run_field done)" 16
    expect 3 ringfence run show "$store" 2
    expect 0 ringfence verify "$store"
}

case_a_repair_that_is_killed_anywhere_can_be_run_again() {
    command -v strace >/dev/null || skip "there is no strace"
    local calls=mkdir,mkdirat,linkat,unlinkat,rename,renameat,renameat2,fsync,fdatasync,fallocate,ftruncate,pwrite64,pwritev2,io_uring_enter
    local last epoch n code kept
    begin --segment-bytes 256K
    ringfence snapshot "$store" >/dev/null
    ringfence work "$store" 1 --workers 1 --quiet -- true
    last=$(field last_epoch "$(ringfence log verify "$store" --json)")
    epoch=$(field snapshot_epoch "$(ringfence snapshot "$store" --json)")
    lose_memory
    for n in $((last / 2)) "$epoch" $((epoch + 1)); do damage "$n"; done
    mv "$store" "$work/damaged"
    cp -a "$work/damaged" "$store"
    kept=$(field kept_up_to_epoch "$(ringfence repair --truncate "$store" --copy "$work/copy" --json)")
    ringfence recover "$store" >/dev/null
    local done
    done=$(run_field done)
    for ((n = 1;; n++)); do
        ringfence destroy --yes "$store"
        rm -rf "$store" "$work/copy" "$work/copy.2"
        cp -a "$work/damaged" "$store"
        code=0
        ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 strace -o "$work/trace" -e "trace=$calls" -e "inject=$calls:signal=SIGKILL:when=$n" \
            ringfence repair --truncate "$store" --copy "$work/copy" >/dev/null 2>&1 &
        wait $! || code=$?
        [ "$code" = 137 ] || break
        # Before anything was changed, it was copied.
        diff -rq -x 'tmp.*' "$work/damaged" "$store" >/dev/null || diff -rq "$work/damaged" "$work/copy" || fail "changed, and not copied: killed at $(tail -n 2 "$work/trace")"
        expect 0 ringfence repair --truncate "$store" --copy "$work/copy.2"
        expect 0 ringfence recover "$store"
        same "$(find "$store" -name 'tmp.*')" ""
        same "$(run_field done)" "$done"
        expect 0 ringfence verify "$store"
        expect 0 ringfence destroy --yes "$store"
        [ ! -e "$store" ] || fail "destroyed, and there: $(ls -A "$store")"
        cp -a "$work/damaged" "$store"
    done
    same "$code" 0
    echo "INFO $n places, kept up to epoch $kept"
    [ "$n" -gt 20 ] || fail "only $n places"
}

case_nothing_is_repaired_while_somebody_works() {
    begin
    ringfence monitor "$store" --for 60s &
    watched() { ! flock -n -x "$store/lock" true; }
    eventually watched
    lose_memory
    expect 8 ringfence repair --truncate "$store"
    kill %1
}

case_nowait_is_flushed_by_the_guardian() {
    begin --durability nowait --flush-interval 1ms
    has "$(ringfence status "$store")" "the disk follows"
    ringfence work "$store" 1 --quiet -- true
    caught_up() { [ "$(field lag_epochs "$(ringfence status --json "$store")")" = 0 ]; }
    ringfence procs --reap "$store"
    eventually caught_up
    lose_memory
    expect 0 ringfence recover "$store"
    same "$(run_field done)" 16
}

case_a_long_log_is_dumped_whole() {
    begin --durability nowait --snapshot-bytes 1G
    ringfence work "$store" 1 --workers 1 --quiet --halt soon,success=2 -- sh -c 'seq -f "${RINGFENCE_START}%06g" 1 100000 >&3' || true
    ringfence log dump "$store" >"$work/dump"
    # Two shards, or three if the last one had begun; which ones depends on the worker's id.
    grep -o ' checkpointed run=1 shard=[0-9]* ' "$work/dump" | sort | uniq -c | awk '{ print $1 }' >"$work/counts"
    same "$(sort -u "$work/counts")" 100000
    [ "$(wc -l <"$work/counts")" -ge 2 ] || fail "a shard that was done is not in the dump"
    ringfence log dump --json "$store" >"$work/json"
    same "$(wc -l <"$work/json")" "$(wc -l <"$work/dump")"
    same "$(ringfence log dump --stats --json "$store" | grep -o '"records":[0-9]*' | head -n 1)" "\"records\":$(wc -l <"$work/dump")"
}

main "$@"
