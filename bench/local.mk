# bench: the side-by-side runs. bench/versus builds the measuring programs with the compilers of
# the libraries it finds (docs/benchmarks.md).
EXTRA_DIST += \
	docs/benchmarks.md \
	bench/slow-link \
	bench/verbs-compare \
	bench/versus \
	bench/versus-train \
	bench/versus_llmc.py \
	bench/versus_torch.py \
	bench/versus_build.py \
	bench/versus_measure.py \
	bench/versus_network.py \
	bench/versus-shell \
	bench/versus_plot.py \
	bench/versus_report.py \
	bench/versus_result.py \
	bench/backend_floor.c \
	bench/backend_gloo.cc \
	bench/backend_hocket.c \
	bench/backend_mpi.c \
	bench/backend_socket.c \
	bench/cell.c \
	bench/floor_kernels.h \
	bench/harness.c \
	bench/harness.h \
	bench/network.c \
	bench/network.h \
	bench/priority.h \
	bench/probe.c

# The wire beside plain sockets (docs/network.md): of this library alone, so it is built with it.
noinst_PROGRAMS += bench/wire
bench_wire_SOURCES = bench/wire.c
bench_wire_LDADD = libcore.la

# What only a real GPU can show: bench/gpu-check.
EXTRA_DIST += bench/gpu-check
noinst_PROGRAMS += bench/gpu_times
bench_gpu_times_SOURCES = bench/gpu_times.c
bench_gpu_times_LDADD = libcore.la -lm
