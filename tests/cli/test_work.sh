#!/usr/bin/env bash
# `ringfence work`: what a command gets and reports, and everything that may go wrong with commands, workers
# and the supervisor.
. "$(dirname "$0")/harness.sh"

begin() {
    ringfence init --volatile "$store" >/dev/null
    ringfence run create "$store" 1 --hex-prefixes 1 "$@" >/dev/null
}
# one RUN [OPTION...]: a run of one shard, for what needs no more.
one() {
    local run=$1
    shift
    ringfence run create "$store" "$run" --ranges <(printf '1\t2\n') "$@" >/dev/null
}
begin_one() {
    ringfence init --volatile "$store" >/dev/null
    one 1 "$@"
}
run_field() { field "$1" "$(ringfence run list "$store" --json | grep "\"run\":\"${2:-1}\"")"; }
shard_field() { field "$2" "$(ringfence shard show "$store" "${3:-1}" "$1" --json --reveal)"; }

# --- what a command gets ---

case_every_shard_gets_its_command_once() {
    begin
    expect 0 ringfence work "$store" 1 --workers 4 -- sh -c 'echo "$RINGFENCE_SHARD $RINGFENCE_START $RINGFENCE_END $RINGFENCE_FENCE"'
    same "$(wc -l <<<"$out")" 16
    same "$(sort -n <<<"$out" | head -n 1)" "1 0 1 2"
    same "$(sort -n <<<"$out" | tail -n 1)" "16 f g 2"
    has "$err" "16 of 16 shards done, 0 parked; 16 done here"
    same "$(run_field status)" done
    expect 7 ringfence work "$store" 1 -- true
    expect 3 ringfence work "$store" 2 -- true
    expect 2 ringfence work "$store" 1
    has "$err" "which command"
}

case_the_environment_is_complete_and_keys_are_encoded() {
    ringfence init --volatile "$store"
    printf 'a%%20b\tc\tmeta%%0Adata\n' >"$work/ranges"
    ringfence run create "$store" 5 --ranges "$work/ranges"
    expect 0 ringfence work "$store" 5 --workers 1 --quiet -- env
    has "$out" RINGFENCE_SHARD=1 RINGFENCE_RUN=5 RINGFENCE_FENCE=2 RINGFENCE_START=a%20b RINGFENCE_END=c RINGFENCE_METADATA=meta%0Adata \
        RINGFENCE_CURSOR_KEY= RINGFENCE_CURSOR_TOKEN= RINGFENCE_LEASE=rf1- RINGFENCE_STORE=/ RINGFENCE_WORKER=1 RINGFENCE_ATTEMPT=1
    lacks "$out" RINGFENCE_BOARD RINGFENCE_SUPERVISOR
}

case_a_command_gets_the_store_and_the_tenant_as_commands_take_them() {
    store="$work/it's ~my %41 farm"
    ringfence init --volatile "$store"
    printf '~root\t~z\n' | ringfence run create "$store" 1 --tenant blue --ranges -
    local out_of
    out_of=$(cd / && eval "$(ringfence claim --env "$store" 1 --tenant blue)" && ringfence run list "$RINGFENCE_STORE" --tenant blue --json &&
        echo "$RINGFENCE_START" && ringfence release)
    has "$out_of" '"run":"1"' $'\n~root'
    expect 0 ringfence work "$store" 1 --tenant blue --workers 1 --quiet -- sh -c 'cd /; ringfence shard show "$RINGFENCE_STORE" $RINGFENCE_RUN $RINGFENCE_SHARD --json; echo "$RINGFENCE_TENANT"'
    has "$out" '"leased":true' blue
    expect 2 ringfence run list "$store" --tenant ""
    has "$err" "--tenant is empty"
}

case_the_command_has_nothing_of_ours_open() {
    begin
    expect 0 ringfence work "$store" 1 --workers 1 --quiet -- sh -c 'ls -l /proc/self/fd | grep -v "/proc/" | grep -- "->" | sed "s/.*->//"'
    lacks "$out" ringfence. lock board
    expect 0 ringfence run create "$store" 2 --hex-prefixes 1
    expect 0 ringfence work "$store" 2 --workers 1 --quiet -- sh -c 'cat; echo read'
    same "$(grep -c read <<<"$out")" 16
}

case_output_is_grouped_by_shard() {
    begin
    expect 0 ringfence work "$store" 1 --workers 4 --quiet -- sh -c 'for i in 1 2 3; do echo "$RINGFENCE_SHARD"; sleep 0.01; done; echo "e$RINGFENCE_SHARD" >&2'
    same "$(uniq -c <<<"$out" | awk '{ print $1 }' | sort -u)" 3
    same "$(wc -l <<<"$err")" 16
}

case_a_farm_without_a_terminal_tells_its_progress_in_lines() {
    begin
    ringfence work "$store" 1 --workers 2 -- sh -c 'until [ -e '"$work/go"' ]; do sleep 0.05; done' 2>"$work/log" &
    local farm=$!
    told() { grep -q "^ringfence: run 1: 0 of 16 done, 0 parked, 2 running$" "$work/log"; }
    eventually told
    touch "$work/go"
    wait "$farm"
    lacks "$(cat "$work/log")" $'\r' $'\033'
}

case_ungrouped_output_comes_at_once() {
    begin
    ringfence work "$store" 1 --workers 2 --ungroup --quiet -- sh -c 'echo "$RINGFENCE_SHARD"; until [ -e '"$work/go"' ]; do sleep 0.02; done' >"$work/out" &
    local farm=$!
    printed() { [ "$(wc -l <"$work/out")" -ge 2 ]; }
    eventually printed
    same "$(run_field done)" 0
    touch "$work/go"
    wait "$farm"
    same "$(sort -n "$work/out" | paste -sd' ')" "$(seq -s' ' 1 16)"
}

case_a_run_may_be_left_open() {
    begin
    expect 0 ringfence work "$store" 1 --no-complete --quiet -- true
    same "$(run_field done) $(run_field status)" "16 active"
    expect 0 ringfence work "$store" 1 --quiet -- true
    same "$(run_field status)" done
}

