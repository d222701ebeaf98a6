#!/usr/bin/env bash
# Programs started by the launchers that clusters have: mpirun of Open MPI and of MPICH, Slurm with and without PMI, torchrun's variables,
# an address given by hand. The launchers are the real ones; Slurm is configured and started here, one node, in a scratch folder. What is not
# installed is left out and named. Nothing here waits for time to pass, only for a condition, with a deadline.
set -u
for name in $(env | sed -n 's/^\(\(HKT\|SLURM\|PMI\|PMIX\|OMPI\)_[A-Z0-9_]*\)=.*/\1/p'); do unset "$name"; done
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT
. "${srcdir:-.}/tests/tool.sh"
program=${LAUNCH_PROGRAM:-tests/launched} info=${TOOL_INFO:-./hkt-info}
absent= parts=0 servers=

[ -x "$program" ] || { echo "$program is not there; make check-launchers builds it"; exit 1; }

have() { command -v "$1" >/dev/null 2>&1; }

# becomes COMMAND...: waits until it is true, 30 s at most.
becomes() {
    local tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { fail "never became true: $*"; return 1; }
        sleep 0.05
    done
}

# gone PID...: also true for zombies whose parent is not ours to hurry.
gone() {
    local pid
    for pid in "$@"; do
        case $(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) in
        '' | [ZX]*) ;;
        *) return 1 ;;
        esac
    done
}

lines() { [ "$(grep -c "$2" "$1")" -ge "$3" ]; }

# Three ranks have come, or never will.
started() { lines "$1" '^rank' 3 || gone "$2"; }

# met N: what was printed are N ranks of N that have added up 1 to N.
met() {
    equal "$(sed -n 's/^rank \([0-9]* of [0-9]*, sum [0-9]*\), .*/\1/p' "$dir/out" | sort -n)" \
        "$(seq 0 $(($1 - 1)) | sed "s/\$/ of $1, sum $(($1 * ($1 + 1) / 2))/")" "ranks"
}

# works_with COMMAND...: a launcher with all but the number and the program. Ranks meet; a rank that dies is named by the others, which end, and
# so does the launcher; and when the launcher is ended, so are the ranks.
works_with() {
    local launcher victim pids
    parts=$((parts + 1))
    for n in 1 2 4; do
        expect 0 timeout 150 "$@" -n $n "$program"
        met $n
    done
    : >"$dir/log"
    timeout 150 "$@" -n 3 "$program" stay >"$dir/log" 2>"$dir/log.err" </dev/null &
    launcher=$!
    becomes started "$dir/log" $launcher
    if lines "$dir/log" '^rank' 3; then
        pids=$(sed -n 's/.*pid //p' "$dir/log")
        victim=$(sed -n 's/^rank 1 .*pid //p' "$dir/log")
        kill -9 "$victim"
        # shellcheck disable=SC2086 # words are wanted
        becomes gone $pids && becomes gone $launcher
        wait $launcher && fail "a rank was killed, and the launcher said that all was well"
    fi
    : >"$dir/log"
    timeout 150 "$@" -n 3 "$program" stay >"$dir/log" 2>"$dir/log.err" </dev/null &
    launcher=$!
    becomes started "$dir/log" $launcher
    if lines "$dir/log" '^rank' 3; then
        pids=$(sed -n 's/.*pid //p' "$dir/log")
        kill -TERM $launcher # timeout passes it on
        # shellcheck disable=SC2086
        becomes gone $pids && becomes gone $launcher
        wait $launcher
    else
        fail "three ranks did not come:"
        cat "$dir/log.err"
    fi
}

# by_hand N VARIABLES...: N ranks started from here; rank R gets the variables, in which R stands for @.
by_hand() {
    local n=$1 r pids=
    shift
    : >"$dir/out"
    for ((r = 0; r < n; r++)); do
        env "${@//@/$r}" "$program" >>"$dir/out" 2>"$dir/err.$r" </dev/null &
        pids="$pids $!"
    done
    for r in $pids; do
        wait "$r" || { fail "a rank failed:"; cat "$dir"/err.*; }
    done
    met "$n"
}

# ---- without a launcher --------------------------------------------------------------------------------------------------

