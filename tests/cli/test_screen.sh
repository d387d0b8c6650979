#!/usr/bin/env bash
# What is drawn: top, run watch and work in a terminal of their own, looked at as a person would.
. "$(dirname "$0")/harness.sh"

# terminal WIDTH HEIGHT: a terminal with a shell in it. Keys go in by `keys`, `screen` is what it shows.
terminal() {
    tmux_socket=$work/tmux
    command -v tmux >/dev/null || skip "there is no tmux"
    env -u NO_COLOR -u TMUX TERM=screen tmux -S "$tmux_socket" -f /dev/null new-session -d -x "$1" -y "$2" \
        -e PATH="$PATH" "bash --norc --noprofile"
    line "PS1='rea''dy> '; clear"
    see 'ready>'
}
screen() { tmux -S "$tmux_socket" capture-pane -p; }
coloured_screen() { tmux -S "$tmux_socket" capture-pane -e -p; }
keys() { tmux -S "$tmux_socket" send-keys "$@"; }
line() { tmux -S "$tmux_socket" send-keys -l -- "$1"; keys Enter; }
see() {
    local part i
    for part in "$@"; do
        for ((i = 0; i < 600; i++)); do
            if screen | grep -F -- "$part" >/dev/null; then continue 2; fi
            sleep 0.05
        done
        fail "never on the screen: $part"$'\n'"$(screen)"
    done
}
unsee() {
    local i
    for ((i = 0; i < 600; i++)); do
        if ! screen | grep -F -- "$1" >/dev/null; then return 0; fi
        sleep 0.05
    done
    fail "still on the screen: $1"$'\n'"$(screen)"
}

case_top_shows_runs_shards_and_members() {
    ringfence init --volatile "$store"
    ringfence run create "$store" 1 --hex-prefixes 1
    ringfence run create "$store" 22 --hex-prefixes 2
    ringfence shard park "$store" 1 7 --reason poisoned
    ringfence claim "$store" 1 --worker 4711 --shard 3
    ringfence claim "$store" 1 --worker 4712 --shard 9 >"$work/lease"
    ringfence complete "$(cat "$work/lease")"
    terminal 110 24
    line "ringfence top '$store' --interval 100ms"
    see "ringfence $store" "2 runs" "272 shards" "PROGRESS" "active" "[#!" "q quit"
    keys s s s s s r # by the number done, most first
    see "DONEv"
    keys Home
    screen | sed -n 6p | grep -E '^ +1 ' >/dev/null || fail "run 1 is not first"$'\n'"$(screen)"
    keys Enter
    see "run 1" "poisoned" "4711" "done"
    keys / p o i s Enter
    see "filter: pois" "poisoned"
    unsee "4711"
    keys Enter
    see "shard 7" "status" "parked" "poisoned" "park, op 0x"
    keys Escape
    see "SHARD" "4711"
    keys Escape
    see "PROGRESS"
    keys m
    see "ROLE" "nothing here"
    keys q
    unsee "ROLE"
    see 'ready>'
}

case_top_follows_what_happens_and_the_size_of_the_window() {
    ringfence init --volatile "$store"
    ringfence run create "$store" 1 --hex-prefixes 1
    terminal 100 24
    line "ringfence top '$store' --interval 50ms"
    see "[....................]"
    ringfence work "$store" 1 --workers 2 --quiet -- true
    see "[####################]" "done"
    tmux -S "$tmux_socket" resize-window -x 60 -y 10
    see "[####################]" "q quit"
    [ "$(screen | awk '{ if (length > m) m = length } END { print m }')" -le 60 ] || fail "wider than the window"
    tmux -S "$tmux_socket" resize-window -x 20 -y 5
    see "ringfence"
    tmux -S "$tmux_socket" resize-window -x 120 -y 30
    see "LEFT"
    [ "$(screen | grep -c 'q quit')" = 1 ] || fail "the last line is there twice"$'\n'"$(screen)"
    # What was scrolled away in a small window is back in a large one.
    keys Enter
    see "ATTEMPTS" " 16 done"
    tmux -S "$tmux_socket" resize-window -x 120 -y 8
    keys End
    scrolled() { screen | sed -n 6p | grep ' 15 done' && screen | sed -n 7p | grep ' 16 done'; }
    eventually scrolled
    tmux -S "$tmux_socket" resize-window -x 120 -y 30
    see " 1 done" " 16 done"
    keys C-c
    see 'ready>'
    unsee "PROGRESS"
}

