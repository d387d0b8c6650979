#!/usr/bin/env bash
# init, status, destroy, cleanup, procs, metrics, fsync-test; who may use a store, and what room it needs.
. "$(dirname "$0")/harness.sh"

case_a_store_is_made_shown_and_destroyed() {
    expect 0 ringfence init --volatile "$store"
    has "$out" "$store" "volatile"
    expect 0 ringfence status "$store"
    has "$out" "version" "layout" "incarnation" "shards" "repairs" "$(cat /proc/sys/kernel/random/boot_id)"
    expect 0 ringfence status --json "$store"
    same "$(field runs "$out")" 0
    same "$(field incarnation "$out")" 0
    expect 0 ringfence destroy --yes "$store"
    [ ! -e "$store" ]
    expect 3 ringfence status "$store"
    has "$err" "there is no such store" "ringfence init"
}

case_a_directory_that_holds_no_files_gets_no_store() {
    expect 9 ringfence init /proc
    has "$err" "making /proc/lock"
    lacks "$err" "no such store" "makes one"
}

case_a_plain_name_stands_for_a_directory_in_dev_shm() {
    local name=cli-test-$$
    expect 0 ringfence init --volatile "$name"
    has "$out" "/dev/shm/ringfence-$name"
    [ -d "/dev/shm/ringfence-$name" ]
    expect 0 ringfence destroy --yes "$name"
    [ ! -e "/dev/shm/ringfence-$name" ]
}

case_a_durable_store_in_memory_is_said_to_be_in_memory() {
    [ "$(stat -f -c %T /dev/shm)" = tmpfs ] || skip "/dev/shm is no tmpfs"
    store=/dev/shm/ringfence-cli-test-$$
    expect 0 ringfence init "${store#/dev/shm/ringfence-}"
    has "$out" "in memory: nothing survives a reboot"
    lacks "$out" "the disk"
    expect 0 ringfence status "$store"
    has "$out" "in memory: nothing survives a reboot"
    expect 0 ringfence status --json "$store"
    same "$(field medium "$out")" memory
    same "$(field kind "$out")" durable
    expect 0 ringfence init --help
    has "$out" "/dev/shm/ringfence-NAME" "./NAME"
}

case_paths_in_json_are_utf8_as_they_are() {
    command -v python3 >/dev/null || skip "there is no python3"
    local name
    name=$(printf 'caf\xc3\xa9-\xe2\x82\xac-\xf0\x9f\x98\x80-\xe9-\xed\xa0\x80-\xc0\xaf.')
    store=$work/$name
    ringfence init --volatile "$store" >/dev/null
    expect 0 ringfence status --json "$store"
    has "$out" "$(printf 'caf\xc3\xa9-\xe2\x82\xac-\xf0\x9f\x98\x80-')" '-\u00e9-\u00ed\u00a0\u0080-\u00c0\u00af.'
    python3 -c 'import json, sys; json.loads(sys.stdin.buffer.read().decode("utf-8"))' <<<"$out" || fail "not JSON"
}

case_init_refuses_to_overwrite() {
    ringfence init --volatile "$store"
    ringfence run create "$store" 1 --hex-prefixes 1
    expect 13 ringfence init --volatile "$store"
    has "$err" "is a store already" "ringfence destroy"
    expect 0 ringfence run list --json "$store"
    same "$(field shards "$out")" 16
}

