#!/usr/bin/env bash
# Runs, shards, leases, hashes, monitor: every command against a real store.
. "$(dirname "$0")/harness.sh"

begin() {
    ringfence init --volatile "$store" >/dev/null
    ringfence run create "$store" 1 --hex-prefixes 1 "$@" >/dev/null
}

# --- runs ---

case_keys_are_cut_into_balanced_ranges() {
    ringfence init --volatile "$store"
    for ((i = 0; i < 100; i++)); do printf 'k%02d\n' $((99 - i)); done >"$work/keys"
    expect 0 ringfence run create "$store" 1 --keys "$work/keys" --shards 10
    expect 0 ringfence shard list "$store" 1 --json --reveal
    same "$(wc -l <<<"$out")" 10
    same "$(field start "$(sed -n 1p <<<"$out")")" k00
    same "$(field end "$(sed -n 1p <<<"$out")")" k10
    same "$(field start "$(sed -n 10p <<<"$out")")" k90
    same "$(field end "$(sed -n 10p <<<"$out")")" k99%00
    # More shards than keys, double keys, keys of any bytes.
    printf 'b\0a\nc\0b\0\xff%%\0' >"$work/keys"
    expect 0 ringfence run create "$store" 2 --keys "$work/keys" --null --shards 50
    expect 0 ringfence shard list "$store" 2 --json --reveal
    same "$(wc -l <<<"$out")" 3
    same "$(field start "$(sed -n 1p <<<"$out")")" a%0Ac
    same "$(field start "$(sed -n 3p <<<"$out")")" %FF%25
    expect 13 ringfence run create "$store" 3 --keys /dev/null
    expect 9 ringfence run create "$store" 3 --keys "$work/none"
    printf '%05000d\n' 1 >"$work/keys"
    expect 13 ringfence run create "$store" 3 --keys "$work/keys"
    has "$err" "5000" "4096"
    expect 0 ringfence run list "$store"
    same "$(wc -l <<<"$out")" 3
}

case_ranges_come_from_a_file() {
    ringfence init --volatile "$store"
    printf '# a comment\na\tb\tnotes%%20here\nhex:62\tc\n\n' >"$work/ranges"
    expect 0 ringfence run create "$store" 1 --ranges "$work/ranges"
    expect 0 ringfence shard show "$store" 1 1 --reveal
    has "$out" "notes%20here"
    expect 0 ringfence shard show "$store" 1 2 --json --reveal
    same "$(field start "$out")" b
    printf 'd\te\n' | ringfence run add "$store" 1 --ranges - --first-id 3
    expect 13 ringfence run add "$store" 1 --ranges "$work/ranges" --first-id 10
    has "$err" "overlap"
    printf 'one field\n' >"$work/ranges"
    expect 13 ringfence run create "$store" 2 --ranges "$work/ranges"
    has "$err" "line 1"
    expect 13 ringfence run create "$store" 2 --ranges <(printf 'b\ta\n')
    has "$err" "does not start below its end" "position 0"
    expect 3 ringfence run show "$store" 2
}

case_creating_a_run_again_is_harmless_and_another_one_is_refused() {
    begin
    expect 0 ringfence run create "$store" 1 --hex-prefixes 1
    has "$out" "was there already"
    expect 13 ringfence run create "$store" 1 --hex-prefixes 2
    has "$err" "exists already"
    expect 13 ringfence run create "$store" 1 --hex-prefixes 1 --lease 5s
    has "$err" "another configuration"
    expect 2 ringfence run create "$store" one --hex-prefixes 1
    expect 2 ringfence run create "$store" 2
    has "$err" "--keys" "--ranges" "--hex-prefixes"
    expect 2 ringfence run create "$store" 2 --hex-prefixes 9
    expect 2 ringfence run create "$store" 2 --hex-prefixes 1 --semantics maybe
}