case_top_shows_how_far_the_disk_is_behind_and_who_holds_a_lock() {
    command -v strace >/dev/null || skip "there is no strace"
    ringfence init "$store" >/dev/null
    ringfence run create "$store" 1 --hex-prefixes 1 >/dev/null
    ringfence work "$store" 1 --workers 1 --quiet -- sleep 60 &
    # Whoever looks for leaks at the end can't while strace is there.
    ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 strace -f -o "$work/trace" -e trace=fallocate -e inject=fallocate:signal=SIGSTOP:when=20 \
        ringfence run create "$store" 2 --hex-prefixes 3 >/dev/null 2>&1 &
    stopped() { grep -q 'stopped by SIGSTOP' "$work/trace"; }
    eventually stopped
    local pid
    pid=$(awk '/stopped by SIGSTOP/ { print $1; exit }' "$work/trace")
    terminal 100 24
    line "ringfence top '$store' --interval 100ms"
    see "epochs lag" "locked: the making of a run, by pid"
    kill -CONT "$pid"
    wait %2
    unsee "locked:"
    see "4,112 shards"
    keys q
    kill %1
    wait %1 || true
}

case_top_says_when_all_runs_are_those_of_other_tenants() {
    ringfence init --volatile "$store"
    terminal 100 24
    line "ringfence top '$store'"
    see "nothing here"
    if screen | grep -F "which -a shows" >/dev/null; then fail "there are no runs"; fi
    ringfence run create "$store" 1 --hex-prefixes 1 --tenant other
    see "which -a shows"
    keys q
}

case_top_shows_members_that_come_and_go() {
    ringfence init --volatile "$store"
    ringfence run create "$store" 1 --hex-prefixes 1
    terminal 100 24
    line "ringfence top '$store' --interval 50ms"
    keys m
    see "nothing here"
    ringfence work "$store" 1 --workers 1 --quiet -- sleep 60 &
    see "guardian" "handle" "alive" " 0 repairs"
    # Another worker takes the place of the one that is killed; whoever settles that one is counted.
    kill -9 $(pgrep -P $!)
    repaired() { screen | grep -E ' [1-9][0-9]* repairs' >/dev/null; }
    eventually repaired
    kill %1
    wait || true
    see "nothing here"
    keys q
}

case_top_shows_keys_only_when_they_are_revealed() {
    ringfence init --volatile "$store"
    printf 'sesame-a\tsesame-z\tsesame-meta\n' >"$work/ranges"
    ringfence run create "$store" 1 --ranges "$work/ranges"
    ringfence checkpoint "$(ringfence claim "$store" 1)" --key sesame-k --token sesame-token
    terminal 120 30
    line "clear; cd '$work'; ringfence top ./store --interval 50ms"
    see "PROGRESS"
    keys Enter
    see "SHARD" "(8 B)"
    lacks "$(screen)" sesame
    keys Enter
    see "attempts" "(8 B)"
    lacks "$(screen)" sesame
    keys q
    see 'ready>'
    line "clear; ringfence top ./store --interval 50ms --reveal"
    see "PROGRESS"
    keys Enter
    see "sesame-a" "sesame-k"
    keys Enter
    see "sesame-a" "sesame-z" "sesame-k"
    lacks "$(screen)" sesame-token sesame-meta
}

case_top_measures_rates_from_when_it_last_saw_the_runs() {
    ringfence init --volatile "$store"
    ringfence run create "$store" 1 --hex-prefixes 2
    terminal 120 24
    line "ringfence top '$store' --interval 1h"
    see "PROGRESS"
    keys Enter
    see "SHARD"
    ringfence work "$store" 1 --workers 1 --quiet -- true
    sleep 0.5
    keys m # another look, and then soon the next
    see "ROLE"
    keys m
    see "PROGRESS" "256"
    # 256 in half a second at least, not 256 since the members were shown.
    local rate
    rate=$(screen | sed -n 6p | awk '{ print $(NF - 1) }')
    awk -v rate="$rate" 'BEGIN { exit !(rate > 0 && rate <= 512) }' || fail "the rate is $rate"$'\n'"$(screen)"
}