case_closed_standard_descriptors_are_not_taken_by_files_of_ours() {
    begin
    expect 0 ringfence work "$store" 1 --workers 2 --quiet -- sh -c 'echo "$RINGFENCE_SHARD"' <&-
    same "$(sort -n <<<"$out" | paste -sd' ')" "$(seq -s' ' 1 16)"
    ringfence run create "$store" 2 --hex-prefixes 1
    local code=0
    ringfence work "$store" 2 --workers 2 -- true <&- >&- 2>&- || code=$?
    same "$code" 0
    same "$(run_field done 2)" 16
    # What is closed can't be written, and that is said.
    ringfence run list "$store" >&- 2>"$work/stderr" || code=$?
    same "$code" 9
    has "$(cat "$work/stderr")" "writing the output failed"
    code=0
    ringfence run create "$store" 3 --keys - <&- 2>"$work/stderr" || code=$?
    same "$code" 9
    has "$(cat "$work/stderr")" "can't be read"
}

case_workers_that_go_home_too_early_are_no_success() {
    begin
    ringfence work "$store" 1 --workers 2 -- sh -c 'while [ ! -e '"$work/go"' ]; do sleep 0.05; done' 2>"$work/log" &
    local farm=$! fd code=0
    busy() { [ "$(ringfence shard list "$store" 1 --json | grep -c '"lease_left_ns":[0-9]')" = 2 ]; }
    eventually busy
    # Who writes into the board tells them to take no more shards.
    fd=$(find "/proc/$farm/fd" -lname '*ringfence-board*')
    printf '\1' | dd of="$fd" conv=notrunc status=none
    touch "$work/go"
    wait "$farm" || code=$?
    same "$code" 1
    has "$(cat "$work/log")" "2 of 16 shards done"
}

case_a_shard_whose_output_is_lost_is_not_done() {
    [ -e /dev/full ] || skip "there is no /dev/full"
    begin
    local code=0
    ringfence work "$store" 1 --workers 4 -- echo hello >/dev/full 2>"$work/log" || code=$?
    same "$code" 9
    same "$(grep -c "standard output can't be written: No space left on device" "$work/log")" 1
    has "$(cat "$work/log")" "0 of 16 shards done, 0 parked"
    lacks "$(cat "$work/log")" "takes its place"
    expect 0 ringfence shard list "$store" 1 --only available --json
    same "$(wc -l <<<"$out")" 16
    code=0
    ringfence work "$store" 1 --workers 1 --quiet -- sh -c 'echo oops >&2' 2>/dev/full || code=$?
    same "$code" 9
    same "$(run_field done)" 0
    # What has no output loses none.
    ringfence work "$store" 1 --quiet -- true >/dev/full
    same "$(run_field done)" 16
}

case_work_stops_when_nobody_reads_its_output() {
    begin
    { ringfence work "$store" 1 --workers 2 -- sh -c 'yes | head -n 100000' 2>"$work/log" || echo $? >"$work/code"; } | head -n 3 >/dev/null
    same "$(cat "$work/code")" 9
    same "$(grep -c "standard output can't be written: Broken pipe" "$work/log")" 1
    lacks "$(cat "$work/log")" "signal 13"
    [ "$(run_field done)" -lt 16 ] || fail "all shards are done"
    # The commands have the default of SIGPIPE.
    ringfence run create "$store" 2 --hex-prefixes 1
    expect 0 ringfence work "$store" 2 --workers 1 --quiet -- bash -c 'yes | head -n 1 >/dev/null; echo ${PIPESTATUS[0]}'
    same "$(sort -u <<<"$out")" 141
}

case_a_reader_that_reads_nothing_does_not_hold_up_the_end() {
    begin
    mkfifo "$work/fifo"
    exec 5<>"$work/fifo"
    ringfence work "$store" 1 --workers 2 --grace 100ms -- sh -c 'touch '"$work"'/ran.$RINGFENCE_SHARD; head -c 200000 /dev/zero' >&5 2>"$work/log" &
    local farm=$! code=0
    printed() { [ "$(ls "$work" | grep -c '^ran')" = 2 ]; }
    eventually printed
    sleep 0.1
    kill -INT "$farm"
    draining() { grep -q "no more shards are taken" "$work/log"; }
    eventually draining
    kill -INT "$farm"
    wait "$farm" || code=$?
    same "$code" 130
    has "$(cat "$work/log")" "0 of 16 shards done"
    expect 0 ringfence shard list "$store" 1 --only available --json
    same "$(wc -l <<<"$out")" 16
}

# --- what a command reports ---

case_descriptor_3_moves_the_cursor_and_the_next_one_goes_on_there() {
    begin
    cat >"$work/count" <<'END'
from=0
[ -z "$RINGFENCE_CURSOR_KEY" ] || from=${RINGFENCE_CURSOR_KEY#?}
echo "$RINGFENCE_SHARD from $from token $RINGFENCE_CURSOR_TOKEN"
for ((i = from + 1; i <= 5; i++)); do
    printf '%s%d\ttoken%d\n' "$RINGFENCE_START" $i $i >&3
    [ $i != 3 ] || [ $from != 0 ] || exit 1
done
END
    expect 0 ringfence work "$store" 1 --workers 3 --quiet --backoff 1ms -- bash "$work/count"
    same "$(grep -c 'from 0 token $' <<<"$out")" 16
    same "$(grep -c 'from 3 token token3$' <<<"$out")" 16
    same "$(shard_field 16 cursor_key)" f5
    same "$(shard_field 16 cursor_token)" token5
}

case_a_released_shard_goes_on_behind_its_cursor() {
    begin
    ringfence work "$store" 1 --workers 1 --quiet -- sh -c 'echo "${RINGFENCE_START}7" >&3; sleep 60' &
    moved() { ringfence shard list "$store" 1 --json | grep '"cursor_key_len":2' >/dev/null; }
    eventually moved
    kill -TERM $!
    wait $! || true
    expect 0 ringfence work "$store" 1 --workers 2 --quiet -- sh -c 'echo "at $RINGFENCE_CURSOR_KEY"'
    same "$(grep -c '^at .7$' <<<"$out")" 1
    same "$(run_field done)" 16
}

case_the_command_may_use_ringfence_itself() {
    begin
    cat >"$work/command" <<'END'
set -e
ringfence checkpoint --key "${RINGFENCE_START}x"
case $RINGFENCE_SHARD in
1) ringfence complete ;;
2) ringfence park --reason not-found ;;
3) ringfence shard split "$RINGFENCE_STORE" 1 3 --at 2y --residual --lease "$RINGFENCE_LEASE" ;;
esac
END
    expect 1 ringfence work "$store" 1 --workers 2 --quiet -- bash "$work/command"
    same "$(run_field shards)" 17
    same "$(run_field parked)" 1
    same "$(shard_field 2 reason)" not-found
    same "$(shard_field 1 cursor_key)" 0x
    same "$(run_field done)" 16
}

