#!/usr/bin/env bash
# What bench/all keeps of a run: a program that ends badly costs the others nothing, and what was cut short is finished
# by a later run, which does nothing twice.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export RF_BENCH_DIR=$work
results=$work/results
tests=0 failures=0
# check NAME WANTED GOT
check() {
    tests=$((tests + 1))
    if [ "$2" = "$3" ]; then
        echo "$1:PASS"
    else
        failures=$((failures + 1))
        printf '%s:FAIL: wanted\n%s\ngot\n%s\n' "$1" "$2" "$3"
    fi
}

# Programs that say their name, and end as their file says.
mkdir -p "$work/build/bench"
echo "CMAKE_C_COMPILER:FILEPATH=$(command -v cc || command -v gcc || command -v clang)" >"$work/build/CMakeCache.txt"
for name in first second third; do
    cat >"$work/build/bench/rf-bench-$name" <<EOF
#!/usr/bin/env bash
echo '{"bench":"$name","name":"row of '"\$*"'","ns":1.0}'
exit \$(cat '$work/$name' 2>/dev/null || echo 0)
EOF
    chmod +x "$work/build/bench/rf-bench-$name"
done
all() { "$root/bench/all" "$work/build" --results="$results" "$@" 2>"$work/said"; echo $?; }
rows() { sed -n 's/^{"bench":"\([a-z]*\)","name":"row of \([^"]*\)".*/\1 \2/p' "$results"; }
ends() { sed -n 's/^{"bench":"ended","name":"\([a-z:]*\)".*"status":\([0-9]*\),"seconds":[0-9]*}$/\1 \2/p' "$results"; }

echo 7 >"$work/second"
check the_status_says_that_one_ended_badly 1 "$(all first second:some third)"
check the_others_are_run_and_kept $'first --json\nsecond --json --only=some\nthird --json' "$(rows)"
check each_row_says_how_a_program_ended $'first 0\nsecond:some 7\nthird 0' "$(ends)"

echo 0 >"$work/second"
printf '{"bench":"third","name":"row of a run that was cut o' >>"$results"
check what_is_left_is_finished 0 "$(all --resume first second:some third)"
check only_what_is_missing_is_run_again \
    $'first --json\nsecond --json --only=some\nthird --json\nsecond --json --only=some' "$(rows)"
check with_other_options_it_is_another_run 0 "$(all --resume --quick first)"
check that_is_not_there_yet "first --json --quick" "$(rows | tail -n 1)"

if command -v python3 >/dev/null; then
    # The document is looked at, and not the plots.
    mkdir "$work/docs" "$work/bin"
    printf '#!/bin/sh\ncat >/dev/null\n' >"$work/bin/gnuplot"
    chmod +x "$work/bin/gnuplot"
    PATH=$work/bin:$PATH
    "$root/bench/report" "$results" "$work/docs" 2>"$work/said" || failures=$((failures + 1))
    check a_row_that_was_cut_off_costs_no_report 1 "$(grep -c 'a row that was cut off is left out' "$work/said")"
    check what_was_made_good_is_not_spoken_of 0 "$(grep -c 'ended badly\|interrupted' "$work/docs/benchmarks.md")"
    grep -v '"bench":"ended","name":"third"' "$results" >"$work/less"
    "$root/bench/report" "$work/less" "$work/docs" 2>/dev/null || failures=$((failures + 1))
    check what_was_interrupted_is_named 1 "$(grep -c 'third.*\*\*interrupted\*\*' "$work/docs/benchmarks.md")"
    ignored=0
else
    echo "there is no python3: the document was not made"
    tests=$((tests + 3)) ignored=3
fi
echo "$tests Tests $failures Failures $ignored Ignored"
[ "$failures" = 0 ]
