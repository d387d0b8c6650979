# Sourced by tests/cli/test_*.sh. A case is a function case_<claim>; each runs in a shell of its own, with
# set -e, a directory of its own ($work) and a store name ($store) that is destroyed afterwards. Processes
# that a case leaves behind are ended. Ends with a line like Unity's.
#
#   test_x.sh PROGRAM [CASE]
set -uo pipefail
program=${1:?usage: $0 PROGRAM [CASE]}
[ -x "$program" ] || { echo "$0: there is no program $program" >&2; exit 2; }
program=$(realpath "$program")
PATH=$(dirname "$program"):$PATH
export PATH LC_ALL=C NO_COLOR=1 TZ=UTC
unset RINGFENCE_TENANT RINGFENCE_LEASE RINGFENCE_BOARD
skipped_code=77

say() { printf '%s\n' "$*"; }

# fail WHY...: ends the case.
fail() {
    printf 'FAILED: %s\n' "$*"
    [ -z "${err:-}" ] || printf -- '-- stderr:\n%s\n' "$err"
    [ -z "${out:-}" ] || printf -- '-- stdout:\n%s\n' "$out" | head -n 60
    exit 1
}

skip() {
    printf 'SKIPPED: %s\n' "$*"
    exit $skipped_code
}

# expect CODE COMMAND...: runs it; its stdout is in $out, its stderr in $err.
expect() {
    local wanted=$1 code=0
    shift
    out=$("$@" 2>"$work/stderr") || code=$?
    err=$(cat "$work/stderr")
    [ "$code" = "$wanted" ] || fail "exit code $code, not $wanted, of: $*"
}

# has TEXT PART...: every part is in the text.
has() {
    local text=$1 part
    shift
    for part in "$@"; do
        [[ $text == *"$part"* ]] || fail "this is missing: $part"$'\n'"in: $text"
    done
}

lacks() {
    local text=$1 part
    shift
    for part in "$@"; do
        [[ $text != *"$part"* ]] || fail "this should not be there: $part"$'\n'"in: $text"
    done
}

same() { [ "$1" = "$2" ] || fail "this: $1"$'\n'"is not: $2"; }

# eventually COMMAND...: until it succeeds. The bound only ends a hang.
eventually() {
    local tries_of_eventually # what is called sees our variables: this name is nobody else's
    for ((tries_of_eventually = 0; tries_of_eventually < 1200; tries_of_eventually++)); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.05
    done
    fail "this never happened: $*"
}

# Whether a process has ended. Who is to bury it may take its time.
is_gone() { [ ! -e "/proc/$1/stat" ] || grep -q ') Z ' "/proc/$1/stat" 2>/dev/null || [ ! -e "/proc/$1/stat" ]; }

# Whether `ringfence monitor` with this pid has begun: from there on it handles signals.
monitors() { (((0x$(awk '/^SigCgt/ { print $2 }' "/proc/$1/status") & 2) != 0)); }

# field NAME JSON: the first value of that name.
field() { grep -o "\"$1\":[^,}]*" <<<"$2" | head -n 1 | sed 's/^[^:]*://; s/"//g'; }

run_case() {
    set -e
    work=$(mktemp -d)
    store=$work/store
    leave() {
        local code=$? job
        set +e
        for job in $(jobs -p); do kill -9 "$job" 2>/dev/null; done
        wait 2>/dev/null
        if [ -n "${tmux_socket:-}" ]; then tmux -S "$tmux_socket" kill-server 2>/dev/null; fi
        if [ -e "$store/lock" ]; then
            for ((i = 0; i < 100; i++)); do
                ringfence destroy --yes "$store" >/dev/null 2>&1 && break
                sleep 0.1
            done
        fi
        rm -rf "$work"
        exit "$code"
    }
    trap leave EXIT
    "case_$1"
}

# Cases wait more than they compute, so some run at once; their results come in order.
run_cases() {
    local name=${0##*/} cases=() failures=0 ignored=0 logs log code i
    name=${name%.sh}
    mapfile -t cases < <(declare -F | awk '$3 ~ /^case_/ { print substr($3, 6) }')
    logs=$(mktemp -d)
    for i in "${!cases[@]}"; do
        while [ "$(jobs -pr | wc -l)" -ge $((2 * $(nproc))) ]; do wait -n; done
        { bash "$0" "$program" "${cases[i]}" >"$logs/$i" 2>&1; echo $? >"$logs/$i.code"; } &
    done
    wait
    for i in "${!cases[@]}"; do
        log=$(tr -d '\0' <"$logs/$i")
        code=$(cat "$logs/$i.code")
        if [ "$code" = 0 ]; then
            say "$name:${cases[i]}:PASS"
            grep '^INFO' <<<"$log"
        elif [ "$code" = $skipped_code ]; then
            ignored=$((ignored + 1))
            say "$name:${cases[i]}:IGNORE: ${log##*SKIPPED: }"
        else
            failures=$((failures + 1))
            say "$name:${cases[i]}:FAIL"
            printf '%s\n' "$log" | tail -n 60
        fi
    done
    rm -r "$logs"
    say
    say "${#cases[@]} Tests $failures Failures $ignored Ignored"
    [ "$failures" = 0 ]
}

# The last line of every test script.
main() {
    if [ $# -ge 2 ]; then
        run_case "$2"
    else
        run_cases
    fi
}