case_nothing_is_coloured_with_NO_COLOR() {
    ringfence init --volatile "$store"
    ringfence run create "$store" 1 --hex-prefixes 1
    ringfence shard park "$store" 1 7
    ringfence run create "$store" 2 --hex-prefixes 1
    terminal 100 24
    coloured() { coloured_screen | grep -E $'\033\\[[0-9;]*3[0-7]' >/dev/null; }
    line "ringfence top '$store' --interval 50ms"
    see "[!" "active"
    eventually coloured
    keys q
    see 'ready>'
    line "clear; export NO_COLOR=1; ringfence top '$store' --interval 50ms"
    see "[!" "active"
    ! coloured || fail "$(coloured_screen)"
    keys q
    see 'ready>'
    line "clear; ringfence run watch '$store' 1 --timeout 300ms"
    see "["
    ! coloured || fail "$(coloured_screen)"
    line "clear; ringfence work '$store' 2 --workers 1 -- sleep 0.05"
    see "[#"
    ! coloured || fail "$(coloured_screen)"
}

case_top_wants_a_terminal_and_a_store() {
    ringfence init --volatile "$store"
    expect 2 ringfence top "$store" </dev/null
    has "$err" "terminal" "ringfence status"
    terminal 80 24
    line "ringfence top '$store.none'; echo code \$?"
    see "there is no such store" "code 3"
    line "clear; TERM=nonsense ringfence top '$store'; echo code \$?"
    see "is not known" "code 2"
}

case_tables_fit_the_terminal_and_are_coloured_only_there() {
    ringfence init --volatile "$store"
    printf 'a-very-long-key-%0100d\tb\n' 1 >"$work/ranges"
    ringfence run create "$store" 1 --ranges "$work/ranges"
    expect 0 ringfence shard list --reveal "$store" 1
    has "$out" "$(printf '%0100d' 1)"
    lacks "$out" $'\033'
    terminal 80 24
    line "ringfence shard list --reveal '$store' 1"
    see "a-ver" "ATTEMPTS"
    [ "$(screen | grep -c '^ *1  active  .*a-ver.*> .* 0$')" = 1 ] || fail "the line is broken"$'\n'"$(screen)"
    coloured_screen | grep $'\033\\[32mactive' >/dev/null || fail "no colour on a terminal"
    line "clear; NO_COLOR=1 ringfence shard list '$store' 1"
    see "active"
    ! coloured_screen | grep $'\033\\[32mactive' >/dev/null || fail "NO_COLOR is not heeded"
}

case_tables_that_no_width_fits_are_folded() {
    ringfence init --volatile "$store"
    printf 'a-very-long-key-%0100d\tb\nc\td\n' 1 >"$work/ranges"
    ringfence run create "$store" 1234567 --ranges "$work/ranges"
    ringfence shard park "$store" 1234567 2 --reason too-many-errors
    terminal 40 40
    line "clear; ringfence shard list --reveal '$store' 1234567"
    see "shard       1" "start       a-very-long-key-00000000000>" "attempts    0" "reason      too-many-errors"
    [ "$(screen | grep -c '^fence ')" = 2 ] || fail "$(screen)"
    # Numbers are never cut.
    line "clear; ringfence run list '$store'"
    see "run      1234567" "percent  0.0"
    tmux -S "$tmux_socket" resize-window -x 60 -y 40
    line "clear; ringfence run list '$store'"
    see "1234567  active"
    [ "$(screen | grep -c 1234567)" = 1 ] || fail "$(screen)"
    lacks "$(screen)" "percent  0.0"
}

case_the_bar_stays_on_one_line() {
    ringfence init --volatile "$store"
    ringfence run create "$store" 123456 --hex-prefixes 2
    ringfence shard park "$store" 123456 7
    terminal 36 20
    line "clear; ringfence work '$store' 123456 --workers 2 -- sh -c 'until [ -e $work/go ]; do sleep 0.05; done'"
    see "run 123456" "2 running"
    touch "$work/go"
    see "255 of 256 sh"
    lacks "$(screen)" "run 123456  "
    ringfence run create "$store" 2 --hex-prefixes 1
    line "clear; ringfence run watch '$store' 2 --interval 20ms; echo code \$?"
    see "run 2 ["
    ringfence work "$store" 2 --workers 1 --quiet -- sleep 0.03
    see "code 0"
    [ "$(screen | grep -c '^run 2')" = 1 ] || fail "$(screen)"
}

case_run_watch_draws_a_bar_until_the_run_ends() {
    ringfence init --volatile "$store"
    ringfence run create "$store" 1 --hex-prefixes 1
    terminal 100 24
    line "ringfence run watch '$store' 1; echo code \$?"
    see "run 1 [" "0/16"
    lease=$(ringfence claim "$store" 1) && ringfence complete "$lease"
    see "1/16"
    ringfence work "$store" 1 --workers 2 --quiet -- true
    see "run 1: done, 16 of 16 done, 0 parked" "code 0"
    unsee "run 1 ["
}