case_init_says_what_is_wrong_with_its_options() {
    expect 2 ringfence init --volatile --durability wait "$store"
    has "$err" "no log"
    expect 2 ringfence init --durability sometimes "$store"
    expect 2 ringfence init --again "$store"
    has "$err" "ringfence recover"
    expect 2 ringfence init --volatile --max-bytes lots "$store"
    has "$err" "--max-bytes wants a size"
    expect 2 ringfence init --volatile --claim-cooldown 5 "$store"
    has "$err" "500ms"
    expect 2 ringfence init --volatile --group no-such-group-here "$store"
    has "$err" "no-such-group-here"
    local wrong
    for wrong in "max-members 100000000" "max-members 2048" "max-shards 16000001" "max-tenant-shards 16000001" "max-runs 1000001" \
        "max-bytes 65535" "max-bytes 257G" "segment-bytes 5G" "segment-bytes 1" "snapshot-bytes 2T" "flush-interval 2h" "flush-interval 1ns"; do
        expect 2 ringfence init --${wrong% *} ${wrong#* } "$store"
        has "$err" "--${wrong% *} is " " to " "0 for the default"
        # The help says the same.
        has "$(ringfence init --help | grep -A 1 -- "--${wrong% *} ")" "$(sed 's/.* is \(.* to [^,]*\),.*/\1/' <<<"$err")"
    done
    expect 2 ringfence init --segment-bytes 65537 "$store"
    has "$err" "--segment-bytes is a multiple of 4096"
    expect 2 ringfence init --max-shards 99999999999999999999 "$store"
    has "$err" "--max-shards is too large: at most 18446744073709551615"
    expect 2 ringfence init --claim-cooldown 99999999999d "$store"
    has "$err" "--claim-cooldown is too large: at most 213503d"
    expect 2 ringfence init --max-bytes 99999999999T "$store"
    has "$err" "--max-bytes is too large: at most 16777215T"
    expect 2 ringfence init ""
    has "$err" "DIR is empty"
    expect 2 ringfence status ""
    has "$err" "DIR is empty"
    expect 2 ringfence init --volatile --nonsense "$store"
    has "$err" "--nonsense"
    [ ! -e "$store" ]
    # What is said to be possible is.
    expect 0 ringfence init --volatile "$store" --max-members 2047 --max-runs 0 --max-tenant-shards 16000000 --max-bytes 64K
}

case_capacities_are_kept() {
    ringfence init --volatile "$store" --max-shards 100 --max-runs 2 --max-bytes 1M
    ringfence run create "$store" 1 --hex-prefixes 1
    expect 10 ringfence run create "$store" 2 --hex-prefixes 2
    has "$err" "limit is 100"
    ringfence run create "$store" 2 --hex-prefixes 1
    expect 10 ringfence run create "$store" 3 --hex-prefixes 1
}

case_a_store_whose_memory_is_gone_is_begun_again() {
    ringfence init --volatile "$store"
    ringfence run create "$store" 1 --hex-prefixes 1
    rm "/dev/shm/ringfence.$(stat -c '%D.' "$store")$(printf %x "$(stat -c %i "$store")")"
    expect 3 ringfence status "$store"
    has "$err" "shared memory is gone" "--again"
    expect 13 ringfence init --volatile "$store"
    has "$err" "--again"
    expect 0 ringfence init --volatile --again "$store"
    expect 0 ringfence status --json "$store"
    same "$(field incarnation "$out")" 1
    same "$(field runs "$out")" 0
    expect 3 ringfence init --volatile --again "$work/other"
}

case_destroy_asks_and_refuses_while_in_use() {
    ringfence init --volatile "$store"
    expect 2 ringfence destroy "$store" </dev/null
    has "$err" "--yes"
    ringfence monitor "$store" --for 60s &
    local monitor=$!
    eventually in_use
    expect 8 ringfence destroy --yes "$store"
    has "$err" "in use"
    kill "$monitor"
    wait "$monitor" || true
    expect 0 ringfence destroy --yes "$store"
    expect 3 ringfence destroy --yes "$store"
}
in_use() { ! flock -n -x "$store/lock" true; }

case_files_of_others_survive_destroy() {
    ringfence init --volatile "$store"
    echo mine >"$store/notes"
    expect 0 ringfence destroy --yes "$store"
    same "$(cat "$store/notes")" mine
}

case_only_the_owner_and_the_group_may_look() {
    [ "$(id -u)" = 0 ] || skip "needs root"
    chmod 755 "$work"
    ringfence init --volatile "$store"
    as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$program" "$@"; }
    as_nobody --version >/dev/null || skip "the program can't be run by others"
    expect 11 as_nobody status "$store"
    has "$err" "permission"
    ringfence destroy --yes "$store"
    ringfence init --volatile --group 65534 "$store"
    ringfence run create "$store" 1 --hex-prefixes 1
    expect 0 as_nobody status --json "$store"
    same "$(field shards "$out")" 16
    expect 0 as_nobody claim "$store" 1
    expect 0 ringfence complete "$out"
}

case_a_destroy_that_may_not_remove_the_files_removes_nothing() {
    [ "$(id -u)" = 0 ] || skip "needs root"
    chmod 777 "$work"
    as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$program" "$@"; }
    as_nobody --version >/dev/null || skip "the program can't be run by others"
    for durability in --volatile ""; do
        as_nobody init "$store" ${durability:+"$durability"}
        as_nobody run create "$store" 1 --hex-prefixes 1
        chmod 500 "$store"
        expect 11 as_nobody destroy --yes "$store"
        has "$err" "removing files of" "ermission denied"
        chmod 700 "$store"
        expect 0 as_nobody status --json "$store"
        same "$(field shards "$out")" 16
        expect 0 as_nobody destroy --yes "$store"
    done
}

# Where nothing may be written: everything that only looks works, and takes no part. The mounts are bound
# ones, in a namespace: without `bind` a remount would change the real file system, for everybody.
case_a_read_only_user_can_look() {
    [ "$(id -u)" = 0 ] || skip "needs root"
    ringfence init "$store"
    ringfence run create "$store" 1 --hex-prefixes 1
    cat >"$work/script" <<'END'
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 77
mount --bind /dev/shm /dev/shm && mount -o remount,bind,ro /dev/shm || exit 77
shift
exec "$@"
END
    readonly_do() { unshare -m --propagation private bash "$work/script" "$store" "$@"; }
    readonly_do true || skip "no mount namespaces here"
    expect 0 readonly_do ringfence status --json "$store"
    same "$(field shards "$out")" 16
    same "$(field processes "$out")" 0
    expect 0 readonly_do ringfence shard list --json "$store" 1
    same "$(wc -l <<<"$out")" 16
    expect 0 readonly_do ringfence run show "$store" 1
    expect 0 readonly_do ringfence run list "$store"
    expect 0 readonly_do ringfence shard show "$store" 1 1
    expect 4 readonly_do ringfence run watch "$store" 1 --timeout 0
    expect 0 readonly_do ringfence work "$store" 1 --dry-run -- true
    # ncurses keeps what it knows of a terminal.
    ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 expect 0 readonly_do bash -c 'printf q | TERM=screen script -qec "ringfence top $0" /dev/null' "$store"
    has "$out" PROGRESS
    expect 0 readonly_do ringfence metrics "$store"
    expect 0 readonly_do ringfence monitor "$store" --for 10ms
    expect 0 readonly_do ringfence procs "$store"
    expect 0 readonly_do ringfence log dump "$store"
    has "$out" "run_activated run=1"
    expect 0 readonly_do ringfence log verify "$store"
    expect 0 readonly_do ringfence recover --dry-run "$store"
    local code=0
    readonly_do ringfence claim "$store" 1 >"$work/o" 2>"$work/e" || code=$?
    [ "$code" != 0 ] && [ "$code" -lt 14 ]
    [ -s "$work/e" ]
    touch /dev/shm/ringfence-writable-$$ && rm /dev/shm/ringfence-writable-$$ || fail "the real /dev/shm was changed"
}

case_a_full_dev_shm_is_said_and_leaves_nothing() {
    [ "$(id -u)" = 0 ] || skip "needs root"
    cat >"$work/script" <<'END'
store=$1
mount -t tmpfs -o size=4m tmpfs /dev/shm || exit 77
ringfence init --volatile "$store" --max-shards 100000 >/dev/null || exit 1
for ((i = 1; i < 100; i++)); do
    code=0
    ringfence run create "$store" $i --hex-prefixes 2 >/dev/null 2>"$store.err" || { code=$?; break; }
done
echo "code $code at run $i: $(cat "$store.err")"
ringfence run list "$store" >/dev/null || exit 1
ringfence status "$store" >/dev/null || exit 1
ringfence run cancel "$store" 1 && ringfence run purge "$store" 1 || exit 1
mount -o remount,size=8m /dev/shm && ringfence run create "$store" $i --hex-prefixes 1 || exit 1
head -c 9m /dev/zero >/dev/shm/ballast 2>/dev/null
ringfence init --volatile "$store.two"; echo "init $?"
ls "$store.two" 2>/dev/null
ringfence destroy --yes "$store"
END
    code=0
    out=$(unshare -m --propagation private bash "$work/script" "$store" 2>&1) || code=$?
    [ "$code" != 77 ] || skip "no mount namespaces here"
    same "$code" 0
    has "$out" "code 10 at run" "/dev/shm" "init 10"
}

case_procs_shows_and_reaps_the_dead() {
    ringfence init --volatile "$store"
    ringfence run create "$store" 1 --hex-prefixes 1
    expect 0 ringfence procs "$store"
    same "$out" ""
    ringfence claim "$store" 2 --wait 60s >"$work/none" 2>&1 || true # there is no such run: no member stays
    ringfence work "$store" 1 --workers 1 --quiet -- sleep 60 &
    local farm=$!
    alive() { [ "$(ringfence procs --json "$store" | grep -c '"role":"handle"')" = 2 ]; }
    eventually alive
    has "$(ringfence procs "$store")" "guardian" "alive" "ringfence"
    local workers
    workers=$(pgrep -P "$farm")
    kill -STOP "$farm" # so that nobody settles anybody
    stopped() { ringfence procs "$store" | grep -E "^ *$farm .* stopped" >/dev/null; }
    eventually stopped
    has "$(ringfence status "$store")" " stopped "
    kill -9 $workers
    kill -9 "$farm"
    wait "$farm" || true
    gone() { ! kill -0 $workers; }
    eventually gone
    settled() { [ "$(ringfence procs --reap --json "$store" | wc -l)" = 0 ]; }
    eventually settled
    expect 0 ringfence status --json "$store"
    [ "$(field members_reaped "$out")" -ge 1 ] || fail "nobody was reaped"
    expect 0 ringfence shard list "$store" 1 --only available --json
    same "$(wc -l <<<"$out")" 16
}

case_metrics_are_prometheus_text() {
    ringfence init --volatile "$store"
    ringfence run create "$store" 1 --hex-prefixes 1
    expect 0 ringfence metrics "$store"
    has "$out" "ringfence_shards 16" 'ringfence_run_shards{' 'state="active"} 16' "ringfence_members_reaped_total 0"
    # Every line is a comment or name{labels} value, and every name has its HELP and TYPE.
    awk '/^# (HELP|TYPE) ringfence_[a-z_]+ ./ { known[$3]++; next }
         /^ringfence_[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [0-9]+(\.[0-9]+)?$/ {
             name = $1; sub(/\{.*/, "", name); if (known[name] != 2) { print "unknown: " $0; bad = 1 } next }
         { print "odd: " $0; bad = 1 }
         END { exit bad }' <<<"$out" || fail "not Prometheus text"
    expect 0 ringfence metrics "$store" --textfile "$work/farm.prom"
    has "$(cat "$work/farm.prom")" "ringfence_shards 16"
    same "$(ls "$work" | grep -c farm.prom)" 1
    expect 0 ringfence metrics "$store" --json
    has "$out" '{"name":"ringfence_shards","labels":{},"value":16}' '"state":"active"},"value":16}'
    same "$(wc -l <<<"$out")" "$(grep -vc '^#' "$work/farm.prom")"
    # Who reads the old one reads it to its end.
    exec 6<"$work/farm.prom"
    ringfence run create "$store" 2 --hex-prefixes 2
    expect 0 ringfence metrics "$store" --textfile "$work/farm.prom"
    has "$(cat <&6)" $'\nringfence_shards 16\n'
    exec 6<&-
    has "$(cat "$work/farm.prom")" $'\nringfence_shards 272\n'
    expect 2 ringfence metrics "$store" --json --textfile "$work/farm.prom"
    expect 9 ringfence metrics "$store" --textfile "$work/none/farm.prom"
    has "$err" "can't be written"
}

case_a_textfile_that_does_not_fit_leaves_the_old_one() {
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip "needs root, for a disk that is full"
    ringfence init --volatile "$store"
    mkdir "$work/full"
    cat >"$work/script" <<'END'
mount -t tmpfs -o size=64k none "$1/full"
ringfence metrics "$2" --textfile "$1/full/farm.prom" && cp "$1/full/farm.prom" "$1/before"
head -c 64k /dev/zero >"$1/full/ballast" 2>/dev/null
ringfence metrics "$2" --textfile "$1/full/farm.prom"; echo "code $?"
cmp "$1/full/farm.prom" "$1/before" && ls "$1/full"
END
    expect 0 unshare -m --propagation private bash "$work/script" "$work" "$store"
    same "$out" $'code 9\nballast\nfarm.prom'
    has "$err" "farm.prom can't be written: No space left on device"
}

case_status_says_which_way_is_taken_to_the_disk_and_why() {
    command -v strace >/dev/null || skip "there is no strace"
    ringfence init "$store" >/dev/null
    expect 0 ringfence status "$store"
    has "$out" "io  "
    # Whoever looks for leaks at the end can't while strace is there.
    expect 0 env ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 strace -f -o "$work/trace" -e trace=io_uring_setup -e inject=io_uring_setup:error=EPERM \
        ringfence status "$store" --json
    has "$(field io "$out")" pwritev2
    has "$out" '"io_why":"io_uring' "not permitted"
}

case_cleanup_removes_what_nobody_can_open_any_more() {
    [ "$(id -u)" = 0 ] || skip "needs root"
    # In a /dev/shm and a file system of its own: cleanup looks at everything there is.
    cat >"$work/script" <<'END'
work=$1
mount -t tmpfs tmpfs /dev/shm && mkdir "$work/disk" && mount -t tmpfs tmpfs "$work/disk" || exit 77
ringfence init --volatile "$work/disk/kept" >/dev/null
ringfence init --volatile "$work/disk/used" >/dev/null
ringfence init --volatile "$work/disk/gone" >/dev/null
ringfence init --volatile "$work/disk/boot" >/dev/null
ringfence init --volatile plain >/dev/null
touch /dev/shm/ringfence.notes
region() { echo "/dev/shm/ringfence.$(stat -c %D "$1").$(printf %x "$(stat -c %i "$1")")"; }
kept=$(region "$work/disk/kept") used=$(region "$work/disk/used") gone=$(region "$work/disk/gone") boot=$(region "$work/disk/boot")
printf '\1\2\3\4' | dd of="$boot" bs=1 seek=40 conv=notrunc status=none # another boot id
ringfence monitor "$work/disk/used" --for 60s &
while flock -n -x "$work/disk/used/lock" true; do sleep 0.02; done
rm -r "$work/disk/gone" "$work/disk/used"
ringfence cleanup --dry-run | grep "would be removed" >/dev/null || echo "nothing would be removed"
[ -e "$gone" ] || echo "a dry run removed something"
ringfence cleanup
kill %1
for f in "$kept" "$used" /dev/shm/ringfence.notes; do [ -e "$f" ] || echo "LOST $f"; done
for f in "$gone" "$boot"; do [ ! -e "$f" ] || echo "LEFT $f"; done
ringfence status plain >/dev/null || echo "LOST plain"
END
    code=0
    out=$(unshare -m --propagation private bash "$work/script" "$work" 2>&1) || code=$?
    [ "$code" != 77 ] || skip "no mount namespaces here"
    has "$out" "its store is gone" "of an earlier boot" "its store is there" "in use"
    lacks "$out" LOST LEFT "nothing would be" "a dry run"
}

case_cleanup_keeps_what_may_be_hidden_from_it() {
    [ "$(id -u)" = 0 ] || skip "needs root"
    cat >"$work/script" <<'END'
work=$1
mount -t tmpfs tmpfs /dev/shm && mkdir "$work/disk" && mount -t tmpfs -o mode=755 tmpfs "$work/disk" || exit 77
chmod 755 "$work"
mkdir "$work/disk/under" "$work/disk/closed"
ringfence init --volatile "$work/disk/under/kept" >/dev/null
ringfence init --volatile "$work/disk/gone" >/dev/null
mkdir "$work/disk/theirs" && chown 65534 "$work/disk/theirs" && chmod 1777 /dev/shm
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$PROGRAM" "$@"; }
as_nobody init --volatile "$work/disk/theirs/gone" >/dev/null || echo "nobody can't run it"
region() { echo "/dev/shm/ringfence.$(stat -c %D "$1").$(printf %x "$(stat -c %i "$1")")"; }
kept=$(region "$work/disk/under/kept") gone=$(region "$work/disk/gone") theirs=$(region "$work/disk/theirs/gone")
mount -t tmpfs tmpfs "$work/disk/under"
rm -r "$work/disk/theirs/gone" "$work/disk/gone"
as_nobody cleanup >"$work/seen" || echo "code $?"
grep -q "$theirs.*other mounts hide" "$work/seen" || echo "not hidden: $(cat "$work/seen")"
grep "$kept.*can't be opened: Permission denied" "$work/seen" | grep -vq ' 0 B ' || echo "not said why: $(cat "$work/seen")"
umount "$work/disk/under" && chmod 711 "$work/disk/closed" && chmod 700 "$work/disk/under"
as_nobody cleanup >"$work/seen"
grep -q "$theirs.*may not search: root can tell" "$work/seen" || echo "not denied: $(cat "$work/seen")"
mount -t tmpfs tmpfs "$work/disk/under"
[ -e "$theirs" ] || echo "LOST $theirs"
ringfence cleanup
[ -e "$kept" ] || echo "LOST $kept"
for f in "$gone" "$theirs"; do [ ! -e "$f" ] || echo "LEFT $f"; done
umount "$work/disk/under"
ringfence status "$work/disk/under/kept" >/dev/null || echo "LOST the store"
END
    code=0
    out=$(PROGRAM=$program unshare -m --propagation private bash "$work/script" "$work" 2>&1) || code=$?
    [ "$code" != 77 ] || skip "no mount namespaces here"
    lacks "$out" "can't run" LOST LEFT "not hidden" "not denied" "not said why" "code "
    has "$out" "its store is gone" "its store is there"
}

case_cleanup_looks_through_a_file_system_once_for_all_regions() {
    [ "$(id -u)" = 0 ] || skip "needs root"
    command -v strace >/dev/null || skip "there is no strace"
    cat >"$work/script" <<'END'
work=$1
mount -t tmpfs tmpfs /dev/shm && mkdir "$work/disk" && mount -t tmpfs tmpfs "$work/disk" || exit 77
mkdir -p "$work/disk/deep/milestone"
for name in gone1 gone2 gone3 kept; do ringfence init --volatile "$work/disk/deep/$name" >/dev/null; done
rm -r "$work"/disk/deep/gone?
ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 strace -f -o "$work/trace" -e trace=openat ringfence cleanup
echo "passed $(grep -c '"milestone"' "$work/trace") times"
ringfence status "$work/disk/deep/kept" >/dev/null || echo LOST
END
    code=0
    out=$(unshare -m --propagation private bash "$work/script" "$work" 2>&1) || code=$?
    [ "$code" != 77 ] || skip "no mount namespaces here"
    has "$out" "passed 1 times" "its store is there"
    same "$(grep -c "its store is gone" <<<"$out")" 3
    lacks "$out" LOST
}

case_cleanup_never_removes_what_was_made_meanwhile() {
    [ "$(id -u)" = 0 ] || skip "needs root"
    command -v strace >/dev/null || skip "there is no strace"
    cat >"$work/script" <<'END'
work=$1
mount -t tmpfs tmpfs /dev/shm || exit 77
ringfence init "$work/store" >/dev/null
region="/dev/shm/ringfence.$(stat -c %D "$work/store").$(printf %x "$(stat -c %i "$work/store")")"
printf '\1\2\3\4' | dd of="$region" bs=1 seek=40 conv=notrunc status=none # another boot id
# It has judged, and takes its time to remove the file.
ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 strace -f -o "$work/trace" -e trace=unlinkat -e inject=unlinkat:delay_enter=600000 ringfence cleanup &
for ((i = 0; i < 15; i++)); do grep -q 'LEASE.*WRITE' /proc/locks && break; sleep 0.02; done
ringfence recover "$work/store" >/dev/null || echo "not recovered"
wait
ringfence status "$work/store" >/dev/null || echo "LOST the region"
ringfence destroy --yes "$work/store"
END
    code=0
    out=$(unshare -m --propagation private bash "$work/script" "$work" 2>&1) || code=$?
    [ "$code" != 77 ] || skip "no mount namespaces here"
    has "$out" "of an earlier boot" "removed"
    lacks "$out" LOST "not recovered"
}

case_fsync_test_measures() {
    expect 0 ringfence fsync-test "$work" --for 20ms
    has "$out" "WRITES PER SECOND" "buffered" "a second"
    expect 0 ringfence fsync-test "$work" --for 20ms --json
    [ "$(field single_worker_durable_per_second "$out")" -gt 0 ]
    expect 3 ringfence fsync-test "$work/none"
}

case_a_lock_that_somebody_holds_on_to_is_shown_with_its_holder() {
    command -v strace >/dev/null || skip "there is no strace"
    ringfence init --volatile "$store"
    expect 0 ringfence status "$store"
    has "$out" "longest held lock  none"
    has "$(ringfence metrics "$store")" "ringfence_lock_held_seconds 0.000"
    # It asks for memory in the middle of making a run, and is stopped there.
    # Whoever looks for leaks at the end can't while strace is there.
    ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 strace -f -o "$work/trace" -e trace=fallocate -e inject=fallocate:signal=SIGSTOP:when=20 \
        ringfence run create "$store" 1 --hex-prefixes 3 >/dev/null 2>&1 &
    local tracer=$! pid
    stopped() { grep -q 'stopped by SIGSTOP' "$work/trace"; }
    eventually stopped
    pid=$(awk '/stopped by SIGSTOP/ { print $1; exit }' "$work/trace")
    pid=$(awk '$1 == "Tgid:" { print $2 }' "/proc/$pid/status")
    # Nobody else is there who could have noticed; a second look is enough to see that it is held.
    expect 0 ringfence status "$store"
    has "$out" "the making of a run, by pid $pid, for "
    # With somebody there it is known since when.
    # One name in 64 has the same lock as the one that is being made.
    local run
    for run in 2 3 4 5; do
        if ringfence run create "$store" "$run" --hex-prefixes 1 >/dev/null 2>&1; then break; fi
    done
    ringfence work "$store" "$run" --workers 1 --quiet -- sleep 60 &
    seen_for_long() { expect 0 ringfence status "$store" --json && [ "$(field lock_held_ns "$out")" -ge 1000000000 ]; }
    eventually seen_for_long
    same "$(field longest_held_lock "$out")" name
    same "$(field lock_pid "$out")" "$pid"
    ringfence metrics "$store" | grep -E '^ringfence_lock_held_seconds [1-9]' >/dev/null || fail "metrics do not say it"
    kill -CONT "$pid"
    wait "$tracer"
    kill %2
    wait %2 || true
    expect 0 ringfence status "$store"
    has "$out" "longest held lock  none"
    expect 0 ringfence run show "$store" 1 --json
    same "$(field shards "$out")" 4096
}

main "$@"
