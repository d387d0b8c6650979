#!/usr/bin/env bash
# Help on every level, man pages, completions, and what every command does with a wrong command line.
. "$(dirname "$0")/harness.sh"

# Every command, as "group name" or "name": from the help itself.
commands() {
    ringfence help | sed -n '/^commands:/,/^$/p' | awk '/^  / { print $1, $2 }' | while read -r name rest; do
        if [ "$rest" = ... ]; then
            ringfence "$name" --help | sed -n '/^commands:/,/^$/p' | awk -v g="$name" '/^  / { print g, $1 }'
        else
            echo "$name"
        fi
    done
}

case_every_level_has_help_with_an_example() {
    expect 0 ringfence --help
    has "$out" "usage: ringfence COMMAND" "example:" "exit codes:" "NO_COLOR" "hex:"
    local group command count=0
    for group in run shard log hash; do
        expect 0 ringfence "$group" --help
        has "$out" "usage: ringfence $group COMMAND" "example:"
        expect 2 ringfence "$group"
        expect 0 ringfence help "$group"
    done
    while read -r command; do
        expect 0 ringfence $command --help
        has "$out" "usage: ringfence $command" "options:" "--help" "examples:" "ringfence $command"
        local help=$out
        expect 0 ringfence help $command
        same "$out" "$help"
        lacks "$help" " farm " # a plain name would be a store in memory
        count=$((count + 1))
    done < <(commands)
    [ "$count" -ge 38 ] || fail "only $count commands"
    echo "INFO $count commands"
}

case_help_promises_nothing_of_a_watermark_that_is_not_so() {
    expect 0 ringfence run show --help
    lacks "$(paste -sd' ' <<<"$out")" "everything below it is done"
    has "$(paste -sd' ' <<<"$out")" "parked shards"
}

case_wrong_command_lines_are_told_apart() {
    expect 2 ringfence
    expect 2 ringfence nonsense
    has "$err" "there is no command called nonsense"
    expect 2 ringfence run nonsense
    has "$err" "there is no command called run nonsense"
    expect 2 ringfence help nonsense
    local command
    while read -r command; do
        expect 2 ringfence $command --no-such-option
        has "$err" "--no-such-option"
        case $command in
        cleanup | renew | checkpoint | complete | park | release | "hash split-id") continue ;;
        esac
        expect 2 ringfence $command
        has "$err" "usage: ringfence $command"
    done < <(commands)
    expect 0 ringfence --version
    has "$out" "ringfence "
    expect 0 ringfence version
}

case_a_store_that_is_not_there_is_exit_code_3() {
    local command
    for command in status "run list" procs monitor metrics snapshot verify recover "log dump" "log verify" repair "destroy --yes"; do
        expect 3 ringfence $command "$work/none"
        same "$out" ""
        same "$(wc -l <<<"$err")" 1
    done
    for command in "run show" "run watch" "run complete" "run purge" "shard list" claim; do
        expect 3 ringfence $command "$work/none" 1
    done
    # Who leaves out the ./ is told.
    ringfence init --volatile "$store" >/dev/null
    cd "$work"
    for command in status procs verify "log dump" snapshot "destroy --yes"; do
        expect 3 ringfence $command store
        has "$err" "there is no store store" "the store here is ./store"
    done
    expect 3 ringfence status nonesuch
    lacks "$err" "is ./"
}

case_output_that_can_not_be_written_is_an_error() {
    [ -e /dev/full ] || skip "there is no /dev/full"
    ringfence init --volatile "$store"
    local code=0
    ringfence status "$store" >/dev/full 2>"$work/e" || code=$?
    same "$code" 9
    has "$(cat "$work/e")" "writing the output failed"
}

