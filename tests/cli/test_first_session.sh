#!/usr/bin/env bash
# docs/first-session.md, line by line: every `$` line in its fenced blocks is typed into one shell, and what
# comes out is compared with what the document says. `...` stands for anything.
. "$(dirname "$0")/harness.sh"
document=$(realpath "$(dirname "$0")/../../docs/first-session.md")

# One case, but every command of the document is checked, and counted in the output.
case_every_line_of_the_first_session_does_what_it_says() {
    mkdir "$work/home"
    cd "$work/home"
    store=$work/home/farm # for the end of the case, if the document does not get so far
    local commands=0 line command= expected= inside=no
    # Commands run in this shell, so that variables and jobs last; what a failed one leaves in $? as well.
    typed() {
        local got
        if [ "$(stat -f -c %T "$work")" = tmpfs ]; then expected=${expected//operations wait for the disk/...}; fi
        set +e
        (exit "$last")
        eval "$command" >"$work/got" 2>&1 </dev/null
        last=$?
        set -e
        got=$(cat "$work/got")
        matches "$expected" "$got" || fail "\$ $command"$'\n'"should print:"$'\n'"$expected"$'\n'"and prints:"$'\n'"$got"
        commands=$((commands + 1))
    }
    last=0
    while IFS= read -r line; do
        case $inside$line in
        no'```') inside=yes command= expected= ;;
        yes'```')
            [ -z "$command" ] || typed
            inside=no
            ;;
        yes'$ '*)
            [ -z "$command" ] || typed
            command=${line#'$ '} expected=
            ;;
        yes*) expected+=${expected:+$'\n'}$line ;;
        esac
    done <"$document"
    [ "$commands" -ge 25 ] || fail "only $commands commands were found"
    echo "INFO $commands commands"
}

# Line by line; `...` in the pattern is anything within the line.
matches() {
    local pattern=$1 got=$2 p g
    [ "$(wc -l <<<"$pattern")" = "$(wc -l <<<"$got")" ] || return 1
    while IFS= read -r p <&3 && IFS= read -r g <&4; do
        p=$(sed 's/[][\\*?]/\\&/g; s/\.\.\./*/g' <<<"$p")
        # shellcheck disable=SC2053  # a pattern
        [[ $g == $p ]] || return 1
    done 3<<<"$pattern" 4<<<"$got"
}

main "$@"