proves "HKT_ROOT, with rank and size by hand or counted by a launcher whose server is not asked"
by_hand 3 HKT_ROOT=localhost:14001 HKT_SECRET=xyz HKT_RANK=@ HKT_SIZE=3
by_hand 2 HKT_ROOT=localhost:14001 SLURM_PROCID=@ SLURM_STEP_NUM_TASKS=2
by_hand 2 HKT_ROOT=localhost:14001 PMI_RANK=@ PMI_SIZE=2 PMI_FD=77
by_hand 2 HKT_ROOT=localhost:14001 OMPI_COMM_WORLD_RANK=@ OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=@ PMIX_NAMESPACE=nothing

proves "torchrun's variables, also below a launcher that has numbered the agent"
by_hand 3 RANK=@ WORLD_SIZE=3 LOCAL_RANK=@ MASTER_ADDR=localhost MASTER_PORT=29500
by_hand 2 RANK=@ WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none PMIX_RANK=0 PMIX_NAMESPACE=agent

proves "Slurm's variables"
by_hand 2 SLURM_PROCID=@ SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST='localhost,x[1-4]' SLURM_JOB_ID=7 SLURM_STEP_ID=0

proves "who has another secret or is of another attempt does not come in"
HKT_RANK=1 HKT_SIZE=2 HKT_ROOT=localhost:14002 HKT_SECRET=a HKT_INIT_TIMEOUT=2 "$program" >/dev/null 2>"$dir/other" &
other=$!
expect 3 env HKT_RANK=0 HKT_SIZE=2 HKT_ROOT=localhost:14002 HKT_SECRET=b HKT_INIT_TIMEOUT=2 "$program"
wait $other && fail "the other came in"
said err '1 of 2 ranks'

proves "what does not make sense is refused with a sentence that says which variable"
expect 3 env HKT_RANK=0 HKT_SIZE=2 "$program"
said err 'HKT_ROOT=(not set)'
expect 3 env HKT_RANK=2 HKT_SIZE=2 HKT_ROOT=localhost:14001 "$program"
said err 'HKT_RANK=2, but HKT_SIZE=2'
expect 3 env HKT_RANK=0 HKT_SIZE=2 HKT_ROOT=localhost "$program"
said err 'localhost.* does not say where rank 0 is'
expect 3 env HKT_ROOT=localhost:14001 "$program"
said err 'HKT_RANK=-1'
expect 3 env RANK=1 WORLD_SIZE=two MASTER_ADDR=localhost MASTER_PORT=1 "$program"
said err 'WORLD_SIZE=two is no number'
expect 3 env RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost "$program"
said err 'MASTER_PORT is not set'
expect 3 env PMI_FD=77 PMI_RANK=0 PMI_SIZE=2 "$program"
said err 'PMI_FD=77, but descriptor 77 is no socket'
expect 3 env PMI_PORT=nowhere PMI_ID=0 "$program"
said err 'PMI_PORT=nowhere is not host:port'
expect 3 env PMI_PORT=127.0.0.1:1 PMI_ID=0 "$program"
said err 'PMI_PORT=127.0.0.1:1: no connection to the launcher'
expect 3 env SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST='a[1-' SLURM_JOB_ID=7 SLURM_STEP_ID=0 "$program"
said err 'SLURM_STEP_NODELIST=a\[1-: its first host cannot be read'
expect 3 env PMIX_RANK=0 PMIX_NAMESPACE=gone PMIX_SERVER_URI4=gone.0\;tcp4://127.0.0.1:1 HKT_INIT_TIMEOUT=20 "$program"
said err 'PMIX'

# fake NAME TEXT: a shared library of a C source, or of anything else.
fake() {
    mkdir -p "$dir/fake"
    printf '%s\n' "$2" >"$dir/fake/source.c"
    ${CC:-cc} -shared -fPIC -o "$dir/fake/$1" "$dir/fake/source.c" 2>/dev/null || cp "$dir/fake/source.c" "$dir/fake/$1"
}