case_every_object_is_json_with_the_names_that_are_documented() {
    command -v python3 >/dev/null || skip "there is no python3"
    local document
    document=$(realpath "$(dirname "$0")/../../docs/json.md")
    ringfence init "$store" >/dev/null
    printf 'a%%22%%5C\tb\tm%%0A\nb\tc\nc\td\nd\te\n' >"$work/ranges"
    # The row of the document is found by the words of the command; rows without words belong to the one above.
    cat >"$work/check.py" <<'END'
import json, re, sys
document, printed, words = sys.argv[1], sys.argv[2], " ".join(sys.argv[3:])
names, current = {}, []
for line in open(document):
    cells = line.split("|")
    if len(cells) < 4 or not cells[2].strip().startswith(("`", "of ", "counters")):
        continue
    current = re.findall(r"`([^`]+)`", cells[1]) or current
    text = re.sub(r"\(`[^)]*\)", "", cells[2])
    for command in current:
        names.setdefault(command, set()).update(re.findall(r"`([a-z0-9_]+)`", text))
command = max((c for c in names if words.startswith(c)), key=len, default=None)
lines = 0
note = open(printed, "a")
if words == "every command":
    # What is there only in a case that is not made here.
    rare = {"lock_tenant", "lock_run", "lock_shard", "lock_pid", "lock_held_ns", "snapshot_held_by",
            "kept_up_to_epoch", "from_snapshot", "lost_batches_seen", "lost_records_seen", "last_epoch_seen",
            "acknowledged_up_to_epoch", "copy", "damage", "io_why", "lost", "difference"}
    seen = {}
    for line in open(printed):
        command, name = line.rstrip().split("\t")
        seen.setdefault(command, set()).add(name)
    missing = [f"{c}: {n}" for c in sorted(seen) for n in sorted(names[c] - seen[c] - rare)]
    sys.exit("documented, but never printed: " + ", ".join(missing) if missing else 0)
def look(value):
    if isinstance(value, dict):
        for name, inner in value.items():
            note.write(f"{command}\t{name}\n")
            if name not in names[command]:
                sys.exit(f"{command}: {name} is not documented")
            look(inner)
    elif isinstance(value, list):
        for inner in value:
            look(inner)
for line in sys.stdin:
    look(json.loads(line))
    lines += 1
if lines == 0:
    sys.exit("nothing was printed")
END
    json() { "$@" --json >"$work/json" && python3 "$work/check.py" "$document" "$work/printed" "${@:2}" <"$work/json" || fail "not as documented: $*"; }
    ringfence monitor "$store" --json >"$work/events" &
    local monitor=$! lease
    eventually monitors "$monitor"
    json ringfence run create "$store" 1 --ranges "$work/ranges"
    json ringfence run list "$store" --all-tenants
    lease=$(ringfence claim "$store" 1 --shard 1)
    ringfence checkpoint "$lease" --key 'a%22%5Cb' --token t
    ringfence shard split "$store" 1 1 --at ax --residual --lease "$lease" >/dev/null
    ringfence release "$lease"
    json ringfence run show "$store" 1 --reveal
    json ringfence shard list "$store" 1 --reveal
    json ringfence claim "$store" 1 --shard 1 --reveal
    json ringfence shard show "$store" 1 1 --reveal
    json ringfence renew "$(ringfence claim "$store" 1 --shard 2)"
    json ringfence shard split "$store" 1 3 --parts 2
    ringfence shard park "$store" 1 4
    json ringfence shard show "$store" 1 4
    json ringfence shard show "$store" 1 "$(ringfence shard list "$store" 1 --json | sed -n 's/.*"shard":"\(0x[0-9a-f]*\)".*/\1/p' | head -n 1)"
    json ringfence shard list "$store" 1 --only parked
    json ringfence shard unpark "$store" 1 --all
    ringfence run create "$store" 2 --hex-prefixes 1 >/dev/null
    ringfence work "$store" 2 --workers 1 --quiet -- sh -c '[ $RINGFENCE_SHARD = 1 ] || sleep 60' &
    working() { [ "$(ringfence procs "$store" --json | wc -l)" -ge 2 ]; }
    eventually working
    json ringfence status "$store"
    json ringfence procs "$store"
    kill $!
    wait $! || true
    json ringfence run show "$store" 2 --reveal
    json ringfence log dump "$store"
    json ringfence log dump "$store" --reveal
    json ringfence log dump "$store" --stats
    json ringfence log verify "$store"
    json ringfence verify "$store"
    json ringfence snapshot "$store"
    json ringfence recover "$store"
    json ringfence backup "$store" "$work/copy"
    json ringfence recover --dry-run "$work/copy"
    json ringfence repair "$work/copy"
    json ringfence fsync-test "$work" --for 5ms
    json ringfence hash payload complete-run
    json ringfence version
    json ringfence metrics "$store"
    ringfence work --dry-run "$store" 1 --reveal --json -- echo >"$work/json" 2>"$work/stderr"
    python3 "$work/check.py" "$document" "$work/printed" work --dry-run <"$work/json" || fail "work --dry-run"
    kill "$monitor"
    wait "$monitor"
    python3 "$work/check.py" "$document" "$work/printed" monitor <"$work/events" || fail "monitor"
    ringfence shard park "$store" 1 4
    ringfence shard unpark "$store" 1 --all
    ringfence run complete "$store" 1
    json ringfence run watch "$store" 1
    python3 "$work/check.py" "$document" "$work/printed" every command || fail "the document promises more than is printed"
}