case_what_a_command_makes_of_its_shard_is_counted_as_that() {
    ringfence init --volatile "$store" >/dev/null
    ringfence run create "$store" 1 --lease 3s --keys <(seq 4) --shards 4
    cat >"$work/command" <<'END'
case $RINGFENCE_SHARD in
1) ringfence complete; sleep 1.5 ;;
2 | 3) ringfence park --reason poisoned; sleep 1.5 ;;
4) [ -e "$1" ] || { touch "$1"; ringfence release; sleep 1.5; touch "$1.end"; exit 1; } ;;
esac
END
    # Nobody is called lost, though it goes on until the lease would have been renewed.
    expect 1 ringfence work "$store" 1 --workers 4 -- bash "$work/command" "$work/released"
    has "$err" "2 of 4 shards done, 2 parked; 2 done here" "1 released"
    lacks "$err" lost
    [ -e "$work/released.end" ] || fail "who has released its shard was ended"
    # --halt counts what was parked that way as well.
    ringfence run create "$store" 2 --hex-prefixes 1
    ringfence work "$store" 2 --workers 1 --halt soon,fail=1 -- sh -c 'mkdir '"$work/first"' 2>/dev/null && exec ringfence park; until [ -e '"$work/go"' ]; do sleep 0.02; done' 2>"$work/log" &
    local farm=$! code=0
    halting() { grep -q halting "$work/log"; }
    eventually halting
    touch "$work/go"
    wait "$farm" || code=$?
    same "$code" 1
    same "$(run_field parked 2)" 1
}

case_what_is_no_key_is_said_and_does_not_matter() {
    begin
    expect 0 ringfence work "$store" 1 --workers 2 --quiet -- sh -c '[ $RINGFENCE_SHARD != 5 ] || { echo 50% >&3; echo zzz >&3; head -c 100000 /dev/zero | tr "\0" a >&3; echo >&3; echo 4a >&3; }'
    has "$err" "not KEY or KEY<TAB>TOKEN" "refused: the cursor is outside its range" "too long"
    same "$(shard_field 5 cursor_key)" 4a
}

# --- failures ---

case_failing_commands_are_tried_again_and_then_parked() {
    begin
    expect 1 ringfence work "$store" 1 --workers 4 --retries 2 --backoff 1ms -- sh -c 'echo $RINGFENCE_SHARD >>'"$work/tries"'; [ $RINGFENCE_SHARD != 7 ]'
    has "$err" "shard 7 is parked: the command ended with 1" "15 of 16 shards done, 1 parked"
    same "$(grep -c '^7$' "$work/tries")" 3
    same "$(wc -l <"$work/tries")" 18
    same "$(shard_field 7 reason)" too-many-errors
    same "$(run_field status)" active
    ringfence shard unpark "$store" 1 7
    expect 0 ringfence work "$store" 1 --quiet -- true
    same "$(run_field status)" done
}

case_who_waits_to_try_again_does_not_when_everything_ends() {
    begin
    ringfence work "$store" 1 --workers 1 --backoff 60s -- sh -c 'echo >>'"$work/tries"'; false' 2>"$work/log" &
    local code=0
    eventually test -s "$work/tries"
    sleep 0.1
    kill -INT $!
    wait $! || code=$?
    same "$code" 130
    same "$(wc -l <"$work/tries")" 1
    has "$(cat "$work/log")" "1 released"
    expect 1 timeout 30 ringfence work "$store" 1 --workers 2 --backoff 60s --halt soon,fail=1 -- sh -c 'echo $RINGFENCE_SHARD >>'"$work/more"'; mkdir '"$work/first"' 2>/dev/null || exit 1; sleep 0.2; exit 65'
    has "$err" "halting" "1 parked" " released"
    same "$(sort "$work/more" | uniq -d)" ""
}

case_tries_come_later_and_later() {
    begin_one
    expect 1 ringfence work "$store" 1 --workers 1 --quiet --retries 3 --backoff 100ms -- sh -c 'date +%s%N >>'"$work/tries"'; false'
    same "$(wc -l <"$work/tries")" 4
    # Half of it at least is not random: 50, 100, 200 ms.
    awk 'NR > 1 && ($1 - last) / 1e6 < 25 * 2 ^ (NR - 1) { print "too soon: " NR; exit 1 } { last = $1 }' "$work/tries" || fail "$(cat "$work/tries")"
}

case_who_failed_together_does_not_try_again_together() {
    command -v strace >/dev/null || skip "there is no strace"
    begin
    # How long each sleeps, to the millisecond: half of it is random. Nobody waits for one descriptor but then.
    expect 1 env ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 strace -f -o "$work/trace" -e trace=ppoll \
        ringfence work "$store" 1 --workers 4 --retries 2 --backoff 40ms --quiet -- false
    sed -nE 's/.*ppoll\(\[\{fd=[0-9]+, events=POLLIN\}\], 1, \{tv_sec=0, tv_nsec=([0-9]+)[0-9]{6}\}.*/\1/p' "$work/trace" >"$work/sleeps"
    [ "$(wc -l <"$work/sleeps")" -ge 32 ] || fail "$(wc -l <"$work/sleeps") sleeps"
    [ "$(sort -u "$work/sleeps" | wc -l)" -ge 8 ] || fail "they sleep for: $(sort -n "$work/sleeps" | uniq -c)"
    [ "$(sort -n "$work/sleeps" | tail -n 1)" -le 80 ] || fail "they sleep for: $(sort -n "$work/sleeps" | uniq -c)"
}