case_runs_are_shown_ended_and_purged() {
    begin --lease 5s --retries 3
    ringfence run create "$store" 2 --hex-prefixes 1
    expect 0 ringfence run list "$store"
    has "$out" "RUN" "active" "16"
    expect 0 ringfence run show "$store" 1
    has "$out" "still-active" "register-shards" "5s"
    expect 0 ringfence run show "$store" 1 --json
    same "$(field max_retries "$out")" 3
    same "$(field available "$out")" 16
    expect 13 ringfence run purge "$store" 1
    has "$err" "has not ended"
    expect 0 ringfence run complete "$store" 1 --op 5
    expect 0 ringfence run complete "$store" 1 --op 5
    expect 7 ringfence run complete "$store" 1 --op 6
    expect 7 ringfence claim "$store" 1
    expect 0 ringfence run fail "$store" 2
    expect 1 ringfence run watch "$store" 2
    has "$out" "failed"
    expect 0 ringfence run purge "$store" 1
    expect 3 ringfence run show "$store" 1
    ringfence run create "$store" 3 --hex-prefixes 1
    expect 0 ringfence run cancel "$store" 3
    expect 0 ringfence run list "$store" --json
    same "$(grep -c cancelled <<<"$out")" 1
}

case_watch_prints_a_line_for_every_change() {
    begin
    ringfence run watch "$store" 1 --json --interval 5ms >"$work/log" &
    local watcher=$!
    eventually test -s "$work/log"
    ringfence work "$store" 1 --workers 2 --quiet -- true
    wait "$watcher"
    same "$(field status "$(tail -n 1 "$work/log")")" done
    same "$(field done "$(tail -n 1 "$work/log")")" 16
    same "$(field done "$(head -n 1 "$work/log")")" 0
}

case_watch_can_give_up() {
    begin
    expect 4 ringfence run watch "$store" 1 --timeout 20ms --interval 5ms
    expect 4 ringfence run watch "$store" 1 --timeout 0
    # Neither does it sleep beyond that, nor is a time that is too long to be added to another a short one.
    expect 4 timeout 60 ringfence run watch "$store" 1 --timeout 20ms --interval 1h
    ringfence run watch "$store" 1 --timeout 18446744073709551615ns --interval 5ms >"$work/log" &
    eventually test -s "$work/log"
    ringfence run cancel "$store" 1
    local code=0
    wait $! || code=$?
    same "$code" 1
}

case_tenants_do_not_see_each_other() {
    begin
    expect 3 ringfence run show "$store" 1 --tenant other
    expect 3 env RINGFENCE_TENANT=other "$program" run show "$store" 1
    expect 0 ringfence run show "$store" 1 --tenant default
    ringfence run create "$store" 1 --hex-prefixes 2 --tenant other
    expect 0 ringfence run list "$store" --json
    same "$(wc -l <<<"$out")" 1
    expect 0 ringfence run list "$store" --json --all-tenants
    same "$(wc -l <<<"$out")" 2
    lacks "$out" other default
    same "$err" ""
    expect 0 ringfence run list "$store" --tenant nobody
    same "$out" ""
    has "$err" "--all-tenants"
    lease=$(ringfence claim "$store" 1 --tenant other)
    ringfence complete "$lease"
    expect 0 ringfence run list "$store" --json --tenant other
    same "$(field done "$out")" 1
}

# --- shards ---

case_shards_are_listed_by_state() {
    begin
    ringfence shard park "$store" 1 4
    ringfence claim "$store" 1 --shard 5 --worker 77
    expect 0 ringfence shard list "$store" 1 --only parked
    same "$(wc -l <<<"$out")" 2
    expect 0 ringfence shard list "$store" 1 --only available --json
    same "$(wc -l <<<"$out")" 14
    expect 0 ringfence shard list "$store" 1 --only active --json
    same "$(wc -l <<<"$out")" 15
    same "$(field worker "$(grep '"shard":"5"' <<<"$out")")" 77
    expect 0 ringfence shard list "$store" 1 --limit 3 --json
    same "$(wc -l <<<"$out")" 3
    expect 2 ringfence shard list "$store" 1 --only nonsense
    expect 3 ringfence shard list "$store" 9
    expect 3 ringfence shard show "$store" 1 99
    has "$err" "no such shard"
}

