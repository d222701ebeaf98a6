#!/bin/sh
# Proves that hkt-verify catches slips in the algorithms themselves, made on every rank alike: each row below changes one line of a source;
# the changed algorithm must be found wrong. (test_mutation breaks single schedules, in every way.) Skipped without a compiler.
set -eu
srcdir=${srcdir:-.}
CC=${CC:-cc}
core=.libs/libcore.a
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ -f $core ] && command -v "${CC%% *}" >/dev/null || exit 77

compile() { # OUTPUT SOURCE...
    out=$1
    shift
    # shellcheck disable=SC2086 # both may hold several words
    $CC ${CFLAGS:-} -std=c11 -D_GNU_SOURCE -fvisibility=hidden -pthread -w -I"$srcdir/include" -I"$srcdir/src" -I"$srcdir/src/tools" -o "$out" "$@"
}

for tool in hkt-verify verify_sweep verify_print flags; do
    compile "$scratch/$tool.o" -c "$srcdir/src/tools/$tool.c"
done

caught=0
while IFS='|' read -r name from to what; do
    [ -n "$name" ] || continue
    # Plain text for plain text, on one line only: a row that fits no line or several is out of date.
    FROM=$from TO=$to awk 'BEGIN { from = ENVIRON["FROM"]; to = ENVIRON["TO"] }
        (i = index($0, from)) { $0 = substr($0, 1, i - 1) to substr($0, i + length(from)); n++ } { print } END { exit n != 1 }' \
        "$srcdir/algorithms/$name.c" >"$scratch/$name.c" || { echo "$name: '$from' does not stand on exactly one line"; exit 1; }
    compile "$scratch/mutant" "$scratch/$name.c" "$scratch"/*.o $core
    if "$scratch/mutant" --quick --algorithm "$name" >"$scratch/said" 2>&1; then
        echo "$name: not caught: $what"
        exit 1
    fi
    grep -q '^WRONG' "$scratch/said" || { cat "$scratch/said"; echo "$name: failed, but not by proof: $what"; exit 1; }
    printf '%-13s %s\n    %s\n' "$name" "$what" "$(grep -m 1 '^WRONG' "$scratch/said")"
    caught=$((caught + 1))
done <<'ROWS'
oneshot|for (int r = 0; r < n; r++)|for (int r = n - 1; r >= 0; r--)|folds from the last rank
direct|hkt_from(s, r == sh->rank ? HKT_IN : HKT_PEER, r);|hkt_from(s, r ? HKT_PEER : HKT_IN, r ? r : sh->rank);|takes rank 0 for itself
direct|(me + i) % n, HKT_OUT, (me + i) % n|(me + i) % n, HKT_OUT, hkt_mod(me - i, n)|stores at the mirrored place
ring|fold(s, prev, hkt_mod(first - i, n), 0);|fold(s, prev, hkt_mod(first + i, n), 0);|walks the chunks upwards
ring|HKT_OUT, hkt_mod(own - i, n));|HKT_OUT, hkt_mod(own - i + 1, n));|gathers one place off
ring|fold(s, hkt_mod(sh->rank - 1, n), c, at == n - 1|fold(s, hkt_mod(sh->rank - 1, n), c, at == n - 2|finishes one rank early
ring|sh->coll == HKT_COLL_ALL_REDUCE ? 2 * hops : hops;|hops;|counts half of what it sends
tree|hkt_mod(v + (back ? 1 : -1), m)|hkt_mod(v + 1, m)|turns the second tree the same way there and back
tree|for (int i = at->before; i < at->downs; i++)|for (int i = at->before + 1; i < at->downs; i++)|forgets the right child
tree|if (at.up >= m)|if (at.up > m)|climbs to a node beyond the end
halving|middle + c % right|start + c % right|lets a short half lose in the other half
halving|if (from < w->sh->rank)|if (from <= w->sh->rank + 1)|folds the right neighbour first
halving|owner = in_left == (sh->rank < middle) ? owner : other;|owner = in_left ? owner : other;|follows the wrong owner
circulant|return (skip + 1) / 2;|return skip / 2;|rounds the skips down
circulant|if (skip < sh->size && i < sh->size / 2)|if (skip < sh->size && i <= sh->size / 2)|takes an input for a sum
circulant|(me + next) % n);|(me + skip) % n);|sends too far
radix|+ offset % part_size(sh, &b, part));|+ offset);|asks ranks beyond a short part
radix|(theirs - offset + mine - 1) / mine|(theirs - offset) / mine|serves too few
radix|sh->root < start + width ? sh->root|sh->root <= start + width ? sh->root|makes the root lead the block before its own
radix|return (radix(sh) & (radix(sh) - 1)) == 0;|return true;|promises the canonical order for every radix
bruck|last = d / width < radix(sh);|last = d / width < radix(sh) - 1;|leaves a block that is at home in scratch
bruck|(int)((me + way + i) % n));|(int)((me + way + 1) % n));|stores a whole window in one block
pat|far < (d & -d))|far <= (d & -d))|gives a rank a child too many
pat|d + far < sh->size;|d + far < sh->size - 1;|forgets the last rank
pat|HKT_OUT, hkt_mod(me - d, n));|HKT_OUT, hkt_mod(me + d, n));|stores at the mirrored place
pairwise|hkt_copy(s, HKT_IN, to, HKT_PEER, to);|hkt_copy(s, HKT_IN, from, HKT_PEER, to);|sends what it should receive
hierarchical|return sh->group_start[group] + column % group_size(sh, group);|return sh->group_start[group] + column % group_size(sh, 0);|takes all groups to be as large as the first
hierarchical|return (g & (g - 1)) == 0 && (g == 1|return (g == 1|promises the canonical order for groups of three
hierarchical|w->sh->coll == HKT_COLL_REDUCE && is_root != mine)|w->sh->coll == HKT_COLL_REDUCE && is_root)|lets the root wait for itself
hierarchical|const int block = k < group_size(sh, q) ?|const int block = k <= group_size(sh, q) ?|gives groups a block too many
ROWS
echo "$caught caught"