case_exit_codes_of_sysexits_park_at_once() {
    begin
    expect 1 ringfence work "$store" 1 --workers 2 --backoff 1ms -- sh -c 'echo >>'"$work/tries"'; case $RINGFENCE_SHARD in 1) exit 65 ;; 2) exit 66 ;; 3) exit 77 ;; esac'
    same "$(shard_field 1 reason)" poisoned
    same "$(shard_field 2 reason)" not-found
    same "$(shard_field 3 reason)" permission-denied
    same "$(wc -l <"$work/tries")" 16
}

case_a_command_that_takes_too_long_is_ended() {
    begin_one
    expect 1 ringfence work "$store" 1 --workers 1 --timeout 100ms --grace 50ms --retries 0 -- sh -c 'trap "" TERM; while :; do sleep 1; done'
    has "$err" "shard 1 is parked: the command was ended by signal 9, it took too long" "0 of 1 shards done, 1 parked"
}

case_the_longest_times_are_for_ever() {
    begin_one
    local longest=18446744073709551615ns
    expect 0 ringfence work "$store" 1 --workers 1 --timeout $longest --retries 0 --quiet -- sleep 0.1
    same "$(run_field done)" 1
    one 2
    ringfence work "$store" 2 --workers 1 --grace $longest --quiet -- \
        sh -c 'trap "sleep 0.2; touch '"$work/ended"'; exit 0" TERM; touch '"$work/begun"'; while :; do sleep 0.02; done' &
    eventually test -e "$work/begun"
    kill -TERM $!
    wait $! || true
    [ -e "$work/ended" ] || fail "it was not given any time"
}

case_a_command_that_ends_well_when_it_is_told_to_end_is_not_done() {
    begin_one
    # It takes too long, and goes with 0 when it is asked to.
    expect 1 ringfence work "$store" 1 --workers 1 --timeout 2s --retries 0 -- sh -c 'trap "exit 0" TERM; sleep 30 & wait'
    has "$err" "shard 1 is parked: the command ended with 0, it took too long" "0 of 1 shards done, 1 parked"
    ringfence shard unpark "$store" 1 1
    ringfence work "$store" 1 --workers 1 -- bash -c 'trap "exit 0" TERM; echo $$ >'"$work"'/pid.$RINGFENCE_SHARD; sleep 30 & wait' 2>"$work/log" &
    eventually commands_run 1
    kill -TERM $!
    wait $! || true
    has "$(cat "$work/log")" "0 of 1 shards done, 0 parked; 0 done here" "1 released"
}

case_who_floods_descriptor_3_is_looked_after_like_anybody() {
    begin_one
    expect 1 ringfence work "$store" 1 --workers 1 --timeout 2s --retries 0 -- sh -c 'echo 1 >&3; exec yes 1 >&3'
    has "$err" "shard 1 is parked" "it took too long" "0 of 1 shards done"
    same "$(shard_field 1 cursor_key)" 1
    # Nor is a command waited for that has ended, and left somebody behind who writes.
    one 2
    expect 0 ringfence work "$store" 2 --workers 1 --quiet -- sh -c 'yes 1 >&3 & sleep 0.1'
    same "$(run_field done 2)" 1
}

case_a_command_that_can_not_be_started_stops_everything() {
    begin
    expect 1 ringfence work "$store" 1 --workers 2 -- "$work/no-such-command"
    has "$err" "can't be started: No such file"
    same "$(run_field parked)" 0
    expect 0 ringfence shard list "$store" 1 --only available --json
    same "$(wc -l <<<"$out")" 16
}

case_workers_that_find_no_room_end_the_farm_with_what_is_in_the_way() {
    ringfence init --volatile "$store" --max-members 6
    ringfence run create "$store" 1 --hex-prefixes 1
    expect 10 ringfence work "$store" 1 --workers 16 -- sleep 60
    has "$err" "member slots are in use"
    same "$(run_field done)" 0
    expect 0 ringfence shard list "$store" 1 --only available --json
    same "$(wc -l <<<"$out")" 16
}

case_halt_soon_and_now() {
    begin
    # Whoever comes after the one that fails goes on until it is said, so that it does not matter how soon that is.
    ringfence work "$store" 1 --workers 1 --retries 0 --halt soon,fail=1 -- sh -c 'mkdir '"$work/first"' 2>/dev/null && exit 1; until [ -e '"$work/go"' ]; do sleep 0.02; done' 2>"$work/log" &
    local farm=$! code=0
    halting() { grep -q halting "$work/log"; }
    eventually halting
    touch "$work/go"
    wait "$farm" || code=$?
    same "$code" 1
    same "$(run_field parked)" 1
    [ "$(run_field done)" -le 1 ] || fail "$(run_field done) are done"
    ringfence run create "$store" 2 --hex-prefixes 1
    expect 1 ringfence work "$store" 2 --workers 1 --halt now,success=3 --quiet -- sh -c '[ "$(ls '"$work"' | grep -c ^good)" -lt 3 ] || exec sleep 60; touch '"$work"'/good.$RINGFENCE_SHARD'
    same "$(run_field done 2)" 3
    ringfence run create "$store" 3 --hex-prefixes 1
    expect 1 ringfence work "$store" 3 --workers 2 --retries 0 --halt now,fail=1 --quiet -- sh -c '[ $RINGFENCE_SHARD != 8 ] || exit 65; ! mkdir '"$work/slept"' 2>/dev/null || exec sleep 60'
    same "$(run_field parked 3)" 1
    expect 2 ringfence work "$store" 3 --halt sometimes -- true
    has "$err" "soon,fail=1"
}

