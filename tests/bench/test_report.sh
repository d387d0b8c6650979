#!/usr/bin/env bash
# What bench/report says of targets: what was skipped, or got nothing done, is not met.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
if ! command -v python3 >/dev/null; then
    echo "there is no python3"
    echo "1 Tests 0 Failures 1 Ignored"
    exit 77
fi
tests=0 failures=0
# check NAME WANTED TEXT: a line of the text is WANTED
check() {
    tests=$((tests + 1))
    if grep -qxF -- "$2" <<<"$3"; then
        echo "$1:PASS"
    else
        failures=$((failures + 1))
        printf '%s:FAIL: no line is "%s" in\n%s\n' "$1" "$2" "$3"
    fi
}
row() { printf '{"bench":"peers","name":"%s","ops/s":%s%s}\n' "$1" "$2" "$3"; }
skipped() { printf '{"bench":"peers","name":"%s","peer":"it","skipped":"there is no server"}\n' "$1"; }

good=$(row "ours over theirs" 10 ',"ratio":2.0,"ratio_to":"theirs","goal":">=1.00","met":true')
bad=$(row "ours over others" 10 ',"ratio":0.5,"ratio_to":"others","goal":">=1.00","met":false')
plain=$(row "theirs" 5 '')
said=$(printf '%s\n' "$plain" "$good" "$bad" "$(skipped "a peer")" | "$root/bench/report" --targets)
check a_skipped_peer_is_neither_met_nor_missed "1 met, 1 not met, 1 skipped, which count as neither" "$said"
said=$(printf '%s\n' "$plain" "$good" | "$root/bench/report" --targets)
check nothing_skipped_is_not_spoken_of "1 met, 0 not met" "$said"
tests=$((tests + 1))
if printf '%s\n' "$(skipped "a peer")" | "$root/bench/report" --targets >/dev/null; then
    failures=$((failures + 1))
    echo "nothing_measured_is_an_error:FAIL"
else
    echo "nothing_measured_is_an_error:PASS"
fi

# The document is looked at, and not the plots.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
printf '#!/bin/sh\ncat >/dev/null\n' >"$work/bin/gnuplot"
chmod +x "$work/bin/gnuplot"
PATH=$work/bin:$PATH
machine='{"bench":"machine","name":"now","command":"it","commit":"none"}'
printf '%s\n' "$machine" "$plain" "$good" "$bad" "$(skipped "a peer")" >"$work/rows"
"$root/bench/report" "$work/rows" "$work" || failures=$((failures + 1))
check the_document_counts_them_the_same_way \
    '1 of 2 are met; 1 could not be measured and count as neither. `make bench-quick` prints them in about two minutes.' \
    "$(cat "$work/benchmarks.md")"
check the_document_names_what_was_skipped "| peers | a peer |  |  |  | skipped: there is no server |" \
    "$(cat "$work/benchmarks.md")"
echo "$tests Tests $failures Failures 0 Ignored"
[ "$failures" = 0 ]
