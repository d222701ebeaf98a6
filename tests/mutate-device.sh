#!/bin/sh
# Proves that test_device catches slips in what runs collectives on GPUs: each row below changes one line of a source; the changed library must fail.
# Part of make check-long; skipped without a compiler.
set -eu
srcdir=${srcdir:-.}
CC=${CC:-cc}
core=.libs/libcore.a
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ -f $core ] && [ -f tests/fakecuda/.libs/libcuda.so.1 ] && command -v "${CC%% *}" >/dev/null || exit 77
[ -n "${TEST_LONG:-}" ] || exit 77
FAKECUDA_JITTER=${FAKECUDA_JITTER:-100}
export FAKECUDA_JITTER

compile() { # OUTPUT SOURCE
    # shellcheck disable=SC2086 # both may hold several words
    $CC ${CFLAGS:-} -std=c11 -D_GNU_SOURCE -fvisibility=hidden -pthread -w -I. -I"$srcdir" -I"$srcdir/include" -I"$srcdir/src" -I"$srcdir/tests" -c -o "$1" "$2"
}

for part in test_device gpu arena harness job reference; do
    compile "$scratch/$part.o" "$srcdir/tests/$part.c"
done

# The libraries that libcore needs.
libraries=$(sed -n 's/^LIBCRYPTO_LIBS = //p; s/^HWLOC_LIBS = //p; s/^UCX_LIBS = //p; s/^CHECK_LIBS = //p; s/^LIBS = //p' Makefile | tr '\n' ' ')
caught=0
while IFS='|' read -r file from to cases what; do
    [ -n "$file" ] || continue
    FROM=$from TO=$to awk 'BEGIN { from = ENVIRON["FROM"]; to = ENVIRON["TO"] }
        (i = index($0, from)) { $0 = substr($0, 1, i - 1) to substr($0, i + length(from)); n++ } { print } END { exit n != 1 }' \
        "$srcdir/src/$file" >"$scratch/mutant.c" || { echo "$file: '$from' does not stand on exactly one line"; exit 1; }
    compile "$scratch/mutant.o" "$scratch/mutant.c"
    # shellcheck disable=SC2086 # a list
    $CC ${CFLAGS:-} -pthread -o "$scratch/mutant" "$scratch/mutant.o" "$scratch"/test_device.o "$scratch"/gpu.o "$scratch"/arena.o \
        "$scratch"/harness.o "$scratch"/job.o "$scratch"/reference.o $core $libraries -lm
    missed=yes
    for case in $cases; do
        CK_RUN_CASE=$case timeout 100 "$scratch/mutant" >"$scratch/said" 2>&1 || { missed=no; break; }
    done
    [ $missed = no ] || { echo "$file: not caught: $what"; exit 1; }
    printf '%-22s %s\n    %s\n' "$file" "$what" "$(grep -m 1 'rank [0-9]* of' "$scratch/said" | cut -c1-150)"
    caught=$((caught + 1))
done <<'ROWS'
run/execute_cuda.c|wait_word(&b, flag(w, me, phase, (me + k) % n));|if (phase == DONE) wait_word(&b, flag(w, me, phase, (me + k) % n));|late_rank graphs_are_replayed random_streams|reads before the others are ready
run/execute_cuda.c|wait_word(&b, flag(w, me, phase, (me + k) % n));|if (phase == READY) wait_word(&b, flag(w, me, phase, (me + k) % n));|late_rank graphs_are_replayed random_streams|copies out before the leader has written
run/execute_cuda.c|write_word(&b, flag(w, me, phase, (me + k) % n), 0);|;|late_rank random_streams graphs_are_replayed|does not take flags back
run/execute_cuda.c|return out ? 0 : copy(w, true);|return 0;|mixed_memory every_collective_type_operator|keeps the result of the low latency kernel
run/execute_cuda.c|for (int i = 0; i < w->g->nacts; i++)|for (int i = 1; i < w->g->nacts; i++)|late_rank|the leader forgets itself
run/execute_cuda.c|a.wait  = HKT_KERNEL_BEFORE|a.wait  = 0|late_rank random_streams every_collective_type_operator|does not wait before the kernel
run/execute_cuda.c|s->out   = w->call->op == HKT_AVG && reduces ? HKT_SEGMENT_DIVIDE : 0;|s->out = 0;|every_collective_type_operator|does not divide
run/execute_cuda.c|a->order   = hkt_kernel_order(w->call->type, w->call->op);|a->order = 0;|every_collective_type_operator|takes the maximum for the minimum
run/execute_cuda.c|*offset = (size_t)block * w->stride|*offset = (size_t)block * w->count * w->call->element|every_collective_type_operator|lets blocks begin anywhere
run/execute_cuda.c|HKT_TRY(order(g, stream));|;|random_streams|lets streams pass one another
run/execute_cuda.c|atomic_store(&own->number, w->number);|;|different_calls|does not show its call
run/gpu_watch.c|atomic_store(&w->flag[phase][r], 1);|;|streams_are_let_go|does not let streams go
run/gpu_watch.c|atomic_store(&w->abort, 1);|;|streams_are_let_go|does not let kernels go
run/gpu_watch.c|look_for_death(g, begun);|;|streams_are_let_go|does not look for death
run/staged.c|for (r++; r < s->size && displs[r] == end; r++)|for (r++; r < s->size; r++)|every_collective_type_operator|copies back what is between blocks
ROWS
echo "$caught slips, all caught"