case_nothing_is_begun_once_it_is_to_halt() {
    ringfence init --volatile "$store" >/dev/null
    local halt run=0 farm worker code
    for halt in now,fail=1 soon,fail=2 now,success=3 soon,done=4; do
        run=$((run + 1))
        ringfence run create "$store" $run --hex-prefixes 1 >/dev/null
        ringfence work "$store" $run --workers 1 --retries 0 --halt $halt --quiet -- \
            sh -c 'until [ -e '"$work/go.$run"' ]; do sleep 0.02; done; exit '$([[ $halt == *fail* ]] && echo 1 || echo 0) 2>"$work/log" &
        farm=$! code=0
        claimed() { ringfence shard list "$store" $run --json | grep '"lease_left_ns":[0-9]'; }
        eventually claimed
        worker=$(pgrep -P "$farm")
        kill -STOP "$farm" # however long the supervisor takes to hear of it
        touch "$work/go.$run"
        eventually is_gone "$worker"
        kill -CONT "$farm"
        wait "$farm" || code=$?
        same "$code" 1
        has "$(cat "$work/log")" halting
        same "$halt" "${halt%=*}=$(($(run_field done $run) + $(run_field parked $run)))"
    done
}

case_halt_never_and_done_and_what_is_no_number() {
    begin
    expect 1 ringfence work "$store" 1 --workers 4 --retries 0 --halt never --quiet -- sh -c '[ $RINGFENCE_SHARD -gt 3 ]'
    same "$(run_field parked) $(run_field done)" "3 13"
    # Done is whatever has come to its end.
    ringfence run create "$store" 2 --hex-prefixes 1
    expect 1 ringfence work "$store" 2 --workers 1 --retries 0 --halt now,done=2 -- sh -c 'mkdir '"$work/first"' 2>/dev/null && exit 0; mkdir '"$work/second"' 2>/dev/null && exit 1; exec sleep 60'
    has "$err" "halting"
    same "$(run_field done 2) $(run_field parked 2)" "1 1"
    local word
    for word in soon,fail=20% now,fail=0 never,fail=1 soon now, fail=1; do
        expect 2 ringfence work "$store" 2 --halt "$word" -- true
        has "$err" "soon,fail=1"
    done
}

# --- deaths ---

# seats N: so many commands are running.
commands_run() { [ "$(cat "$work"/pid.* 2>/dev/null | wc -l)" -ge "$1" ]; }

case_a_killed_worker_is_replaced_and_its_command_dies_with_it() {
    begin
    ringfence work "$store" 1 --workers 2 -- bash -c 'echo $$ >'"$work"'/pid.$RINGFENCE_SHARD.$$; [ -e '"$work/go"' ] || { sleep 1000 & wait; }' 2>"$work/log" &
    local farm=$! worker pids p
    eventually commands_run 2
    pids=$(cat "$work"/pid.*)
    worker=$(pgrep -P "$farm" | head -n 1)
    touch "$work/go"
    kill -9 "$worker"
    replaced() { grep -q "was ended by signal 9; another takes its place" "$work/log"; }
    eventually replaced
    # One of the two commands is gone, and what it had started as well.
    one_gone() { local p n=0; for p in $pids; do ! is_gone $p || n=$((n + 1)); done; [ $n -ge 1 ]; }
    eventually one_gone
    orphans() { [ "$(pgrep -fc "^sleep 1000$" -g "$(tr '\n' ',' <<<"$pids" | sed 's/,$//')")" -le 1 ]; }
    eventually orphans
    # The other sleeps for ever: end that, and everything goes on.
    for p in $pids; do pkill -P "$p" -x sleep || true; done
    wait "$farm"
    has "$(cat "$work/log")" "16 of 16 shards done" "1 workers restarted"
    expect 0 ringfence status "$store" --json
    [ "$(field leases_lost "$out")" -ge 1 ] || fail "no lease was lost"
}

case_workers_killed_all_the_time_do_not_lose_or_double_a_shard() {
    begin
    ringfence work "$store" 1 --workers 3 --restarts 1000 -- sh -c 'sleep 0.2; echo "$RINGFENCE_SHARD $RINGFENCE_FENCE"' >"$work/out" 2>"$work/log" &
    local farm=$! worker i kills=0
    while [ "$(run_field done)" -lt 14 ] && [ $kills -lt 20 ]; do
        worker=$(pgrep -P "$farm" | shuf -n 1) || true
        if [ -n "$worker" ] && kill -9 "$worker" 2>/dev/null; then kills=$((kills + 1)); fi
        sleep 0.1
    done
    wait "$farm" || fail "$(cat "$work/log")"
    echo "INFO $kills workers were killed"
    same "$(run_field done)" 16
    same "$(run_field status)" done
    [ "$kills" -ge 1 ] || fail "nobody was killed"
    # Output of a shard whose worker died after printing may come twice; its fence is another one then.
    same "$(sort -u "$work/out" | wc -l)" "$(wc -l <"$work/out")"
    same "$(awk '{ print $1 }' "$work/out" | sort -un | wc -l)" 16
}

case_the_budget_of_restarts_ends() {
    begin
    ringfence work "$store" 1 --workers 1 --restarts 2 -- sleep 1000 2>"$work/log" &
    local farm=$! i
    for ((i = 0; i < 3; i++)); do
        # A child of the supervisor may also be a command whose worker has just died: go on until it is told, and
        # no longer: what looks for leaks at the end of a sanitized program is a child as well.
        told() {
            [ "$(grep -c 'was ended by signal 9' "$work/log")" -le $i ] || return 0
            kill -9 $(pgrep -P "$farm")
            return 1
        }
        eventually told
    done
    local code=0
    wait "$farm" || code=$?
    same "$code" 1
    has "$(cat "$work/log")" "the budget of restarts is used up"
}

case_a_killed_supervisor_takes_everybody_along() {
    begin
    ringfence work "$store" 1 --workers 2 --grace 1s --quiet -- bash -c 'echo $$ >'"$work"'/pid.$RINGFENCE_SHARD; exec sleep 1000' &
    local farm=$! workers pids
    eventually commands_run 2
    workers=$(pgrep -P "$farm")
    pids=$(cat "$work"/pid.*)
    kill -9 "$farm"
    wait "$farm" || true
    all_gone() { local p; for p in $workers $pids; do is_gone $p || return 1; done; }
    eventually all_gone
    expect 0 ringfence shard list "$store" 1 --only available --json
    same "$(wc -l <<<"$out")" 16
    expect 0 ringfence procs "$store" --reap
}