case_a_long_list_is_not_cut_where_nobody_looks() {
    ringfence init --volatile "$store"
    # Ids and keys grow behind the lines by which a table is aligned.
    awk 'BEGIN { for (i = 1; i <= 1200; i++) printf "k%05d\tk%05d\n", i, i + 1; printf "l-a-long-key-%040d\tm\n", 1 }' >"$work/ranges"
    ringfence run create "$store" 1 --ranges "$work/ranges" --first-id 1
    ringfence run add "$store" 1 --ranges <(printf 'n\to\n') --first-id 1234567890123
    expect 0 ringfence shard list "$store" 1 --reveal
    same "$(wc -l <<<"$out")" 1203
    lacks "$out" ">"
    has "$out" "$(printf 'l-a-long-key-%040d' 1)" 1234567890123
}

case_keys_are_shown_only_when_revealed() {
    ringfence init --volatile "$store"
    printf 'sesame-one\tsesame-two\tsesame-meta\n' >"$work/ranges"
    ringfence run create "$store" 1 --ranges "$work/ranges"
    lease=$(ringfence claim "$store" 1)
    ringfence checkpoint "$lease" --key sesame-one-key --token sesame-token
    local command
    for command in "shard list $store 1" "shard show $store 1 1" "run show $store 1" "status $store" \
        "metrics $store" "run list $store" "work $store 1 --dry-run -- cat"; do
        expect 0 ringfence $command
        lacks "$out$err" sesame
    done
    for command in "shard list $store 1" "shard show $store 1 1" "run show $store 1" "run list $store" "status $store"; do
        expect 0 ringfence $command --json
        lacks "$out$err" sesame
    done
    for command in "shard list $store 1" "shard show $store 1 1" "run show $store 1" "work $store 1 --dry-run"; do
        expect 0 ringfence ${command} --reveal $([[ $command != work* ]] || echo -- cat)
        has "$out" sesame-one
    done
    expect 13 ringfence checkpoint "$lease" --key sesame-aaa
    lacks "$out$err" sesame
    expect 13 ringfence checkpoint "$lease" --key zesame
    lacks "$out$err" zesame
}

case_a_shard_is_split_and_what_was_done_stays_done() {
    begin
    expect 0 ringfence shard split "$store" 1 5 --parts 4 --json
    expect 0 ringfence shard list "$store" 1 --json
    same "$(wc -l <<<"$out")" 20
    same "$(grep -c '"status":"split"' <<<"$out")" 1
    expect 7 ringfence shard split "$store" 1 5 --parts 2
    lease=$(ringfence claim "$store" 1 --shard 8)
    ringfence checkpoint "$lease" --key 7f
    expect 8 ringfence shard split "$store" 1 8 --parts 2
    has "$err" "leased" "ends in"
    ringfence release "$lease"
    expect 13 ringfence shard split "$store" 1 8 --at 75
    has "$err" "go back"
    expect 0 ringfence shard split "$store" 1 8 --at 7k --at 7g --json
    local first
    first=$(sed 's/.*"shards":\["\([^"]*\)".*/\1/' <<<"$out")
    expect 0 ringfence shard show "$store" 1 "$first" --reveal --json
    same "$(field cursor_key "$out")" 7f
    same "$(field end "$out")" 7g
    same "$(field parent "$out")" 8
    lease=$(ringfence claim "$store" 1 --shard 9)
    expect 0 ringfence shard split "$store" 1 9 --at 8m --residual --lease "$lease"
    expect 0 ringfence shard show "$store" 1 9 --reveal --json
    same "$(field end "$out")" 8m
    same "$(field leased "$out")" true
    expect 0 ringfence complete "$lease"
    expect 2 ringfence shard split "$store" 1 10
    expect 2 ringfence shard split "$store" 1 10 --at 9k --parts 3
    has "$err" "not with both"
    expect 2 ringfence shard split "$store" 1 10 --parts 2 --lease "$lease"
    has "$err" "another shard"
    ringfence init --volatile "$work/other"
    ringfence run create "$work/other" 1 --hex-prefixes 1
    expect 2 ringfence shard split "$work/other" 1 9 --parts 2 --lease "$lease"
    has "$err" "of another store, /"
    ringfence destroy --yes "$work/other"
    # In all, the run's range is still covered exactly.
    expect 0 ringfence shard list "$store" 1 --json --reveal
    grep -v '"status":"split"' <<<"$out" | sed 's/.*"start":"\([^"]*\)".*"end":"\([^"]*\)".*/\1 \2/' |
        awk 'NR > 1 && $1 != end { print "a hole before " $1; exit 1 } { end = $2 } END { exit end != "g" }' || fail "not covered"
}

