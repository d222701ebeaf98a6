#!/bin/sh
# The tools as a user meets them: hkt-run, hkt-perf, hkt-info and their manual pages. Each test says what it proves. Nothing here waits
# for time to pass, only for a condition, with a deadline.
set -u
unset HKT_RANK HKT_SIZE HKT_ID HKT_RESTART HKT_LOG
. "${srcdir:-.}/tests/tool.sh"
run="${TOOL_RUN:-./hkt-run} --timeout 120" perf=${TOOL_PERF:-./hkt-perf} info=${TOOL_INFO:-./hkt-info}

# becomes COMMAND...: waits until it is true, 20 s at most.
becomes() {
    tries=0
    until "$@" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 1000 ] || { fail "never became true: $*"; return 1; }
        sleep 0.02
    done
}

lines() {
    [ "$(cat "$1" 2>/dev/null | wc -l)" -ge "$2" ]
}

# Also true for a zombie whose parent is not ours to hurry.
gone() {
    for pid in "$@"; do
        case $(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) in
        '' | [ZX]*) ;;
        *) return 1 ;;
        esac
    done
}

# ---- hkt-run -----------------------------------------------------------------------------------------------------------

proves "every rank gets its number, the size and one id of 256 digits"
expect 0 $run -n 5 sh -c 'echo $HKT_RANK $HKT_SIZE $HKT_ID'
equal "$(cut -d' ' -f1 "$dir/out" | sort | tr '\n' ' ')" "0 1 2 3 4 " "ranks"
equal "$(cut -d' ' -f2 "$dir/out" | sort -u)" 5 "sizes"
equal "$(cut -d' ' -f3 "$dir/out" | sort -u | wc -l)" 1 "number of ids"
equal "$(sed -n '1s/.* //p' "$dir/out" | tr -d '\n' | wc -c)" 256 "digits"

proves "a job whose rank dies is started again as a new one, so often as was asked, and not when it cannot start or was told to end"
expect 0 $run -n 2 --restart 3 sh -c 'echo $HKT_RESTART $HKT_ID; [ $HKT_RESTART = 2 ] || [ $HKT_RANK = 0 ] || kill -9 $$'
equal "$(cut -d' ' -f1 "$dir/out" | sort -u | tr '\n' ' ')" "0 1 2 " "attempts"
equal "$(cut -d' ' -f2 "$dir/out" | sort -u | wc -l)" 3 "number of ids"
said err 'starting the job again, 2 of 3'
expect 137 $run -n 2 --restart 1 sh -c '[ $HKT_RANK = 0 ] || kill -9 $$'
expect 127 $run -n 1 --restart 3 /nonexistent/program
not_said err again

proves "the exit status is that of the rank that failed first, which is named"
expect 3 $run -n 3 sh -c '[ $HKT_RANK != 1 ] || exit 3; exec sleep 30'
said err 'rank 1 (host .*, pid [0-9]*) ended with exit status 3 .*failed first'
said err 'ending ranks 0 and 2 with SIGTERM'
expect 137 $run --grace 0 -n 2 sh -c '[ $HKT_RANK != 0 ] || kill -9 $$; exec sleep 30'
said err 'rank 0 .* was ended by signal 9, SIGKILL'

proves "the others get time to report by themselves, then SIGTERM, then SIGKILL"
expect 3 $run -n 3 --grace 15 sh -c '[ $HKT_RANK != 0 ] || exit 3; sleep 0.3; echo report of $HKT_RANK'
equal "$(grep -c 'report of [12]' "$dir/out")" 2 "reports"
not_said err SIGTERM
until_armed="until [ -e '$dir/armed' ]; do sleep 0.02; done"
expect 4 $run -n 2 --grace 0.2 sh -c "
    [ \$HKT_RANK != 1 ] || { $until_armed; exit 4; }
    trap 'echo told; exit 0' TERM; : >'$dir/armed'; while :; do sleep 0.05; done"
said out told
not_said err SIGKILL
rm "$dir/armed"
expect 5 $run -n 2 --grace 0.2 sh -c "
    [ \$HKT_RANK != 1 ] || { $until_armed; exit 5; }
    trap '' TERM; : >'$dir/armed'; while :; do sleep 0.05; done"