case_a_lost_lease_ends_the_command() {
    begin_one --lease 600ms
    # It goes on for as long as it is let.
    ringfence work "$store" 1 --workers 1 --grace 60s -- bash -c 'trap "touch '"$work/asked"'; until [ -e '"$work/go"' ]; do sleep 0.02; done; exit 0" TERM; echo $$ >'"$work"'/pid.1; while :; do sleep 0.05; done' 2>"$work/log" &
    local farm=$! worker pid
    eventually commands_run 1
    pid=$(cat "$work/pid.1")
    worker=$(pgrep -P "$farm")
    kill -STOP "$worker"
    taken() { ringfence claim "$store" 1 --shard 1 >"$work/lease"; }
    eventually taken
    kill -CONT "$worker"
    # It is asked, and has its time.
    eventually test -e "$work/asked"
    ! is_gone "$pid" || fail "it was not given any time"
    touch "$work/go"
    said() { grep -q "shard 1 was lost" "$work/log"; }
    eventually said
    is_gone "$pid" || fail "the command lives"
    kill -TERM "$farm"
    wait "$farm" || true
}

case_a_lease_that_ran_out_is_told_in_times_that_people_read() {
    begin_one --lease 1s
    ringfence work "$store" 1 --workers 1 -- sh -c 'echo >>'"$work/runs"'; until [ -e '"$work/go"' ]; do sleep 0.02; done' 2>"$work/log" &
    local farm=$! worker
    eventually test -s "$work/runs"
    worker=$(pgrep -P "$farm")
    kill -STOP "$worker"
    touch "$work/go"
    expired() { ringfence shard show "$store" 1 1 --json | grep '"leased":false'; }
    eventually expired
    kill -CONT "$worker"
    wait "$farm"
    has "$(cat "$work/log")" "shard 1 was worked on but could not be completed: the lease has expired; it ended " " ago"
    same "$(run_field done)" 1
}

case_the_lease_is_kept_while_a_command_runs() {
    begin_one --lease 3s
    # It goes on until its lease has a deadline behind the one it began with, and then once more.
    cat >"$work/command" <<'END'
deadline() { ringfence shard show "$RINGFENCE_STORE" 1 1 --json | grep -o '"deadline_ns":[0-9]*'; }
for i in 1 2; do
    first=$(deadline)
    until [ "$(deadline)" != "$first" ]; do sleep 0.05; done
done
echo "$RINGFENCE_FENCE"
END
    expect 0 ringfence work "$store" 1 --workers 1 --quiet -- bash "$work/command"
    same "$out" 2
    same "$(run_field done)" 1
}

case_a_shard_that_somebody_has_locked_is_waited_for() {
    command -v strace >/dev/null || skip "there is no strace"
    begin_one
    ringfence work "$store" 1 --workers 1 -- sh -c 'echo "$RINGFENCE_LEASE" >>'"$work/leases"'; until [ -e '"$work/go"' ]; do sleep 0.02; done' 2>"$work/log" &
    local farm=$! pid stops=0
    eventually test -s "$work/leases"
    # A checkpoint is stopped whenever it asks for memory, until that is for its token: then it has the shard locked.
    ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 strace -f -o "$work/trace" -e trace=fallocate -e inject=fallocate:signal=SIGSTOP \
        ringfence checkpoint "$(cat "$work/leases")" --key 1a --token "$(head -c 16000 /dev/zero | tr '\0' t)" >"$work/out" 2>&1 &
    local tracer=$!
    go_on() { kill -CONT "$(awk '/ SIGSTOP {/ { pid = $1 } END { print pid }' "$work/trace")"; }
    locked() {
        local seen
        seen=$(grep -c ' SIGSTOP {' "$work/trace")
        [ "$seen" -gt "$stops" ] || return 1
        sleep 0.1 # it is stopped by now, or the look at the locks tells
        ! ringfence status "$store" | grep -q 'held lock  shard 1 of' || return 0
        stops=$seen
        go_on
        return 1
    }
    eventually locked
    touch "$work/go"
    # Whoever completes the shard has given up on the lock once at least.
    busy() { [ "$(field busy "$(ringfence status "$store" --json)")" -ge 1 ]; }
    eventually busy
    kill -9 "$tracer" # so that nobody stops it again
    go_on
    wait "$farm"
    same "$(wc -l <"$work/leases")" 1
    has "$(cat "$work/log")" "1 of 1 shards done"
    lacks "$(cat "$work/log")" "could not be"
}

case_two_farms_share_a_run() {
    begin
    ringfence work "$store" 1 --workers 2 --quiet -- sh -c 'echo $RINGFENCE_SHARD; sleep 0.05' >"$work/one" &
    ringfence work "$store" 1 --workers 2 --quiet -- sh -c 'echo $RINGFENCE_SHARD; sleep 0.05' >"$work/two" &
    wait %1
    wait %2
    same "$(cat "$work/one" "$work/two" | sort -n | paste -sd' ')" "$(seq -s' ' 1 16)"
}

case_somebody_else_may_end_the_run() {
    begin
    ringfence work "$store" 1 --workers 2 --quiet -- sleep 0.2 &
    local farm=$! code=0
    busy() { [ "$(run_field done)" -ge 1 ]; }
    eventually busy
    ringfence run cancel "$store" 1
    wait "$farm" || code=$?
    same "$code" 7
}

case_a_run_that_is_removed_is_missed_once() {
    begin
    ringfence work "$store" 1 --workers 2 --grace 400ms --quiet -- sh -c 'trap "" TERM; touch '"$work/begun"'; sleep 60' 2>"$work/log" &
    local farm=$! code=0
    eventually test -e "$work/begun"
    kill -STOP "$farm"
    ringfence run cancel "$store" 1
    ringfence run purge "$store" 1
    kill -CONT "$farm"
    wait "$farm" || code=$?
    same "$code" 3
    same "$(grep -c "there is no such run" "$work/log")" 1
}

# --- lines ---