case_man_pages_name_every_command_and_option() {
    local page command pages="" text
    for page in ringfence store run shard work lease watch log hash; do
        expect 0 ringfence help --man "$page"
        has "$out" ".TH" ".nh" ".SH NAME" ".SH EXIT STATUS"
        if grep -E '^\.' <<<"$out" | grep -vE '^\.(TH|SH|SS) .|^\.(PP|TP|nf|fi|RE|RS 4|nh|ad l)$'; then fail "an odd macro on page $page"; fi
        pages+=$out
    done
    text=$(sed 's/\\-/-/g; s/\\f[BIR]//g' <<<"$pages")
    while read -r command; do
        [ "$(grep -c "^\.SS \"ringfence $command " <<<"$text")" = 1 ] || fail "$command is not on exactly one page"
        ringfence $command --help | grep -oE '^  (-., |    )--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+' | while read -r option; do
            grep -q -- "^\(-., \)\?$option" <<<"$text" || { echo "$command: $option is not in the manual"; exit 1; }
        done || fail "an option is missing"
    done < <(commands)
    expect 2 ringfence help --man nonsense
}

# complete_bash WORD...: what bash would offer for the last word.
complete_bash() {
    bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ringfence; printf "%s\n" "${COMPREPLY[@]}"' x "$work/completion" "$@"
}

case_bash_completes_commands_and_options() {
    ringfence help --completion bash >"$work/completion"
    has "$(complete_bash ringfence "")" run shard work status log help
    same "$(complete_bash ringfence sta)" status
    has "$(complete_bash ringfence run "")" create list purge
    same "$(complete_bash ringfence run cr)" create
    same "$(complete_bash ringfence run create --hex)" --hex-prefixes
    has "$(complete_bash ringfence work farm 1 --)" --workers --lines --halt
    same "$(complete_bash ringfence log dump --fol)" --follow
    # Words that are fixed, behind the option they belong to.
    has "$(complete_bash ringfence park --reason "")" permission-denied not-found poisoned too-many-errors other
    same "$(complete_bash ringfence shard park ./farm 1 2 -r poi)" poisoned
    same "$(complete_bash ringfence shard unpark ./farm 1 --all --reason too)" too-many-errors
    same "$(complete_bash ringfence init --durability no)" nowait
    same "$(complete_bash ringfence hash split-id --kind res)" residual
    same "$(complete_bash ringfence log dump --type run_p)" run_purged
    has "$(complete_bash ringfence log dump --type "")" acquired owner_lost
    cd "$work" && touch some-file
    same "$(complete_bash ringfence run create --keys some)" some-file
    expect 2 ringfence help --completion fish
}

case_zsh_reads_its_completion() {
    command -v zsh >/dev/null || skip "there is no zsh"
    ringfence help --completion zsh >"$work/_ringfence"
    zsh -n "$work/_ringfence" || fail "zsh does not read it"
    # Every command is offered, and _arguments gets what belongs to it.
    cat >"$work/try" <<'END'
_describe() { print -r -- ${(P)2} }
_arguments() { print -r -- "$@" }
_files() { : }
words=(ringfence "$@"); CURRENT=$(($# + 1))
source $work_completion
END
    try() { work_completion=$work/_ringfence zsh -f "$work/try" "$@"; }
    has "$(try "")" "status:show what" "run:make runs"
    has "$(try run "")" "create:make a run" "purge:"
    has "$(try run create "")" "--hex-prefixes[" "--keys["
    has "$(try work "")" "--workers["
    has "$(try init "")" ":WORD:(wait nowait)"
}

main "$@"