said err 'ending rank 0 with SIGKILL'

proves "--keep-going lets the others finish"
expect 6 $run -n 2 --grace 0 --keep-going sh -c '[ $HKT_RANK != 1 ] || exit 6; sleep 0.3; echo finished'
said out finished

proves "--timeout ends the job with 124 and names who still ran"
expect 124 $run -n 3 --timeout 2 sh -c '[ $HKT_RANK != 1 ] || exit 0; exec sleep 30'
said err 'did not end within 2 s.*ranks 0 and 2'

proves "a program that cannot run gives 127 or 126 and one message"
expect 127 $run -n 4 /nowhere/program
equal "$(wc -l <"$dir/err")" 1 "messages"
said err 'cannot start: /nowhere/program: No such file'
: >"$dir/plain"
expect 126 $run -n 4 "$dir/plain"
for flags in "" "-n 0" "-n x" "-n 2 --grace" "-n 2 --bind here true" "--nonsense" "-n 2" "-n 1 --tag --output $dir/o true"; do
    expect 2 $run $flags
    said err 'hkt-run -h lists the flags'
done

proves "standard input goes to rank 0 only"
printf 'one\ntwo\n' | $run -n 3 sh -c 'echo $HKT_RANK $(cat | wc -l)' >"$dir/out"
equal "$(sort "$dir/out" | tr '\n' ';')" "0 2;1 0;2 0;" "lines read"

proves "--export sets variables of the ranks"
expect 0 $run -n 1 --export A=1 --export B='x=y z' sh -c 'echo "$A/$B"'
said out '^1/x=y z$'

proves "--output writes a file for each rank"
expect 0 $run -n 2 --output "$dir/files" sh -c 'echo out $HKT_RANK; echo err $HKT_RANK >&2'
equal "$(cat "$dir/files/rank-1.txt" | tr '\n' ' ')" "out 1 err 1 " "file of rank 1"
equal "$(wc -c <"$dir/out")" 0 "bytes on the terminal"

proves "--tag keeps lines whole, loses none, and keeps stdout and stderr apart, also for a slow reader"
cat >"$dir/talk" <<'TALK'
i=0
while [ $i -lt 1500 ]; do
    printf "line "; printf "%d of %d\n" $i "$HKT_RANK"; printf "error %d of %d\n" $i "$HKT_RANK" >&2
    i=$((i + 1))
done
printf "no newline"
TALK
$run -n 4 --tag sh "$dir/talk" 2>"$dir/err" | { sleep 0.3; cat; } >"$dir/out"
equal "$(wc -l <"$dir/out")" 6004 "lines of output"
equal "$(grep -c '^\[\([0-3]\)\] line [0-9]* of \1$' "$dir/out")" 6000 "whole lines of output"
equal "$(grep -c '^\[[0-3]\] no newline$' "$dir/out")" 4 "last lines"
equal "$(grep -c '^\[\([0-3]\)\] error [0-9]* of \1$' "$dir/err")" 6000 "whole lines of errors"
for rank in 0 1 2 3; do
    sed -n "s/^\[$rank\] line \([0-9]*\) .*/\1/p" "$dir/out" | sort -nc || fail "lines of rank $rank changed places"
done

proves "--tag passes long lines and ends with its reader"
expect 0 $run -n 2 --tag sh -c 'head -c 300000 /dev/zero | tr "\0" x; echo'
equal "$(awk '{ print length($0) }' "$dir/out" | sort -u)" 300004 "length of lines"
$run -n 2 --tag yes 2>/dev/null | head -1 >"$dir/out"
equal "$(cat "$dir/out" | sed 's/^.[01]. //')" y "first line"

proves "--bind core gives each rank one of the processors in turn"
expect 0 $run -n 4 --bind core grep Cpus_allowed_list /proc/self/status
not_said out '[-,]'
equal "$(sort -u "$dir/out" | wc -l)" "$([ "$(nproc)" -gt 4 ] && echo 4 || nproc)" "processors used"

proves "nothing that a rank has started outlives the job"
expect 0 $run -n 2 sh -c "sleep 300 >/dev/null 2>&1 & echo \$! >>'$dir/started'"
becomes gone $(cat "$dir/started")

