# tests/fakecuda: a driver for tests without a GPU, the kernels built for the processor, and the suites of both. Nothing is installed.
# Programs find the driver by LD_LIBRARY_PATH=tests/fakecuda/.libs.
FAKECUDA_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tests/fakecuda
check_LTLIBRARIES += tests/fakecuda/libcuda.la
tests_fakecuda_libcuda_la_SOURCES = tests/fakecuda/device.c tests/fakecuda/entry.c tests/fakecuda/event.c tests/fakecuda/fake.h \
	tests/fakecuda/fault.c tests/fakecuda/graph.c tests/fakecuda/ipc.c tests/fakecuda/launch.c tests/fakecuda/memory.c \
	tests/fakecuda/more.h tests/fakecuda/operation.c tests/fakecuda/queue.c tests/fakecuda/settings.c tests/fakecuda/share.c \
	tests/fakecuda/simt.c tests/fakecuda/simt.h tests/fakecuda/stream.c tests/fakecuda/vmm.c
tests_fakecuda_libcuda_la_CPPFLAGS = $(FAKECUDA_CPPFLAGS)
tests_fakecuda_libcuda_la_LDFLAGS = $(AM_LDFLAGS) -rpath /nowhere -version-info 1:0:0

EXTRA_DIST += tests/kernel_code.py tests/fakecuda/build.sh tests/fakecuda/kernels_few.cc tests/fakecuda/mutations.sh
# Slips made in the kernels on purpose: minutes.
check-mutations-cuda: libcore.la
	CC='$(CC)' CXX='$(CXX)' srcdir=$(srcdir) $(srcdir)/tests/fakecuda/mutations.sh
.PHONY: check-mutations-cuda
dist_check_SCRIPTS += tests/check-kernel-code.sh tests/fakecuda/races.sh
TESTS += tests/check-kernel-code.sh
if HAVE_CXX
TESTS += tests/fakecuda/races.sh
KERNEL_SUITES = tests/test_fakecuda_share tests/test_kernels tests/test_kernels_compress tests/test_kernels_ranks
check_PROGRAMS += $(KERNEL_SUITES)
TESTS += $(KERNEL_SUITES)
KERNEL_CASE = tests/fakecuda/kernel_case.c tests/fakecuda/kernel_case.h
KERNEL_CASE_LIBS = tests/fakecuda/libcuda.la libcore.la
tests_test_fakecuda_share_SOURCES = tests/fakecuda/test_fakecuda_share.c $(KERNEL_CASE)
tests_test_fakecuda_share_CPPFLAGS = $(FAKECUDA_CPPFLAGS)
tests_test_fakecuda_share_LDADD = $(KERNEL_CASE_LIBS)
tests_test_kernels_SOURCES = tests/fakecuda/test_kernels.c $(KERNEL_CASE)
tests_test_kernels_CPPFLAGS = $(FAKECUDA_CPPFLAGS)
tests_test_kernels_LDADD = $(KERNEL_CASE_LIBS)
tests_test_kernels_compress_SOURCES = tests/fakecuda/test_kernels_compress.c $(KERNEL_CASE)
tests_test_kernels_compress_CPPFLAGS = $(FAKECUDA_CPPFLAGS)
tests_test_kernels_compress_LDADD = tests/fakecuda/libcuda.la libhocket-train.la libcore.la -lm
tests_test_kernels_ranks_SOURCES = tests/fakecuda/test_kernels_ranks.c $(KERNEL_CASE)
tests_test_kernels_ranks_CPPFLAGS = $(FAKECUDA_CPPFLAGS)
tests_test_kernels_ranks_LDADD = $(KERNEL_CASE_LIBS)
check_LTLIBRARIES += tests/fakecuda/libfakekernels.la
tests_fakecuda_libfakekernels_la_SOURCES = tests/fakecuda/simt_device.h tests/fakecuda/kernels_compress.cc tests/fakecuda/kernels_copy.cc \
	tests/fakecuda/kernels_fold_average.cc tests/fakecuda/kernels_fold_float.cc tests/fakecuda/kernels_fold_half.cc \
	tests/fakecuda/kernels_fold_integer.cc tests/fakecuda/kernels_fold_quarter.cc
tests_fakecuda_libfakekernels_la_CPPFLAGS = $(FAKECUDA_CPPFLAGS)
tests_fakecuda_libfakekernels_la_CXXFLAGS = -std=c++17 $(HKT_CXX_WARNINGS) -fvisibility=hidden -ffp-contract=off
tests_fakecuda_libfakekernels_la_LDFLAGS = $(AM_LDFLAGS) -rpath /nowhere -module -avoid-version
tests_fakecuda_libfakekernels_la_LIBADD = tests/fakecuda/libcuda.la
endif
if HAVE_CHECK
DRIVER_SUITES = tests/test_fakecuda tests/test_fakecuda_streams
check_PROGRAMS += $(DRIVER_SUITES)
TESTS += $(DRIVER_SUITES)
DRIVER_LIBS = tests/fakecuda/libcuda.la $(CHECK_LIBS)
tests_test_fakecuda_SOURCES = tests/fakecuda/test_fakecuda.c tests/fakecuda/driver_case.h
tests_test_fakecuda_CPPFLAGS = $(FAKECUDA_CPPFLAGS)
tests_test_fakecuda_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_fakecuda_LDADD = $(DRIVER_LIBS)
tests_test_fakecuda_streams_SOURCES = tests/fakecuda/test_fakecuda_streams.c tests/fakecuda/driver_case.h
tests_test_fakecuda_streams_CPPFLAGS = $(FAKECUDA_CPPFLAGS)
tests_test_fakecuda_streams_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_fakecuda_streams_LDADD = $(DRIVER_LIBS)
endif