case_work_draws_a_bar_above_which_output_scrolls() {
    ringfence init --volatile "$store"
    ringfence run create "$store" 1 --hex-prefixes 1
    terminal 100 40
    line "ringfence work '$store' 1 --workers 2 -- sh -c 'echo output of \$RINGFENCE_SHARD; until [ -e $work/go ]; do sleep 0.05; done'; echo code \$?"
    see "2 running" "run 1 ["
    touch "$work/go"
    see "16 of 16 shards done" "code 0"
    unsee "run 1 ["
    [ "$(screen | grep -c '^output of [0-9]*$')" = 16 ] || fail "output is mixed with the bar"$'\n'"$(screen)"
}

case_ctrl_c_drains_and_a_second_one_releases() {
    ringfence init --volatile "$store"
    ringfence run create "$store" 1 --hex-prefixes 1
    terminal 100 24
    line "ringfence work '$store' 1 --workers 2 -- sh -c 'until [ -e $work/go ]; do sleep 0.05; done'; echo code \$?"
    see "2 running"
    keys C-c
    see "no more shards are taken; 2 commands run to their end"
    touch "$work/go"
    see "2 done here" "code 130"
    rm "$work/go"
    line "clear; ringfence work '$store' 1 --workers 2 -- sh -c 'echo \$RINGFENCE_START%20x >&3; sleep 100'; echo code \$?"
    see "2 running"
    moved() { [ "$(ringfence shard list "$store" 1 --json --only active | grep -c '"cursor_key_len":3')" = 2 ]; }
    eventually moved
    keys C-c
    see "run to their end"
    keys C-c
    see "2 released" "code 130"
    expect 0 ringfence shard list "$store" 1 --json --only available
    same "$(wc -l <<<"$out")" 14
    moved || fail "the cursors are lost"
}

# What a shell offers when somebody presses the tabulator.
case_bash_completes_what_is_typed() {
    ringfence help --completion bash >"$work/completion"
    terminal 100 24
    line "clear; . '$work/completion'; cd '$work'; touch keys.txt"
    see 'ready>'
    keys -l 'ringfence sta'
    keys Tab
    see "ringfence status"
    keys C-u
    keys -l 'ringfence run create ./farm 1 --hex'
    keys Tab
    see "run create ./farm 1 --hex-prefixes"
    keys C-u
    keys -l 'ringfence run create ./farm 1 --keys ke'
    keys Tab
    see "--keys keys.txt"
    keys C-u
    keys -l 'ringfence park --reason poi'
    keys Tab
    see "--reason poisoned"
}

case_zsh_completes_what_is_typed() {
    command -v zsh >/dev/null || skip "there is no zsh"
    mkdir "$work/functions"
    ringfence help --completion zsh >"$work/functions/_ringfence"
    terminal 100 24
    line "cd '$work'; touch keys.txt; ZDOTDIR='$work' exec zsh -f"
    line "PS1='zsh''> '; fpath=('$work/functions' \$fpath); autoload -Uz compinit; compinit -u -d '$work/dump'; clear"
    see 'zsh>'
    keys -l 'ringfence sta'
    keys Tab
    see "ringfence status"
    keys C-u
    keys -l 'ringfence run cr'
    keys Tab
    see "ringfence run create"
    keys -l './farm 1 --hex'
    keys Tab
    see "create ./farm 1 --hex-prefixes"
    keys C-u
    keys -l 'ringfence run create ./farm 1 --keys ke'
    keys Tab
    see "--keys keys.txt"
    keys C-u
    keys -l 'ringfence init ./farm --durability no'
    keys Tab
    see "--durability nowait"
    keys C-u
    keys -l 'ringfence work ./farm 1 --h'
    keys Tab
    see "--halt" "--help"
}

case_destroy_asks_on_a_terminal() {
    ringfence init --volatile "$store"
    terminal 100 24
    line "ringfence destroy '$store'; echo code \$?"
    see "[y/N]"
    keys Enter
    see "was left as it is" "code 13"
    line "clear; ringfence destroy '$store'; echo code \$?"
    see "[y/N]"
    keys y Enter
    see "code 0"
    [ ! -e "$store" ]
}

main "$@"
