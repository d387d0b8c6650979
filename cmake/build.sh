#!/usr/bin/env bash
# Configures (when needed) and builds one kind of build, in a directory of its own.
#
#   cmake/build.sh KIND [TARGET...]
#
#   gcc, clang   everything, RelWithDebInfo
#   asan, tsan   clang with AddressSanitizer and UBSan; with ThreadSanitizer, and its tests only
#   fuzz         clang, the library and the fuzz targets
#   install      only the library and the command, to be installed under $PREFIX
#
# $BUILD is where the directories go (build), $JOBS how many compilers run (all cores), $CMAKE_ARGS
# more arguments for cmake. Two of these at once in one directory take turns.
set -euo pipefail

kind=${1:?which kind of build? See the top of cmake/build.sh}
shift
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(realpath -m "${BUILD:-$root/build}")
dir=$build/$kind

args=(-DRINGFENCE_DEPS_DIR="$build/deps" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)
case $kind in
gcc)     args+=(-DCMAKE_C_COMPILER=gcc) ;;
clang)   args+=(-DCMAKE_C_COMPILER=clang) ;;
asan)    args+=(-DCMAKE_C_COMPILER=clang -DRINGFENCE_SANITIZE=address,undefined) ;;
tsan)    args+=(-DCMAKE_C_COMPILER=clang -DRINGFENCE_SANITIZE=thread -DRINGFENCE_PROGRAMS=OFF) ;;
fuzz)    args+=(-DCMAKE_C_COMPILER=clang -DRINGFENCE_FUZZ=ON -DRINGFENCE_TESTS=OFF -DRINGFENCE_PROGRAMS=OFF) ;;
install) args+=(-DCMAKE_INSTALL_PREFIX="${PREFIX:-/usr/local}" -DRINGFENCE_TESTS=OFF -DRINGFENCE_PROGRAMS=OFF
               -DRINGFENCE_COMMAND=ON -DRINGFENCE_JEMALLOC=OFF) ;;
*)       echo "cmake/build.sh: there is no kind of build called $kind" >&2
         exit 2 ;;
esac
# shellcheck disable=SC2206  # a list of words
args+=(${CMAKE_ARGS:-})

mkdir -p "$dir"
if [ "${RINGFENCE_LOCKED:-}" != "$dir" ]; then
    exec 9>"$dir.lock"
    flock -n 9 || { echo "waiting for another build in $dir" >&2; flock 9; }
fi

# Once configured, ninja itself sees changed CMake files and new sources.
stamp=$dir/configured-with
if [ ! -e "$dir/build.ninja" ] || [ "$(cat "$stamp" 2>/dev/null)" != "${args[*]}" ]; then
    rm -f "$stamp"
    if ! cmake -S "$root" -B "$dir" -G Ninja "${args[@]}" >"$dir/configure.log" 2>&1; then
        cat "$dir/configure.log" >&2
        exit 1
    fi
    printf '%s' "${args[*]}" >"$stamp"
fi
# --quiet does not keep ninja from saying that it had nothing to do.
ninja -C "$dir" --quiet -j "${JOBS:-$(nproc)}" "$@" </dev/null |
    { grep --line-buffered -vxF 'ninja: no work to do.' || true; }