proves "SIGKILL of the launcher ends all ranks and what they have started"
$run -n 3 sh -c "sleep 300 & echo \$! \$\$ >>'$dir/killed'; wait" &
launcher=$!
becomes lines "$dir/killed" 3
kill -9 $launcher
wait $launcher 2>/dev/null
becomes gone $(cat "$dir/killed")

proves "signals reach every rank once; SIGTERM leaves them time to end by themselves"
$run -n 3 --grace 20 sh -c "
    trap 'echo usr1 >>\"$dir/heard\"' USR1
    trap 'echo term >>\"$dir/heard\"; exit 7' TERM
    echo ready >>'$dir/ready'
    while :; do sleep 0.02; done" 2>"$dir/err" &
launcher=$!
becomes lines "$dir/ready" 3
kill -USR1 $launcher
becomes lines "$dir/heard" 3
kill -TERM $launcher
wait $launcher
equal $? 7 "exit status"
equal "$(sort "$dir/heard" | uniq -c | tr -s ' \n' ' ')" " 3 term 3 usr1 " "signals heard"

proves "SIGTSTP stops and SIGCONT continues ranks and launcher"
$run -n 2 sh -c "echo \$\$ >>'$dir/stoppable'; while :; do sleep 0.02; done" 2>/dev/null &
launcher=$!
becomes lines "$dir/stoppable" 2
state() {
    for pid in $launcher $(cat "$dir/stoppable"); do
        sed 's/.*) \(.\).*/\1/' "/proc/$pid/stat"
    done | sort -u | tr -d '\n'
}
all_stopped() { [ "$(state)" = T ]; }
none_stopped() { case $(state) in *T*) false ;; esac }
kill -TSTP $launcher
becomes all_stopped
kill -CONT $launcher
becomes none_stopped
kill -TERM $launcher
wait $launcher
equal $? 143 "exit status"

# in_terminal INPUT TIMES COMMAND: runs it in a terminal of its own. When "ready" has appeared, types INPUT (printf format) until the
# command has ended, at most TIMES times. (A shell starts background commands with SIGINT ignored.)
in_terminal() {
    mkfifo "$dir/keys"
    timeout 120 env --default-signal=INT,QUIT script -qec "$3" /dev/null <"$dir/keys" >"$dir/screen" 2>&1 &
    terminal=$!
    exec 8>"$dir/keys"
    becomes grep -q ready "$dir/screen"
    typed=0
    while [ $typed -lt "$2" ] && ! gone $terminal; do
        printf "$1" >&8
        typed=$((typed + 1))
        [ "$2" = 1 ] || sleep 0.1
    done
    wait $terminal
    status=$?
    exec 8>&-
    rm -f "$dir/keys"
}

if command -v script >/dev/null; then
    proves "Ctrl-C in a terminal reaches every rank once and gives 130"
    rm -f "$dir/heard"
    cat >"$dir/patient" <<PATIENT
trap 'echo int >>"$dir/heard"; trap - INT; kill -INT \$\$' INT
echo started >>"$dir/patient.log"
[ \$HKT_RANK != 0 ] || { until [ "\$(wc -l <"$dir/patient.log")" = 3 ]; do sleep 0.02; done; echo ready; }
while :; do sleep 0.02; done
PATIENT
    in_terminal '\003' 1 "$run --grace 20 -n 3 sh $dir/patient"
    equal "$status" 130 "exit status"
    equal "$(grep -c int "$dir/heard")" 3 "interrupts heard"

    proves "three times Ctrl-C ends ranks that do not listen"
    in_terminal '\003' 100 "$run -n 2 sh -c 'trap \"\" INT TERM; echo ready; while :; do sleep 0.02; done'"
    equal "$status" 130 "exit status"
    grep -q 'interrupted three times' "$dir/screen" || fail "no word about it"

    proves "a rank that wants the terminal gets it"
    in_terminal 'typed\n' 1 "$run -n 2 sh -c '[ \$HKT_RANK = 0 ] || exit 0; echo ready; read line; echo got \$line'"
    equal "$status" 0 "exit status"
    grep -q 'got typed' "$dir/screen" || fail "rank 0 did not read it: $(cat "$dir/screen")"
fi

# ---- hkt-info ----------------------------------------------------------------------------------------------------------