case_shards_are_parked_and_unparked_in_bulk() {
    begin
    ringfence shard park "$store" 1 1 --reason poisoned
    ringfence shard park "$store" 1 2 --reason poisoned
    ringfence shard park "$store" 1 3 --reason not-found
    expect 7 ringfence shard park "$store" 1 3
    expect 2 ringfence shard park "$store" 1 4 --reason whatever
    expect 0 ringfence shard unpark "$store" 1 --all --reason poisoned --json
    same "$(field unparked "$out")" 2
    expect 0 ringfence shard list "$store" 1 --only parked --json
    same "$(field reason "$out")" not-found
    expect 13 ringfence shard unpark "$store" 1 1
    has "$err" "not parked"
    expect 2 ringfence shard unpark "$store" 1 3 --reason not-found
    has "$err" "--reason belongs to --all"
    expect 0 ringfence shard unpark "$store" 1 3
    expect 2 ringfence shard unpark "$store" 1
    expect 2 ringfence shard unpark "$store" 1 3 --all
    expect 0 ringfence shard show "$store" 1 3
    has "$out" "unpark" "park"
}

case_show_prints_the_ring_of_16() {
    begin
    lease=$(ringfence claim "$store" 1 --shard 1)
    for ((i = 10; i < 30; i++)); do ringfence checkpoint "$lease" --key "0$i" --op $i; done
    expect 0 ringfence shard show "$store" 1 1
    same "$(grep -c ' checkpoint ' <<<"$out")" 16
    has "$out" 0x000000000000001d 0x000000000000000e
    lacks "$out" 0x000000000000000d
    expect 0 ringfence shard show "$store" 1 1 --json
    same "$(grep -o '"kind":"checkpoint"' <<<"$out" | wc -l)" 16
}

# --- leases ---