proves "a PMIx library that is none, lacks something, fails or never answers is an error in time; so is MPI in a program that is to speak PMI"
with_fake="env LD_LIBRARY_PATH=$dir/fake PMIX_RANK=0 PMIX_NAMESPACE=a HKT_INIT_TIMEOUT=0.5"
rest='int PMIx_Put() { return 0; } int PMIx_Commit() { return 0; } int PMIx_Fence() { return 0; } int PMIx_Get() { return -46; }
int PMIx_Finalize() { return 0; } const char *PMIx_Error_string() { return "NOT FOUND"; } int PMIx_Init()'
fake libpmix.so.2 'no library'
expect 3 $with_fake "$program"
said err 'PMIX_RANK=0 says .* cannot be loaded'
fake libpmix.so.2 'int PMIx_Init() { return 0; }'
expect 3 $with_fake "$program"
said err 'libpmix.so.2 has no PMIx_Put'
fake libpmix.so.2 "$rest { return 0; }"
expect 3 $with_fake "$program"
said err "PMIx_Get of the job's size: NOT FOUND (-46)"
fake libpmix.so.2 "int pause(); $rest { for (;;) pause(); }"
expect 3 $with_fake "$program"
said err 'PMIx_Init did not end in time'
fake libmpi.so 'int MPI_Init() { return 0; }'
expect 3 env LD_PRELOAD="$dir/fake/libmpi.so" PMI_FD=77 PMI_RANK=0 PMI_SIZE=1 "$program"
said err 'in a program with MPI, under a launcher that speaks PMI'

proves "hkt-info says which launcher it is, why, and with what, but no secrets"
expect 0 env HKT_RANK=1 HKT_SIZE=2 HKT_ROOT=a:1 HKT_SECRET=hush RANK=0 WORLD_SIZE=2 MASTER_ADDR=b $info --launcher
said out '^hocket *is used'
said out 'HKT_ROOT *a:1'
said out '^torch *present'
said out 'HKT_SECRET *(set)'
not_said out hush
expect 0 env HKT_SECRET=hush $info --options
not_said out hush
expect 0 $info --launcher
said out '^none *is used'

# ---- mpirun --------------------------------------------------------------------------------------------------------------

if have mpirun.openmpi; then
    proves "mpirun of Open MPI (PMIx)"
    works_with mpirun.openmpi --allow-run-as-root --oversubscribe
    expect 0 timeout 150 mpirun.openmpi --allow-run-as-root -n 1 $info --launcher
    said out '^pmix *is used'
else
    absent="$absent openmpi-bin"
fi

if have mpirun.mpich; then
    proves "mpirun of MPICH (PMI-1 over a descriptor)"
    works_with mpirun.mpich
    proves "mpirun of MPICH (PMI-1 at a port)"
    works_with mpirun.mpich -pmi-port
    expect 0 timeout 150 mpirun.mpich -n 1 $info --launcher
    said out '^pmi *is used'
else
    absent="$absent mpich"
fi

# ---- the structs of PMIx -------------------------------------------------------------------------------------------------

if pkg-config --exists pmix 2>/dev/null; then
    proves "what launch_pmix.c declares of PMIx is what the machine's header declares"
    {
        sed -n '/^enum { PMIX_MAX/,/^struct calls/p' "$src/src/setup/launch_pmix.c" | sed '/^struct calls/d; s/\bPMIX_/OUR_/g; s/\bpmix_/our_/g'
        printf '#include <pmix.h>\n#define SAME(a, b) _Static_assert((a) == (b), #a)\n'
        for name in BOOL STRING UINT16 UINT32 GLOBAL MAX_NSLEN MAX_KEYLEN RANK_WILDCARD; do
            case $name in
            RANK_WILDCARD) echo "SAME(UINT32_MAX - 1, PMIX_$name);" ;;
            *) echo "SAME(OUR_$name, PMIX_$name);" ;;
            esac
        done
        for pair in proc.rank value.data info.flags info.value; do
            echo "SAME(offsetof(struct our_${pair%.*}, ${pair#*.}), offsetof(pmix_${pair%.*}_t, ${pair#*.}));"
            echo "SAME(sizeof(struct our_${pair%.*}), sizeof(pmix_${pair%.*}_t));"
        done
        echo '_Static_assert(__builtin_types_compatible_p(__typeof__(PMIx_Commit), int(void)), "PMIx_Commit");'
    } >"$dir/pmix.body"
    { printf '#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n'; cat "$dir/pmix.body"; } >"$dir/pmix.c"
    # shellcheck disable=SC2046
    expect 0 ${CC:-cc} -std=gnu11 $(pkg-config --cflags pmix) -c "$dir/pmix.c" -o "$dir/pmix.o"
