# docs: sources, included by the top Makefile.am

# ---- manual pages
dist_man_MANS += docs/man/hkt-run.1 docs/man/hkt-perf.1 docs/man/hkt-info.1 docs/man/hkt-verify.1 docs/man/hocket.7

# Puts the option table into hocket(7); tests/test_tools.sh says when that is due.
update-man: hkt-info
	./hkt-info --man-options >hocket.7.options
	sed -i -e '/begin options/r hocket.7.options' \
	  -e '/begin options/,/end options/{/begin options/b' -e '/end options/b' -e 'd}' $(srcdir)/docs/man/hocket.7
	rm hocket.7.options
.PHONY: update-man

# ---- the rule for numbers; tests/test_reduce checks its examples
EXTRA_DIST += docs/numbers.md

EXTRA_DIST += docs/algorithms.md
EXTRA_DIST += docs/versus-2.svg docs/versus-4.svg docs/loss.svg docs/architecture.md docs/bootstrap.md docs/failures.md

dist_man_MANS += docs/man/hkt-plan.1
EXTRA_DIST += docs/planning.md
EXTRA_DIST += docs/launching.md
EXTRA_DIST += docs/checkpoints.md
EXTRA_DIST += docs/network.md
EXTRA_DIST += docs/nccl.md docs/pytorch.md
EXTRA_DIST += docs/cuda.md
EXTRA_DIST += docs/gpu-kernels.md

dist_man_MANS += docs/man/hkt-simulate.1
EXTRA_DIST += docs/simulator.md docs/simulator-times.svg docs/simulator-ring.svg docs/simulator-circulant.svg
EXTRA_DIST += docs/topology.md docs/topology.svg