case_lines_are_items() {
    ringfence init --volatile "$store"
    expect 0 ringfence work "$store" 1 --lines --workers 3 -- echo item < <(printf 'one\ntwo words\n%s\nlast' '$(not run) "quotes"')
    same "$(sort <<<"$out")" "$(printf 'item $(not run) "quotes"\nitem last\nitem one\nitem two words')"
    same "$(run_field status)" done
    expect 0 ringfence work "$store" 2 --lines --workers 2 --lines-per-shard 3 --quiet -- sh -c 'echo $#: "$@" {#}' x {} < <(seq 1 7)
    same "$(sort <<<"$out")" "$(printf '1: 7 3\n3: 1 2 3 1\n3: 4 5 6 2')"
    expect 0 ringfence work "$store" 3 --lines --pipe --lines-per-shard 4 --workers 1 --quiet -- wc -l < <(seq 1 8)
    same "$(paste -sd' ' <<<"$out")" "4 4"
    expect 0 ringfence work "$store" 4 --lines --workers 1 --quiet -- echo 'prefix-{}.txt' {%} < <(echo x)
    same "$out" "prefix-x.txt 1"
    expect 0 ringfence work "$store" 5 --lines --quiet -- echo </dev/null
    expect 3 ringfence run show "$store" 5
}

case_lines_are_worked_on_as_they_come() {
    ringfence init --volatile "$store"
    mkfifo "$work/fifo"
    ringfence work "$store" 1 --lines --workers 1 --quiet -- echo got <"$work/fifo" >"$work/out" &
    local farm=$!
    exec 5>"$work/fifo"
    echo one >&5
    got() { grep -q "got $1" "$work/out"; }
    eventually got one
    echo two >&5
    eventually got two
    same "$(run_field status)" active
    exec 5>&-
    wait "$farm"
    same "$(run_field status)" done
}

case_a_run_of_lines_is_resumed_with_what_is_left() {
    ringfence init --volatile "$store"
    seq 1 20 | ringfence work "$store" 1 --lines --lines-per-shard 5 --workers 1 --retries 0 --quiet -- \
        sh -c 'for i; do echo $i; [ $i != 8 ] || exit 65; printf "%020d\n" $i >&3; done' x >"$work/first" 2>/dev/null || true
    same "$(run_field parked)" 1
    ringfence shard unpark "$store" 1 --all
    expect 0 ringfence work "$store" 1 --lines --workers 1 --quiet -- echo </dev/null
    same "$out" "8 9 10"
    same "$(run_field done)" 4
}

case_two_may_add_lines_to_one_run() {
    ringfence init --volatile "$store"
    mkfifo "$work/fifo"
    ringfence work "$store" 1 --lines --workers 1 --quiet -- echo <"$work/fifo" >"$work/one" &
    local farm=$!
    exec 5>"$work/fifo"
    echo first >&5
    got() { grep -q "$1" "$work/one"; }
    eventually got first
    # These get the next numbers, which the one above would have given to what it reads now.
    expect 0 ringfence work "$store" 1 --lines --workers 1 --quiet --no-complete -- echo < <(printf 'second\nthird\n')
    printf 'fourth\nfifth\n' >&5
    exec 5>&-
    wait "$farm"
    same "$(sort <<<"$out"$'\n'"$(cat "$work/one")" | sed '/^$/d' | paste -sd' ')" "fifth first fourth second third"
    same "$(run_field shards) $(run_field done)" "5 5"
    # Lines are counted as they come in, not as they are numbered.
    ringfence work "$store" 2 --lines --no-complete --quiet -- true < <(seq 1 5)
    expect 13 ringfence work "$store" 2 --lines --quiet -- true < <(printf 'one\ntwo\0\n')
    has "$err" "line 2 has a NUL byte"
}

case_without_lines_nothing_is_run() {
    ringfence init --volatile "$store"
    # It reports both its lines and fails: there is nothing left to try again.
    expect 0 ringfence work "$store" 1 --lines --lines-per-shard 2 --workers 1 --backoff 1ms --quiet -- \
        sh -c 'echo "with $#"; printf "%020d\n" 2 >&3; exit 1' x < <(printf 'a\nb\n')
    same "$out" "with 2"
    same "$(run_field done) $(run_field status)" "1 done"
}

case_many_lines_are_read_no_faster_than_they_are_worked_on() {
    ringfence init --volatile "$store" --max-shards 3000
    expect 0 ringfence work "$store" 1 --lines --lines-per-shard 50 --ahead 10 --workers 2 --pipe --quiet -- sh -c 'wc -l' < <(seq 1 5000)
    same "$(awk '{ n += $1 } END { print n }' <<<"$out")" 5000
    same "$(run_field shards)" 100
    expect 13 ringfence work "$store" 2 --lines --quiet -- true < <(head -c 20000 /dev/zero | tr '\0' x)
    has "$err" "line 1 has more than 16384 bytes"
}

case_what_is_not_made_of_lines_is_refused() {
    begin
    expect 13 ringfence work "$store" 1 --lines -- touch "$work/touched" < <(printf 'a\n')
    has "$err" "run 1 is not made of lines"
    [ ! -e "$work/touched" ]
    same "$(run_field shards)" 16
    # A line with a NUL byte would be cut there. What comes before it is worked on.
    expect 13 ringfence work "$store" 2 --lines --quiet -- echo < <(printf 'one\ntwo\0three\nfour\n')
    has "$err" "line 2 has a NUL byte"
    same "$out" one
    expect 13 ringfence work "$store" 3 --lines --dry-run --reveal -- echo < <(printf 'two\0three\n')
    has "$err" "line 1 has a NUL byte"
    same "$out" ""
}

