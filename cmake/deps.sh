#!/usr/bin/env bash
# Brings what the build needs and is not here yet, and nothing else.
#
#   cmake/deps.sh [all | test | lib | bench | format | model]
#
#   all     (default) to build everything, and to run most tests
#   test    all, what the tests of rf-scan compare with, and spin
#   lib     only to build and install the library and the command
#   bench   all, and the peers that the benchmarks compare with: client libraries, and servers unpacked
#   format  clang-format
#   model   spin, and a compiler for what it writes
#
# Tools and libraries are installed with apt-get, which needs root or sudo. BLAKE3 and Unity have no
# package in Debian 12, so their sources are taken out of packages that carry a copy, and unpacked
# into $BUILD/deps. Nothing under /etc/apt is changed. When all is there, apt is not even started.
set -euo pipefail

set_name=${1:-all}
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(realpath -m "${BUILD:-$root/build}")
deps=$build/deps

# Hyperscan, or where it does not run, or if that is what is here, its descendant Vectorscan.
matching_engine() {
    if [ "$(dpkg --print-architecture 2>/dev/null)" != amd64 ] || [ -e /usr/share/doc/libvectorscan-dev ]; then
        echo libvectorscan-dev
    else
        echo libhyperscan-dev
    fi
}

case $set_name in
lib)    packages="build-essential cmake ninja-build pkg-config liburing-dev libncurses-dev"
        sources="blake3" ;;
all)    packages="build-essential cmake ninja-build pkg-config liburing-dev libncurses-dev libjemalloc-dev
                  clang libclang-rt-dev strace valgrind libpcre2-dev $(matching_engine)"
        sources="blake3 unity" ;;
test)   packages="ripgrep python3-jsonschema tmux zsh procps util-linux spin"
        sources="sarif"
        "$0" all ;;
bench)  packages="redis-tools libhiredis-dev libsqlite3-dev liblmdb-dev libpq-dev libnghttp2-dev tzdata ripgrep
                  gnuplot-nox python3"
        sources="postgres etcd beanstalkd"
        "$0" all ;;
format) packages="clang-format"
        sources="" ;;
model)  packages="spin gcc libc6-dev"
        sources="" ;;
*)      echo "usage: cmake/deps.sh [all | test | lib | bench | format | model]" >&2
        exit 2 ;;
esac
case " ${CMAKE_ARGS:-} " in
*" -DRINGFENCE_FETCH=ON "*) sources="" ;;
esac

say() { printf 'deps: %s\n' "$*"; }
die() { printf 'deps: %s\n' "$@" >&2; exit 1; }

# What apt had to say, when it failed: its errors, not its progress.
show_log() { grep -E '^(E|W|Err):? ?' "$1" | head -n 6 | sed 's/^/  /' >&2 || true; }

missing_packages() {
    local package
    for package in $packages; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
            printf '%s ' "$package"
    done
}

# Installed on this system, where CMake will find it?
installed() {
    local dir
    for dir in /usr /usr/local; do
        compgen -G "$dir/lib*/cmake/$1/$1[-C]*onfig.cmake" && return
        compgen -G "$dir/lib/*/cmake/$1/$1[-C]*onfig.cmake" && return
    done
    pkg-config --exists "lib$1" 2>/dev/null
}

# A server for the benchmarks, installed or unpacked.
has_server() {
    compgen -G "/usr/bin/$1" >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/$1" >/dev/null ||
        compgen -G "$deps/servers/usr/bin/$1" >/dev/null ||
        compgen -G "$deps/servers/usr/lib/postgresql/*/bin/$1" >/dev/null
}

missing_sources() {
    local name
    for name in $sources; do
        case $name in
        sarif)
            compgen -G "$deps/sarif/*.json" >/dev/null || printf 'sarif '
            continue ;;
        postgres | etcd | beanstalkd)
            has_server "$name" || printf '%s ' "$name"
            continue ;;
        esac
        [ -e "$deps/$name/$name.h" ] || installed "$name" >/dev/null || printf '%s ' "$name"
    done
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "no apt-get here, so nothing is installed; see cmake/README.md for what the build needs"
    exit 0
