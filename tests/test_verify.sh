#!/bin/sh
# Proves every algorithm for n = 1..17 with every root and variant (with TEST_LONG in the environment n = 1..64 and some sizes to 1024), and
# that the step tables in the opening comments are what the algorithms do.
set -eu
srcdir=${srcdir:-.}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

tables=0
for file in "$srcdir"/algorithms/*.c; do
    # A table: the command line that prints it, then its rows, until something else.
    sed -n '1,/\*\//s/^ \* \{0,1\}//p' "$file" |
        awk -v base="$scratch/table" '/^hkt-verify --print / { n++; print > (base n ".command"); open = 1; next }
            open && /^ *(rank )?[0-9]+|^ +rank 0/ { print > (base n ".rows"); next } { open = 0 }'
    [ -e "$scratch/table1.rows" ] || { echo "$file: has no table of steps"; exit 1; }
    for command in "$scratch"/*.command; do
        sed 's/ *(.*//; s/^/.\//' "$command" >"$scratch/run" # a remark may follow
        sh "$scratch/run" >"$scratch/printed"
        rows=${command%.command}.rows
        head -n "$(wc -l <"$rows")" "$scratch/printed" | cmp -s - "$rows" || {
            echo "$file: the table is not what is printed by: $(cat "$scratch/run")"
            diff "$rows" "$scratch/printed" || true
            exit 1
        }
        tables=$((tables + 1))
    done
    rm -f "$scratch"/*.command "$scratch"/*.rows
done
echo "$tables tables of steps are right"

[ -n "${TEST_LONG+set}" ] || exec ./hkt-verify --quick
exec ./hkt-verify
