#!/bin/sh
# Proves what hkt-simulate shows and writes: times that are known from formulas, the choice with its reasons and the table that overrules it,
# JSON and drawings that are whole, a hundred thousand ranks, the start, exit codes, a manual page with every flag; and that the library takes the table.
set -u
. "${srcdir:-.}/tests/tool.sh"
simulate=${SIMULATE_TOOL:-./hkt-simulate}

# the ring over 1000 ranks: 1998 latencies of 2 us
expect 0 "$simulate" -F ideal -n 1000 -a ring -b 1K -e 1K
said out '1 KiB  ring  *4.00 ms .* 1998  latency 100 %'

# what is best, why, and a table that knows better
expect 0 "$simulate" -F ideal -C -b 1K -e 1K
said out 'all_reduce of 1 KiB: radix'
said out '  ring  *126 messages one after the other; latency 252 us of 252 us'
said out '  hierarchical  *cannot: it needs the ranks in two groups or more'
printf '# mine\nall_reduce 2-100 * 0-4K halving\n' >"$dir/table"
expect 0 "$simulate" -F ideal -C -b 1K -e 1M -f 1024 -T "$dir/table"
said out 'all_reduce of 1 KiB: halving, by line 2 of the table'
said out 'all_reduce of 1 MiB: direct$'
said out '^1 rules, hash [0-9a-f]*$'
printf 'all_reduce 2-100 * 0-4K\n' >"$dir/table.bad"
expect 1 "$simulate" -F ideal -T "$dir/table.bad"
said err 'line 1, column 24: the line ends before it says the algorithm'
HKT_TUNING=$dir/table expect 0 ./hkt-info --algorithms -n 4 -b 4K
said out '\* halving'
HKT_TUNING=$dir/table.bad expect 0 ./hkt-info --algorithms -n 4 -b 4K
said err 'HKT_TUNING: .*line 1, column 24'
said out '\* direct'

# files
expect 0 "$simulate" -F ib-ndr -n 32 -p 4 -b 1K -e 1M --json "$dir/a.json" --svg "$dir/a.svg" --timeline "$dir/t.svg"
for drawing in a t; do
    tail -1 "$dir/$drawing.svg" | grep -q '</svg>' || fail "the drawing $drawing is not whole"
    ! grep -q 'nan\|inf[" ]' "$dir/$drawing.svg" || fail "the drawing $drawing has numbers that are none"
done
[ "$(grep -c '>rank [0-9]*<' "$dir/t.svg")" = 32 ] || fail "not every rank has a lane"
if command -v python3 >/dev/null; then
    python3 - "$dir/a.json" <<'PYTHON' || fail "JSON"
import json, sys
data = json.load(open(sys.argv[1]))
assert data["ranks"] == 32 and data["fabric"]["hosts"] == 8 and len(data["sizes"]) == 3
for size in data["sizes"]:
    offers = [o for o in size["offers"] if "seconds" in o]
    assert len(offers) > 10 and offers == sorted(offers, key=lambda o: o["seconds"])
    for o in offers:
        assert abs(sum(o["parts"].values()) - o["seconds"]) < 1e-9, o
        assert o["seconds"] >= 0.999 * size["bound"], (o, size["bound"])
PYTHON
    "$simulate" -F ideal -n 4 --json - | python3 -c 'import json, sys; json.load(sys.stdin)' || fail "JSON on the standard output"
fi

# sizes that no machine here has
expect 0 "$simulate" -n 100000 -a hierarchical --outer circulant -b 64M -e 64M
said out 'hierarchical(direct,circulant)'
expect 0 "$simulate" -n 100000 -a halving -b 64M -e 64M
said out 'cannot: halving all_reduce over 100000 ranks takes more messages'
expect 0 "$simulate" --start 100000
said out 'depth 5, 16 connections'

# this computer
expect 0 "$simulate" --measure -a ring -b 1M -e 1M
said out 'measured on this computer'

# what is refused
expect 2 "$simulate" -a rong
said err 'there is no algorithm rong'
expect 2 "$simulate" -F ideal -n 4 -r 4 -c broadcast
expect 2 "$simulate" --window 64
expect 1 "$simulate" -n 13 -p 8
said err '13 ranks do not fill hosts of 8'
expect 1 "$simulate" -F ideal -n 4 --per-leaf 3
said err '4 hosts do not fill leaf switches of 3 hosts'

page_is_whole hkt-simulate "$simulate"
finish