fi

[ -n "$(missing_packages)$(missing_sources)" ] || exit 0

mkdir -p "$build"
exec 9>"$build/deps.lock"
flock 9

# apt downloads as the user _apt, who must be able to reach and write the place.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
log=$work/log
: >"$log"

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        sudo "$@"
    else
        return 77
    fi
}

lists_updated=no
update_lists() {
    [ "$lists_updated" = no ] || return 1
    lists_updated=yes
    say "reading Debian's package lists"
    as_root apt-get -q -o Acquire::Retries=2 update >"$log" 2>&1 || return $?
    # apt-get update calls it a success when no site could be reached.
    ! grep -q '^W: Failed to fetch' "$log"
}

have_lists() { [ -n "$(apt-get indextargets --format '$(FILENAME)' 'Identifier: Packages' 2>/dev/null)" ]; }

install_packages() {
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y -o Acquire::Retries=2 -o DPkg::Lock::Timeout=120 \
        install --no-install-recommends "$@" >"$log" 2>&1 </dev/null
}

missing=$(missing_packages)
if [ -n "$missing" ]; then
    say "installing $missing"
    have_lists || update_lists || true
    rc=0
    # shellcheck disable=SC2086  # a list of words
    install_packages $missing || rc=$?
    if [ "$rc" != 0 ] && [ "$rc" != 77 ] && update_lists; then
        rc=0
        # shellcheck disable=SC2086
        install_packages $missing || rc=$?
    fi
    if [ "$rc" = 77 ]; then
        die "these packages are missing, and installing them needs root or sudo. As root, type:" \
            "  apt-get update && apt-get install --no-install-recommends $missing"
    elif [ "$rc" != 0 ]; then
        show_log "$log"
        die "apt-get could not install: $missing" \
            "Check the network and the package sites of this machine, then run it again, or type as root:" \
            "  apt-get update && apt-get install --no-install-recommends $missing"
    fi
    # What the last configuration did not find may be there now: cmake/build.sh configures again.
    rm -f "$build"/*/configured-with
fi

# download PACKAGE [apt option...]: leaves the unpacked package in $work/PACKAGE/root.
download() {
    local package=$1 dir=$work/$1
    shift
    mkdir -p "$dir"
    [ "$(id -u)" != 0 ] || chown _apt "$dir" 2>/dev/null || true
    (cd "$dir" && apt-get "$@" -q -o Acquire::Retries=2 download "$package") >"$log" 2>&1 </dev/null || return 1
    dpkg -x "$dir"/*.deb "$dir/root"
}

no_download() {
    local package=$1 what=$2
    show_log "$log"
    die "could not download the Debian package $package, which carries the sources of $what." \
        "Check the network and run it again; or install $what yourself; or put its sources into" \
        "$deps/${what,,}; or let CMake fetch them from upstream: make CMAKE_ARGS=-DRINGFENCE_FETCH=ON ..."
}

# keep NAME FILE...: into $deps/NAME, whole or not at all.
keep() {
    local name=$1
    shift
    mkdir -p "$deps"
    rm -rf "$deps/$name.new" "${deps:?}/$name"
    mkdir "$deps/$name.new"
    cp -- "$@" "$deps/$name.new/"
    mv "$deps/$name.new" "$deps/$name"
}

get_blake3() {
    local package=librust-blake3-dev
    have_lists || update_lists || no_download $package BLAKE3
    if ! download $package; then
        cp "$log" "$log.first"
        if ! update_lists || ! download $package; then
            cat "$log.first" >>"$log"
            no_download $package BLAKE3
        fi
    fi
    local src
    src=$(echo "$work/$package/root/usr/share/cargo/registry"/blake3-*)
    [ -e "$src/c/blake3.h" ] || die "$package no longer carries BLAKE3's C sources; see cmake/README.md"
    keep blake3 "$src"/c/blake3*.[chS] "$src/LICENSE"
}

# Unity is in the package cmock, from Debian 13 on. On Debian 12 the next release's package list is
# read into a directory of its own, from the site this machine uses anyway, signatures checked.
get_unity() {
    local package=cmock
    have_lists || update_lists || no_download $package Unity
    if apt-cache --no-all-versions show $package >/dev/null 2>&1; then
        download $package || no_download $package Unity
    else
        local codename next site
        codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
        case $codename in
        bookworm) next=trixie ;;
        *) die "no package of this system (${codename:-unknown}) carries Unity: install Unity, or put unity.c," \
               "unity.h and unity_internals.h into $deps/unity, or make CMAKE_ARGS=-DRINGFENCE_FETCH=ON ..." ;;
        esac
        site=$(apt-get indextargets --format '$(SITE)' 'Identifier: Packages' 'Label: Debian' \
            "Codename: $codename" | awk 'NR == 1')
        [ -n "$site" ] || die "apt knows no Debian site for $codename, so the package $package of $next" \
            "can't be found: install Unity, or make CMAKE_ARGS=-DRINGFENCE_FETCH=ON ..."

        mkdir -p "$work/next/sources" "$work/next/lists/partial" "$work/next/cache/archives/partial"
        cat >"$work/next/sources/next.sources" <<END
Types: deb
URIs: $site
Suites: $next
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
        cat >"$work/next/apt.conf" <<END
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$work/next/sources";
Dir::State::lists "$work/next/lists";
Dir::Cache "$work/next/cache";
Acquire::Languages "none";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
END
        say "reading the package list of $next, for Unity"
        if ! apt-get -q -c "$work/next/apt.conf" -o Acquire::Retries=2 update >"$log" 2>&1 </dev/null ||
            grep -q '^W: Failed to fetch' "$log"; then
            no_download "$package ($next)" Unity
        fi
        download $package -c "$work/next/apt.conf" || no_download "$package ($next)" Unity
    fi
    local src=$work/$package/root/usr/share/cmock/vendor/unity
    [ -e "$src/src/unity.h" ] || die "$package no longer carries Unity; see cmake/README.md"
    keep unity "$src"/src/unity*.[ch] "$src/LICENSE.txt"
}

# The JSON schema of SARIF, to hold reports against: no Debian package carries it, an npm package does.
# Whoever has no npm gets Debian's. Without the schema one test is skipped, and says so.
get_sarif() {
    local package=@microsoft/jest-sarif@1.0.0-beta.0
    if ! command -v npm >/dev/null; then
        say "installing npm"
        install_packages npm || { say "npm could not be installed"; return 0; }
    fi
    mkdir -p "$work/sarif"
    if ! (cd "$work/sarif" && npm pack --silent "$package" && tar xzf ./*.tgz) >"$log" 2>&1 </dev/null; then
        say "could not get the npm package $package; reports will not be held against SARIF's schema"
        return 0
    fi
    keep sarif "$work"/sarif/package/lib/schemas/sarif-2.1.0-rtm.5.json
}

# The servers that the benchmarks compare with are unpacked, and not installed: an installed package would start
# its server, and make a user and a database. Of what it depends on, libraries are installed. The benchmarks start
# a server themselves, as long as they need it.
get_server() {
    local package=$1 packages libraries
    have_lists || update_lists || true
    packages=$(apt-cache depends --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
        --no-enhances "$package" 2>"$log" | sed -n 's/^ *Depends: \(lib[^ ]*\)$/\1/p')
    libraries=$(missing_packages)
    # shellcheck disable=SC2086  # a list of words
    if { [ -n "$libraries" ] && ! install_packages $libraries; } || ! download "$package"; then
        show_log "$log"
        say "could not get the Debian package $package; what is compared with it will be shown as skipped"
        return
    fi
    mkdir -p "$deps/servers"
    cp -a "$work/$package/root/usr" "$deps/servers/"
}

get_etcd() { get_server etcd-server; }
get_beanstalkd() { get_server beanstalkd; }
get_postgres() {
    local package
    package=$(apt-cache depends postgresql 2>/dev/null | sed -n 's/^ *Depends: \(postgresql-[0-9]*\)$/\1/p')
    get_server "${package:-postgresql}"
}

for name in $(missing_sources); do
    say "unpacking $name into $deps"
    "get_$name"
done