proves "hkt-info shows every option with its value"
HKT_SPIN=123 "$info" --options >"$dir/out"
sed -n 's/^ *X(\([A-Z_]*\), .*/HKT_\1/p' "$src/src/base/option.h" >"$dir/names"
[ "$(wc -l <"$dir/names")" -ge 10 ] || fail "the options were not found in option.h"
while read -r name; do
    said out "^$name "
done <"$dir/names"
said out '^HKT_SPIN  *123 '

proves "the table of hocket(7) is the option table"
"$info" --man-options >"$dir/roff"
sed -n '/begin options/,/end options/p' "$src/docs/man/hocket.7" | sed '1d;$d' >"$dir/page"
cmp -s "$dir/roff" "$dir/page" || fail "docs/man/hocket.7 is old, make update-man mends it ($(diff "$dir/roff" "$dir/page" | head -5))"

proves "hkt-info describes the machine, the algorithms and the plan"
expect 0 "$info"
for what in processors caches process_vm_readv membarrier kernels transports algorithms; do
    said out "$what"
done
expect 0 "$info" --algorithms -n 8 -b 1M
for what in all_reduce all_to_all; do
    said out "^$what"
done
equal "$(grep -c '^  \*' "$dir/out")" 8 "chosen algorithms, one a collective"
expect 0 "$info" --plan all_reduce -n 4 -b 64M
said out '^runs [a-z]*:'
said out '<- '
expect 0 "$info" --plan all_reduce -n 4 -b 8
said out 'runs flat'
HKT_ALGORITHM=ring "$info" --plan all_reduce -n 4 -b 64M --order any >"$dir/out"
said out '^runs ring'
expect 2 "$info" --plan nothing
expect 2 "$info" -n 2 --root 2