case_a_lease_is_one_word_that_carries_everything() {
    begin
    lease=$(cd "$work" && ringfence claim ./store 1)
    [[ $lease =~ ^rf1-[0-9a-f]+@/[^\ ]+$ ]] || fail "not one word: $lease"
    expect 0 ringfence checkpoint "$lease" --key "$(ringfence shard list "$store" 1 --json --reveal | sed -n 's/.*"start":"\([^"]*\)".*"worker":"[0-9].*/\1/p')"
    expect 0 ringfence renew "$lease"
    expect 0 ringfence complete "$out"
    expect 7 ringfence complete "$lease"
    expect 2 ringfence complete "${lease/rf1-/rf1-0}"
    has "$err" "not a lease"
    expect 2 ringfence complete
    has "$err" "RINGFENCE_LEASE"
    expect 2 ringfence checkpoint "$lease"
    expect 0 ringfence claim "$store" 1 --json
    has "$out" '"lease":"rf1-' '"fence":2' '"start_len":1'
}

case_options_of_keys_are_refused_without_keys() {
    ringfence init --volatile "$store"
    local words
    for words in "create $store 1 --hex-prefixes 1 --shards 5" "create $store 1 --ranges - -0" "add $store 1 --hex-prefixes 1 -n 5"; do
        expect 2 ringfence run $words </dev/null
        has "$err" "--shards and --null belong to --keys"
    done
    expect 3 ringfence run show "$store" 1
}

case_a_run_that_has_not_ended_is_not_purged() {
    begin
    expect 13 ringfence run purge "$store" 1
    has "$err" "run 1 has not ended; end it first" "run complete" "fail or cancel"
    expect 0 ringfence run cancel "$store" 1
    expect 0 ringfence run purge "$store" 1
}

case_a_cut_outside_the_range_is_named_without_its_bytes() {
    ringfence init --volatile "$store"
    printf 'sesame\tsunflower\n' >"$work/ranges"
    ringfence run create "$store" 1 --ranges "$work/ranges"
    local more
    for more in "" --residual; do
        expect 13 ringfence shard split "$store" 1 1 --at sunflower $more
        has "$err" "--at is not inside the shard's range: it is not below its end"
        lacks "$err" sunflower
        expect 13 ringfence shard split "$store" 1 1 --at sesame $more
        has "$err" "it is not above its start"
        lacks "$err" sesame
    done
    expect 2 ringfence shard split "$store" 1 1 --at st --at st
    has "$err" "given twice"
    expect 0 ringfence shard split "$store" 1 1 --at st
}

case_times_and_sizes_are_what_they_say() {
    local at=0 text
    ringfence init "$store" --segment-bytes 64K
    for text in 1ns=1 7us=7000 500ms=500000000 1.5s=1500000000 30s=30000000000 5m=300000000000 2min=120000000000 1h=3600000000000 2d=172800000000000; do
        at=$((at + 1))
        ringfence run create "$store" $at --hex-prefixes 1 --lease "${text%=*}"
        expect 0 ringfence run show "$store" $at --json
        same "$text" "${text%=*}=$(field lease_ns "$out")"
    done
    same "$(stat -c %s "$store"/log.* | sort -u)" 65536
    for text in 1M=1048576 0.5MiB=524288 131072=131072; do
        expect 0 ringfence init "$work/other" --segment-bytes "${text%=*}"
        same "$text" "${text%=*}=$(stat -c %s "$work"/other/log.* | head -n 1)"
        ringfence destroy --yes "$work/other"
    done
    for text in 5 5x s 1.s 1..5s -5s 1e3s; do
        expect 2 ringfence run create "$store" 99 --hex-prefixes 1 --lease "$text"
    done
}

case_impossible_numbers_are_named() {
    ringfence init --volatile "$store"
    expect 2 ringfence run create "$store" 1 --hex-prefixes 1 --lease 0
    has "$err" "--lease is more than 0"
    expect 2 ringfence work "$store" 1 --lines --lease 0 -- true </dev/null
    has "$err" "--lease is more than 0"
    expect 2 ringfence run create "$store" 1 --hex-prefixes 1 --lease 99999999999999s
    has "$err" "--lease is too large"
    expect 2 ringfence run show "$store" 18446744073709551616
    has "$err" "RUN is too large"
    expect 2 ringfence shard show "$store" 1 0x10000000000000000
    has "$err" "SHARD is too large"
    expect 2 ringfence claim "$store" one
    has "$err" "RUN is a number, and one is none"
}

case_the_environment_of_a_claim_can_be_evaluated() {
    ringfence init --volatile "$store"
    printf 'a%%20%%27quoted%%22%%0Akey\tb\tx%%24%%28y%%29\n' >"$work/ranges"
    ringfence run create "$store" 1 --ranges "$work/ranges"
    eval "$(ringfence claim --env "$store" 1)"
    # As the manual says, in bash:
    local start metadata
    start=$(printf '%b' "${RINGFENCE_START//%/\\x}")
    metadata=$(printf '%b' "${RINGFENCE_METADATA//%/\\x}")
    same "$start" $'a \'quoted"\nkey'
    same "$metadata" 'x$(y)'
    expect 0 ringfence checkpoint --key "$RINGFENCE_START" --token t
    expect 0 ringfence release
    eval "$(ringfence claim --env "$store" 1)"
    same "$RINGFENCE_CURSOR_KEY" "$RINGFENCE_START"
    same "$RINGFENCE_CURSOR_TOKEN" t
    same "$RINGFENCE_FENCE" 3
    expect 0 ringfence complete
    # Wherever the shell goes.
    ringfence run create "$store" 2 --hex-prefixes 1
    eval "$(cd "$work" && ringfence claim --env ./store 2)"
    same "$RINGFENCE_STORE" "$(realpath "$store")"
    expect 0 sh -c 'cd / && ringfence release && ringfence status "$RINGFENCE_STORE"'
}

case_exit_codes_tell_what_happened() {
    begin --lease 100ms
    local code
    expect 0 ringfence claim "$store" 1 --shard 1
    first=$out
    expired() { ringfence shard show "$store" 1 1 --json | grep -q '"leased":false'; }
    eventually expired
    expect 6 ringfence checkpoint "$first" --key 00
    has "$err" "expired" "ago"
    expect 0 ringfence claim "$store" 1 --shard 1
    expect 5 ringfence checkpoint "$first" --key 00
    has "$err" "no longer held"
    expect 5 ringfence park "$first" --reason other
    expect 0 ringfence run create "$store" 2 --ranges <(printf 'a\tb\n') --lease 60s
    lease=$(ringfence claim "$store" 2)
    expect 8 ringfence claim "$store" 2 --shard 1
    expect 4 ringfence claim "$store" 2
    has "$err" "the next lease ends in"
    expect 4 ringfence claim "$store" 2 --wait 10ms
    expect 3 ringfence claim "$store" 3
    expect 13 ringfence checkpoint "$lease" --key zzz
    expect 0 ringfence checkpoint "$lease" --key a1 --op 9
    expect 0 ringfence checkpoint "$lease" --key a1 --op 9
    expect 13 ringfence checkpoint "$lease" --key a2 --op 9
    has "$err" "--op"
    ringfence run cancel "$store" 2
    expect 7 ringfence renew "$lease"
    [[ $out == rf1-* ]] || fail "it was not renewed"
    expect 7 ringfence claim "$store" 2 --wait forever
    expect 2 ringfence claim "$store" 2 --wait sometime
}

case_claim_waits_until_a_shard_is_released() {
    ringfence init --volatile "$store"
    ringfence run create "$store" 1 --ranges <(printf 'a\tb\n')
    lease=$(ringfence claim "$store" 1)
    ringfence claim "$store" 1 --wait forever >"$work/second" &
    local waiter=$!
    waiting() { [ "$(field waiting "$(ringfence run show "$store" 1 --json)")" = 1 ]; }
    eventually waiting
    ringfence release "$lease" --key a5
    wait "$waiter"
    expect 0 ringfence complete "$(cat "$work/second")" --key a7
    expect 0 ringfence shard show "$store" 1 1 --json --reveal
    same "$(field cursor_key "$out")" a7
    same "$(field status "$out")" done
}

case_a_cooldown_is_told_and_waited_for() {
    ringfence init --volatile "$store" --claim-cooldown 1h
    ringfence run create "$store" 1 --hex-prefixes 1
    expect 0 ringfence claim "$store" 1 --worker 5
    expect 4 ringfence claim "$store" 1 --worker 5
    has "$err" "try again in 59m"
    expect 4 timeout 60 ringfence claim "$store" 1 --worker 5 --wait 10ms
    expect 0 ringfence claim "$store" 1 --worker 6
    ringfence destroy --yes "$store"
    ringfence init --volatile "$store" --claim-cooldown 200ms
    ringfence run create "$store" 1 --hex-prefixes 1
    local i
    for i in 1 2 3; do
        expect 0 timeout 60 ringfence claim "$store" 1 --worker 5 --wait 1h
        ringfence release "$out"
    done
    expect 0 ringfence work "$store" 1 --workers 8 --quiet -- true
}

case_a_lease_that_can_not_be_printed_is_given_back() {
    [ -e /dev/full ] || skip "there is no /dev/full"
    begin
    local form code
    for form in "" --json --env; do
        code=0
        ringfence claim "$store" 1 --shard 3 $form >/dev/full 2>"$work/stderr" || code=$?
        same "$code" 9
        has "$(cat "$work/stderr")" "the shard is given back"
    done
    # The one who was to read it may be gone.
    { until [ -e "$work/gone" ]; do sleep 0.02; done; code=0; ringfence claim "$store" 1 --shard 3 2>"$work/stderr" || code=$?; echo $code >"$work/code"; } | { exec <&-; touch "$work/gone"; }
    same "$(cat "$work/code")" 9
    expect 0 ringfence shard list "$store" 1 --only available --json
    same "$(wc -l <<<"$out")" 16
}

case_two_processes_never_hold_one_shard() {
    begin
    for ((i = 0; i < 8; i++)); do
        (while lease=$(ringfence claim "$store" 1 --worker $i 2>/dev/null); do
            echo "$lease" >>"$work/leases.$i"
            ringfence complete "$lease" || echo "LOST $lease" >>"$work/leases.$i"
        done) &
    done
    wait
    same "$(cat "$work"/leases.* | grep -c '^rf1')" 16
    same "$(cat "$work"/leases.* | grep -c LOST || true)" 0
    same "$(field done "$(ringfence run list "$store" --json)")" 16
}

# --- following ---

case_monitor_shows_events_and_no_keys() {
    begin
    ringfence monitor "$store" --json --count 6 >"$work/events" &
    local monitor=$!
    eventually monitors "$monitor"
    lease=$(ringfence claim "$store" 1 --shard 2 --worker 5)
    ringfence checkpoint "$lease" --key 1sesame
    ringfence complete "$lease"
    ringfence shard park "$store" 1 3 --reason poisoned
    ringfence run complete "$store" 1
    wait "$monitor"
    same "$(sed 's/.*"event":"\([a-z_]*\)".*/\1/' "$work/events" | paste -sd' ')" \
        "acquired checkpointed completed acquired parked run_completed"
    has "$(cat "$work/events")" '"worker":"5"' '"reason":"poisoned"' '"key_len":7'
    lacks "$(cat "$work/events")" sesame
    ringfence run create "$store" 2 --hex-prefixes 1
    expect 0 ringfence monitor "$store" --for 1ms
    expect 0 timeout 60 ringfence monitor "$store" --for 0
    ringfence monitor "$store" --for 18446744073709551615ns --count 1 >"$work/events" &
    monitor=$!
    eventually monitors "$monitor"
    ringfence claim "$store" 2
    wait "$monitor"
    has "$(cat "$work/events")" "acquired"
}

case_monitor_can_be_limited_to_a_run() {
    begin
    ringfence run create "$store" 2 --hex-prefixes 1
    ringfence monitor "$store" --run 2 --count 1 >"$work/events" &
    local monitor=$!
    eventually monitors "$monitor"
    ringfence claim "$store" 1
    ringfence claim "$store" 2
    wait "$monitor"
    has "$(cat "$work/events")" "acquired" "run 2"
}

case_monitor_says_what_it_lost() {
    begin
    ringfence monitor "$store" --json >"$work/events" &
    local monitor=$!
    watched() { ! flock -n -x "$store/lock" true; }
    eventually watched
    began() { ringfence shard park "$store" 1 5; ringfence shard unpark "$store" 1 5; [ -s "$work/events" ]; }
    eventually began
    kill -STOP "$monitor"
    ringfence work "$store" 1 --workers 1 --quiet --halt soon,success=1 -- sh -c 'seq -f "${RINGFENCE_START}%06g" 1 50000 >&3' || true
    kill -CONT "$monitor"
    lost() { grep -q '"event":"lost"' "$work/events"; }
    eventually lost
    [ "$(field count "$(grep '"event":"lost"' "$work/events")")" -ge 1 ] || fail "nothing was lost"
    kill "$monitor"
    wait "$monitor"
}

# --- hashes ---

case_hashes_are_the_published_ones() {
    expect 0 ringfence hash split-id --run 1 --parent 100 --op 999 --kind child --index 0
    same "$out" 0xada8c6fca3894936
    expect 0 ringfence hash split-id --run 1 --parent 100 --op 999 --kind child --index 1
    same "$out" 0xac88444c76bdfa28
    expect 0 ringfence hash split-id --run 0x1 --parent 0x64 --op 999 --kind residual --index 0
    same "$out" 0xfea10675fdf78c46
    expect 0 ringfence hash payload checkpoint --key golden-cursor-key
    same "$out" 0x0806b9d383fd8430
    expect 0 ringfence hash payload complete --key hex:676f6c64656e2d637572736f722d6b6579
    same "$out" 0x9a83e072185abf89
    expect 0 ringfence hash payload park --reason poisoned
    same "$out" 0xf0e5baaa11b56d8d
    expect 0 ringfence hash payload split-replace --child a,m --child m,z
    same "$out" 0xa592eea6db2fcb49
    expect 0 ringfence hash payload split-residual --parent a,m --residual m,z --json
    same "$(field hash "$out")" 0x4be2bdea63447e13
}

# Computed with another BLAKE3, from the canonical bytes of PROTOCOL section 1.
case_hashes_are_those_of_another_implementation() {
    local line
    while read -r line; do
        expect 0 ringfence hash payload ${line#* }
        same "$line" "$out ${line#* }"
    done <<'END'
0x4ead9fc79f3100a2 register --shard 2,m,z,,n,t --shard 1,a,m,meta
0xbe14cf4d39add296 add --shard 1,a,m,meta --shard 2,m,z,,n,t
0x02d230485886739f unpark --run 1 --shard-id 0x8000000000000005
0x4504ddc401c529bc complete-run
0x3b55b6096e5f285d fail-run
0x1e938cd0f181e424 cancel-run
0x31c044bd60afee70 release --key golden-cursor-key --token t
0x5c7e7d1f10390c75 checkpoint --key a --token hex:00ff
END
}

case_hashes_of_the_others_differ_and_do_not_depend_on_order() {
    local seen="" hash words
    for words in complete-run fail-run cancel-run "unpark --run 1 --shard-id 2" "unpark --run 2 --shard-id 1" release \
        "release --key a" "checkpoint --key a" "checkpoint --key a --token t" "register --shard 1,a,b --shard 2,b,c" \
        "add --shard 1,a,b --shard 2,b,c" "register --shard 1,a,b,meta" "register --shard 1,a,b,,a,t"; do
        expect 0 ringfence hash payload $words
        [[ $out =~ ^0x[0-9a-f]{16}$ ]] || fail "not a hash: $out"
        lacks "$seen" "$out"
        seen+=" $out"
    done
    hash=$(ringfence hash payload register --shard 1,a,b --shard 2,b,c)
    same "$(ringfence hash payload register --shard 2,b,c --shard 1,a,b)" "$hash"
    expect 2 ringfence hash payload nonsense
    expect 2 ringfence hash payload split-replace --child a
    expect 2 ringfence hash payload checkpoint --key 50%
    expect 2 ringfence hash split-id --run 1
    has "$err" "--parent is needed"
    expect 2 ringfence hash split-id --run x --parent 1 --op 1 --kind child --index 0
}

case_a_hash_of_something_else_than_was_meant_is_refused() {
    local words
    for words in unpark "unpark --run 1" "unpark --run 1 --shard 2" park split-replace "split-residual --parent a,m" register add \
        "checkpoint --key a --reason other" "complete-run --run 1" "split-replace --child a,m --child m,z --key a"; do
        expect 2 ringfence hash payload $words
        same "$out" ""
    done
    expect 2 ringfence hash payload unpark --run 1
    has "$err" "unpark needs --shard-id"
    expect 2 ringfence hash payload checkpoint --key a --reason other
    has "$err" "checkpoint has no --reason"
}

main "$@"
