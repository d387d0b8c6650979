#!/usr/bin/env bash
# The hot paths take no more instructions than were counted when somebody last looked at them: whatever the
# machine is doing meanwhile, a slow-down shows. A case is an operation.
#
#   test_instructions.sh RF-BENCH-COUNT
set -uo pipefail
program=$(realpath "${1:?usage: $0 RF-BENCH-COUNT}")
root=$(cd "$(dirname "$0")/../.." && pwd)

out=$("$root/bench/instructions" --compare --program "$program" 2>&1)
code=$?
printf '%s\n' "$out"
if [ "$code" = 77 ]; then
    echo "1 Tests 0 Failures 1 Ignored"
    exit 77
fi
cases=$(grep -cE '(ok|less|MORE)$' <<<"$out")
failures=$(grep -c 'MORE$' <<<"$out")
if [ "$code" != 0 ] && [ "$failures" = 0 ] || [ "$cases" = 0 ]; then
    cases=$((cases + 1)) failures=$((failures + 1))
fi
if [ "$failures" != 0 ]; then
    echo "If it is worth it: make bench-counts keeps the new counts, and bench/instructions --top 20 says where they are."
fi
echo "$cases Tests $failures Failures 0 Ignored"
[ "$failures" = 0 ]