else
    absent="$absent libpmix-dev"
fi

# ---- Slurm ---------------------------------------------------------------------------------------------------------------

# The servers are ended by pid, whatever happens; the job's ranks have ended with it.
stop_servers() {
    local pid
    # shellcheck disable=SC2086
    for pid in $servers; do kill "$pid" 2>/dev/null; done
    # shellcheck disable=SC2086
    [ -z "$servers" ] || becomes gone $servers || kill -9 $servers 2>/dev/null
    servers=
}
trap 'stop_servers; rm -rf "$dir"' EXIT

# One node, this machine, with its own keys, sockets and ports.
start_slurm() {
    local name port=$((15000 + $$ % 8000 * 2))
    name=$(hostname -s)
    mkdir -m 755 "$dir/slurm" "$dir/slurm/state" "$dir/slurm/spool" "$dir/munge"
    chmod 755 "$dir"
    cat >"$dir/slurm/slurm.conf" <<END
ClusterName=hocket
SlurmctldHost=$name(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=2
StateSaveLocation=$dir/slurm/state
SlurmdSpoolDir=$dir/slurm/spool
SlurmctldPidFile=$dir/slurm/slurmctld.pid
SlurmdPidFile=$dir/slurm/slurmd.pid
SlurmctldLogFile=$dir/slurm/slurmctld.log
SlurmdLogFile=$dir/slurm/slurmd.log
NodeName=$name NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$name Default=YES OverSubscribe=FORCE State=UP
END
    export SLURM_CONF=$dir/slurm/slurm.conf
    mungekey -c -k "$dir/munge/key" || return 1
    munged -F --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" --pid-file="$dir/munge/pid" --log-file="$dir/munge/log" \
        --seed-file="$dir/munge/seed" >/dev/null 2>&1 &
    servers=$!
    becomes [ -S "$dir/munge/socket" ] || return 1
    slurmctld -D >/dev/null 2>&1 &
    servers="$servers $!"
    slurmd -D -N "$name" >/dev/null 2>&1 &
    servers="$servers $!"
    becomes sh -c 'sinfo -h -o %T | grep -q idle'
}

for tool in slurmctld:slurmctld slurmd:slurmd srun:slurm-client munged:munge; do
    have "${tool%:*}" || no_slurm="${no_slurm-} ${tool#*:}"
done
[ "$(id -u)" = 0 ] || no_slurm=" (Slurm: to be run by root)"
if [ -n "${no_slurm-}" ]; then
    absent="$absent$no_slurm"
elif ! start_slurm; then
    fail "Slurm does not start:"
    tail -n 20 "$dir"/slurm/*.log "$dir/munge/log"
else
    kinds=$(srun --mpi=list 2>&1)
    for kind in none pmi2 pmix; do
        case $kinds in
        *$kind*)
            proves "srun --mpi=$kind"
            works_with srun --mpi=$kind --overcommit --immediate=30
            ;;
        *) absent="$absent slurm-wlm-basic-plugins:$kind" ;;
        esac
    done
    proves "a batch script, whose steps are jobs of their own and which is none itself"
    cat >"$dir/batch" <<END
#!/bin/sh
"$PWD/$info" --launcher
srun --mpi=none --overcommit -n 2 "$PWD/$program"
srun --mpi=pmi2 --overcommit -n 2 "$PWD/$program"
END
    expect 0 timeout 150 sbatch --wait -o "$dir/batch.out" -n 1 "$dir/batch"
    equal "$(grep -c 'of 2, sum 3' "$dir/batch.out")" 4 "ranks"
    grep -q '^none *is used' "$dir/batch.out" || { fail "the script itself is taken for a rank:"; cat "$dir/batch.out"; }
    [ $failures = 0 ] || tail -n 20 "$dir"/slurm/*.log
fi

[ -z "$absent" ] || echo "not tested, for want of packages (names of Debian):$absent"
[ $failures != 0 ] || [ $parts != 0 ] || exit 77
finish
