#!/usr/bin/env bash
# Formats our C sources with clang-format, of the one version whose opinion counts.
#
#   cmake/format.sh               rewrite them
#   cmake/format.sh --check       say which ones would change; ends with a line like Unity's
#   cmake/format.sh --available   is that clang-format here?
set -euo pipefail
cd "$(dirname "$0")/.."
version=14

formatter=
for candidate in clang-format-$version clang-format; do
    if command -v "$candidate" >/dev/null && "$candidate" --version | grep -q "version $version\."; then
        formatter=$candidate
        break
    fi
done
if [ "${1:-}" = --available ]; then
    [ -n "$formatter" ]
    exit
fi
[ -n "$formatter" ] || { echo "format: clang-format $version was not found" >&2; exit 1; }

rooms=()
for room in lib shm cli worker-demo bench tests; do
    [ ! -d "$room" ] || rooms+=("$room")
done
mapfile -d '' files < <(find "${rooms[@]}" -name '*.[ch]' -type f -print0 | sort -z)

if [ "${1:-}" != --check ]; then
    [ ${#files[@]} = 0 ] || "$formatter" -i "${files[@]}"
    exit
fi
changed=0
for file in "${files[@]}"; do
    if ! "$formatter" "$file" | cmp -s "$file" -; then
        echo "$file: not as clang-format has it; make format"
        changed=1
    fi
done
echo "1 Tests $changed Failures 0 Ignored"
exit $changed