case_a_dry_run_of_lines_is_refused_what_the_run_would_be() {
    begin
    expect 13 ringfence work "$store" 1 --lines --dry-run -- echo < <(printf 'a\n')
    has "$err" "run 1 is not made of lines"
    expect 13 ringfence work "$store" 2 --lines --dry-run -- echo < <(head -c 20000 /dev/zero | tr '\0' x)
    has "$err" "line 1 has more than 16384 bytes"
    expect 9 ringfence work "$store" 2 --lines --dry-run -- echo </
    has "$err" "standard input can't be read"
    expect 3 ringfence work "$store.none" 2 --lines --dry-run -- echo </dev/null
    # What is left from before comes first, and the numbers go on.
    ringfence work "$store" 2 --lines --workers 1 --retries 0 --quiet -- false < <(printf 'a\nb\n') 2>/dev/null || true
    ringfence shard unpark "$store" 2 1
    expect 0 ringfence work "$store" 2 --lines --dry-run --reveal -- echo {#}: < <(printf 'c\n')
    same "$out" "$(printf 'echo 1: a\necho 3: c')"
    ringfence run cancel "$store" 2
    expect 7 ringfence work "$store" 2 --lines --dry-run -- echo </dev/null
    ringfence run cancel "$store" 1
    expect 7 ringfence work "$store" 1 --dry-run -- echo
}

case_reading_is_held_back_when_enough_waits() {
    ringfence init --volatile "$store"
    # A read is 64 KiB at most: eight of these lines.
    awk 'BEGIN { while (n++ < 60) printf "%08000d\n", n }' >"$work/lines"
    ringfence work "$store" 1 --lines --ahead 4 --workers 1 --quiet -- sh -c 'until [ -e '"$work/go"' ]; do sleep 0.02; done; : "$@"' x <"$work/lines" &
    local farm=$!
    begun() { [ "$(run_field shards)" -ge 4 ]; }
    eventually begun
    sleep 0.2
    [ "$(run_field shards)" -le 20 ] || fail "$(run_field shards) shards are there"
    touch "$work/go"
    wait "$farm"
    same "$(run_field done)" 60
}

# --- the rest ---

case_joblog_is_as_gnu_parallel_writes_it() {
    begin
    expect 1 ringfence work "$store" 1 --workers 2 --retries 0 --joblog "$work/log" --quiet -- sh -c 'echo hello; [ $RINGFENCE_SHARD != 4 ] || exit 9; [ $RINGFENCE_SHARD != 5 ] || kill -15 $$'
    same "$(head -n 1 "$work/log")" $'Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand'
    same "$(wc -l <"$work/log")" 17
    same "$(awk -F'\t' '$1 == 4 { print $6, $7, $8 }' "$work/log")" "6 9 0"
    same "$(awk -F'\t' '$1 == 5 { print $7, $8 }' "$work/log")" "0 15"
    awk -F'\t' 'NR > 1 && (NF != 9 || $3 < 1e9 || $4 < 0) { exit 1 }' "$work/log" || fail "$(cat "$work/log")"
}

case_a_joblog_that_is_cut_short_is_no_success() {
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip "needs root, for a disk that is full"
    begin
    mkdir "$work/full"
    cat >"$work/inside" <<'END'
mount -t tmpfs -o size=4k none "$1/full"
head -c 4000 /dev/zero >"$1/full/joblog"
ringfence work "$2" 1 --workers 2 --joblog "$1/full/joblog" -- sh -c ': a command of some length, so that not all lines fit'
END
    expect 1 unshare -m bash "$work/inside" "$work" "$store"
    same "$(grep -c "joblog can't be written: No space left on device; the work goes on" <<<"$err")" 1
    has "$err" "16 of 16 shards done"
    ringfence run create "$store" 2 --hex-prefixes 1
    expect 9 ringfence work "$store" 2 --joblog "$work/none/joblog" -- true
    same "$(run_field done 2)" 0
}

case_joblog_names_what_was_run_on_one_line() {
    ringfence init --volatile "$store"
    local script=$'true\n\t# \x01'
    expect 0 ringfence work "$store" 1 --lines --workers 1 --joblog "$work/log" --quiet --reveal -- sh -c "$script" {} {#} < <(printf 'sesame\n')
    same "$(wc -l <"$work/log")" 2
    same "$(tail -n 1 "$work/log" | cut -f 9-)" 'sh -c true\n\t# \x01 sesame 1'
    # Items are for whoever says --reveal.
    expect 0 ringfence work "$store" 2 --lines --workers 1 --joblog "$work/log" --quiet -- true < <(printf 'sesame\n')
    same "$(tail -n 1 "$work/log" | cut -f 9-)" 'true (item)'
    expect 0 ringfence work --help
    has "$out" "Seq is the shard" "only with --reveal"
}

case_a_dry_run_runs_nothing() {
    begin
    expect 0 ringfence work "$store" 1 --dry-run -- touch "$work/touched"
    same "$(wc -l <<<"$out")" 16
    has "$err" "16 shards" "nothing was run"
    [ ! -e "$work/touched" ]
    same "$(run_field done)" 0
    expect 0 ringfence work "$store" 1 --dry-run -- sh -c 'echo "$0"' {#}
    has "$out" "RINGFENCE_SHARD=16 sh -c 'echo \"\$0\"' 16"
    expect 0 ringfence work "$store" 2 --dry-run --lines --reveal -- touch "$work/touched" < <(printf 'a\nb c\n')
    same "$out" "$(printf "touch %s a\ntouch %s 'b c'" "$work/touched" "$work/touched")"
    expect 0 ringfence work "$store" 2 --dry-run --lines -- touch < <(printf 'sesame\n')
    lacks "$out" sesame
    expect 0 ringfence work --help
    has "$(grep -- --dry-run <<<"$out")" "--reveal"
    expect 2 ringfence work "$store" 1 --workers 0 -- true
    expect 2 ringfence work "$store" 1 --lines --dry-run --lines-per-shard 2305843009213693952 -- true </dev/null
    has "$err" "--lines-per-shard is at most 16385"
    expect 2 ringfence work "$store" 1 --pipe -- true
    expect 2 ringfence work "$store" 1 --json -- true
    has "$err" "--json belongs to --dry-run"
    expect 0 ringfence work "$store" 1 --dry-run --json -- echo 'a "word"' {#}
    same "$(wc -l <<<"$out")" 16
    has "$out" '{"shard":"1","start_len":1,"end_len":1,"cursor_key_len":null,"words":["echo","a \"word\"","1"]}'
    expect 0 ringfence work "$store" 2 --dry-run --json --lines --reveal -- echo < <(printf 'a b\nc\n')
    same "$out" '{"shard":"1","words":["echo","a b"]}'$'\n''{"shard":"2","words":["echo","c"]}'
}

main "$@"