proves "the machine is printed, drawn, saved and loaded; another one too"
expect 0 "$info" --topology
said out '^machine'
said out 'host 0'
said out 'ring 0: '
expect 0 "$info" --svg "$dir/topology.svg" --xml "$dir/topology.xml"
tail -1 "$dir/topology.svg" | grep -q '</svg>' || fail "the drawing is not whole"
expect 0 env HKT_MACHINE="$dir/topology.xml" "$info" --xml "$dir/again.xml"
cmp -s "$dir/topology.xml" "$dir/again.xml" || fail "a machine differs when it is loaded and saved again"
expect 0 "$info" --topology --machine '2 hosts; 4 gpus nvswitch 450GB/s; 4 nics 400Gb/s'
said out '^8 ranks on 2 hosts, 4 rails'
said out '^ring 3: '
for machine in "$src"/tests/topologies/*.xml; do
    expect 0 "$info" --machine "$machine" --svg "$dir/topology.svg"
    ! grep -q 'nan\|inf"\|="-' "$dir/topology.svg" || fail "the drawing of $machine has numbers that are none"
done
expect 1 "$info" --topology --machine '2 nodes'
said err '2 nodes'
expect 1 "$info" --topology --machine "$dir/none.xml"
said err 'No such file'

# ---- hkt-perf ----------------------------------------------------------------------------------------------------------

# Columns: size count type redop root time algbw busbw wrong time algbw busbw wrong
rows() {
    grep -v '^#' "$dir/out"
}

proves "every collective is right with 3 ranks, 5 threads, and one rank"
for how in "$run -n 3 $perf" "$perf -t 5" "$perf"; do
    expect 0 $how all -b 8 -e 64K -f 8 -n 3 -w 1
    said out 'Out of bounds values : 0 OK'
    equal "$(rows | awk '$9 != 0 && $9 != "N/A" || $13 != 0 && $13 != "N/A"' | wc -l)" 0 "wrong rows"
    [ "$(rows | wc -l)" -ge 60 ] || fail "only $(rows | wc -l) rows"
done

proves "every type and operator is right, threads of several processes, on a stream, in every kind of memory"
for flags in "-R 0" "-R 1 -z 0" "-R 2 -u 3" "-m 3 -z 0"; do
    expect 0 $run -n 2 "$perf" -t 2 all_reduce reduce_scatter -b 1000 -e 1000 -d all -o all -n 1 -w 0 $flags
    equal "$(rows | wc -l)" 168 "rows with $flags"
    said out 'Out of bounds values : 0 OK'
done

proves "roots, steps, cycles and statistics do what they say"
expect 0 $run -n 3 "$perf" broadcast -r all -b 100 -e 300 -i 100 -d int8 -N 2 --stat median -n 4 -w 0
equal "$(rows | awk '{ printf "%s/%s ", $1, $5 }')" "$(for cycle in 1 2; do printf '100/0 200/0 300/0 100/1 200/1 300/1 100/2 200/2 300/2 '; done)" "size/root"
expect 0 $run -n 2 "$perf" all_reduce -b 64 -e 64 -v --shift 64K --stat min -a 3 -n 20
rows | awk 'NF != 19 { bad = 1 } END { exit bad }' || fail "columns of --verbose"

proves "bus bandwidth is algorithm bandwidth times the factor of nccl-tests"
expect 0 $run -n 4 "$perf" all -b 1M -e 1M -n 2 -w 0 -c 0 -J "$dir/results.json"
if command -v python3 >/dev/null; then
    python3 - "$dir/results.json" <<'PYTHON' || fail "factors"
import json, sys
data = json.load(open(sys.argv[1]))
factor = {"all_reduce": 1.5, "broadcast": 1, "reduce": 1, "sendrecv": 1, "pingpong": 1, "barrier": 1}
assert len(data["results"]) == 16 and len(data["ranks"]) == 4, data
for row in data["results"]:
    for cell in (row["out_of_place"], row["in_place"]):
        if cell is None:
            continue
        wanted = cell["alg_bw"] * factor.get(row["collective"], 0.75)
        assert abs(cell["bus_bw"] - wanted) <= 1e-4 * wanted, row
        bandwidth = row["size"] / cell["time"] / 1e3
        assert abs(cell["alg_bw"] - bandwidth) <= 1e-4 * bandwidth, row
PYTHON
fi

proves "a wrong bit is found, shown and fails the run"
cat >"$dir/wrong.c" <<'WRONG'
#define _GNU_SOURCE
#include "hocket.h"
#include <dlfcn.h>
int hkt_all_gather(const void *send, void *recv, size_t count, hkt_type_t type, hkt_comm_t *comm, hkt_stream_t *stream)
{
    int (*real)(const void *, void *, size_t, hkt_type_t, hkt_comm_t *, hkt_stream_t *);
    int rc, rank = 0;

    *(void **)&real = dlsym(RTLD_NEXT, "hkt_all_gather");
    rc = real(send, recv, count, type, comm, stream);
    hkt_comm_rank(comm, &rank);
    if (count == 250 && rank == 1)
        ((unsigned char *)recv)[2003] ^= 1; /* lowest bit of a byte of element 250, the second rank's first */
    return rc;
}
WRONG
if ${CC:-cc} -shared -fPIC -I"$src/include" -o "$dir/wrong.so" "$dir/wrong.c" -ldl 2>/dev/null &&
    LD_PRELOAD="$dir/wrong.so" $run -n 2 true 2>/dev/null; then
    LD_PRELOAD="$dir/wrong.so" $run --keep-going -n 2 "$perf" all_gather -d int64 -b 4000 -e 4000 -n 2 -w 0 >"$dir/out" 2>"$dir/err"
    equal $? 1 "exit status"
    said out 'Out of bounds values : .* FAILED'
    said err 'element 0 of the part from rank 1 is 0x'
else
    echo "  not run: no compiler, or no shared library"
fi

proves "the plot is drawn"
expect 0 $run -n 2 "$perf" all_reduce -b 8 -e 4K -n 2 --svg "$dir/plot.svg"
tail -1 "$dir/plot.svg" | grep -q '</svg>' || fail "the plot is not whole"
! grep -q 'nan\|inf"' "$dir/plot.svg" || fail "the plot has numbers that are none"

for words in "" "nothing" "all_reduce -d float33" "all_reduce -o plus" "broadcast -r 9" "all_reduce -f 1"; do
    expect 2 "$perf" $words
done

# ---- manual pages ------------------------------------------------------------------------------------------------------

proves "the manual pages have every flag of -h and no other"
for tool in run perf info verify; do
    [ -x "./hkt-$tool" ] || continue
    page_is_whole "hkt-$tool" "./hkt-$tool"
done

finish
