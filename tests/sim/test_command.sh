#!/usr/bin/env bash
# ringfence-sim as a command: what it prints, its report, its stream, and that what it says of a failure repeats it.
. "$(dirname "$0")/../cli/harness.sh"

sim() { "$program" "$@"; }

case_a_line_for_each_seed_and_a_report() {
    expect 0 sim --seed 5 --level stormy --workers 4 --shards 15 --ops 600 --liveness 2000 --runs 4 --jobs 2 \
        --json "$work/report"
    same "$(grep -c '^seed [5-8] stormy: ok, ' <<<"$out")" 4
    same "$(tail -n 1 <<<"$out" | cut -d, -f1)" "4 seeds (stormy)"
    command -v jq >/dev/null || skip "there is no jq"
    report=$(jq -c '[.seeds, .failed, .differences, .level, .workers, .shards, (.runs | length)]' "$work/report")
    same "$report" '[4,0,0,"stormy",4,15,4]'
    # Of each run: what the protocol asks for.
    same "$(jq '[.runs[] | select(.seed >= 5 and .operations > 600 and .end_time > 1000 and (.violations | length) == 0
        and (.events.acquired > 0) and (.rejections.STALE_FENCE > 0) and (.stream | length) == 16
        and .overload.available == .overload.full_scan
        and ([.overload.before, .overload.during, .overload.after] | all(has("per_1000_steps"))))] | length' \
        "$work/report")" 4
    same "$(jq -r '[.runs[].overload.kind] | sort | join(" ")' "$work/report")" \
        "burst-claim burst-shards capacity-drop none"
    again=$(jq -r '.runs[2].again' "$work/report")
    same "$($again | head -n 1 | cut -d' ' -f1-3)" "seed $(jq .runs[2].seed "$work/report") stormy:"
    same "$($again | grep -o 'stream .*' | head -n 1)" "stream $(jq -r .runs[2].stream "$work/report")"
}

case_the_same_seed_gives_the_same_bytes() {
    for one in 1 2; do
        expect 0 sim --seed 9 --level radioactive --ops 800 --events "$work/$one"
    done
    cmp "$work/1" "$work/2" || fail "two streams of one seed"
    size=$(stat -c %s "$work/1")
    [ "$size" -gt 40000 ] && [ $((size % 40)) = 0 ] || fail "$size bytes"
    expect 0 sim --seed 10 --level radioactive --ops 800 --events "$work/2"
    ! cmp -s "$work/1" "$work/2" || fail "two seeds, one stream"
}

case_a_failure_is_repeated_and_made_shorter() {
    expect 1 sim --seed 5 --level stormy --ops 900 --liveness 0 --false-rule
    failed=$(grep '^FAILED seed' <<<"$out")
    has "$failed" "FAILED seed 5 at step " ": S9: "
    again=$(sed -n 's/^  again: //p' <<<"$out")
    shorter=$(sed -n 's/^  shorter: //p' <<<"$out")
    expect 1 $again --no-shrink
    same "$(grep '^FAILED seed' <<<"$out")" "$failed"
    expect 1 $shorter --no-shrink
    has "$(grep '^FAILED seed' <<<"$out")" ": S9: "
    steps=$(sed -n 's/^FAILED .* of \([0-9]*\): S9: .*/\1/p' <<<"$out")
    [ "$steps" -le 4 ] || fail "two claims are enough, not $steps steps"
    # It is the broken rule that fails, and not that steps are missing.
    expect 0 ${shorter/ --false-rule/}
}

case_steps_that_are_not_there_are_refused() {
    for list in "" x 3,2 1- 99999; do
        expect 2 sim --ops 100 --steps "$list"
        has "$err" "--steps"
    done
    expect 2 sim --ops 100 --steps 1 --runs 2
    expect 2 sim --level cloudy
    expect 2 sim --workers 0
}

case_progress_is_told_to_a_terminal() {
    command -v script >/dev/null || skip "there is no script"
    # Many seeds: it is said twice a second.
    screen=$(script -qec "'$program' --runs 60 --ops 4000 --quiet" /dev/null </dev/null)
    grep -q ' of 60 seeds, 0 failed, ' <<<"$screen" || fail "no progress: $screen"
}

main "$@"
