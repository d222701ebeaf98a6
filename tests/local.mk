# tests: sources, included by the top Makefile.am

# ---- the tree itself
EXTRA_DIST += .ci/run tests/layers.txt tests/sanitize.sh
dist_check_SCRIPTS += tests/check-layers.sh tests/check-length.sh tests/check-options.sh tests/check-symbols.sh
TESTS += tests/check-layers.sh tests/check-length.sh tests/check-options.sh tests/check-symbols.sh
AM_TESTS_ENVIRONMENT = CC='$(CC)'; CXX='$(CXX)'; CFLAGS='$(CFLAGS)'; MAKE='$(MAKE)'; export CC CXX CFLAGS MAKE;

# The long forms of the suites: hours rather than minutes, more memory.
check-long:
	TEST_LONG=1 $(MAKE) check
.PHONY: check-long check-asan check-tsan

# The suites under the sanitizers, each in a build folder of its own.
check-asan:
	$(srcdir)/tests/sanitize.sh address build-address
check-tsan:
	$(srcdir)/tests/sanitize.sh thread build-thread

# ---- the interface, by suites that use the installed library only; test_numbers and test_alloc also look inside
if HAVE_CHECK
check_LTLIBRARIES += tests/libharness.la
tests_libharness_la_SOURCES = tests/arena.c tests/arena.h tests/harness.c tests/harness.h tests/job.c tests/job.h tests/reference.c \
	tests/reference.h
tests_libharness_la_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
API_SUITES = tests/test_api tests/test_work tests/test_collectives tests/test_random tests/test_failures tests/test_death \
	tests/test_resources tests/test_numbers tests/test_alloc
check_PROGRAMS += $(API_SUITES)
TESTS += $(API_SUITES)
API_LIBS = tests/libharness.la libhocket.la $(CHECK_LIBS) -lm
CORE_LIBS = tests/libharness.la libcore.la $(CHECK_LIBS) -lm
tests_test_api_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_api_LDADD = $(API_LIBS)
tests_test_work_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_work_LDADD = $(API_LIBS)
tests_test_collectives_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_collectives_LDADD = $(API_LIBS)
tests_test_random_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_random_LDADD = $(API_LIBS)
tests_test_failures_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_failures_LDADD = $(API_LIBS)
tests_test_death_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_death_LDADD = $(API_LIBS)
tests_test_resources_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_resources_LDADD = $(API_LIBS)
tests_test_numbers_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_numbers_LDADD = $(CORE_LIBS)
tests_test_alloc_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_alloc_LDADD = $(CORE_LIBS)
endif

# ---- how ranks meet, processes, shared memory, the machine
if HAVE_CHECK
SETUP_SUITES = tests/test_bootstrap tests/test_machine tests/test_process tests/test_segment tests/test_strangers
check_PROGRAMS += $(SETUP_SUITES)
TESTS += $(SETUP_SUITES)
PARTY = tests/party.c tests/party.h
tests_test_bootstrap_SOURCES = tests/test_bootstrap.c $(PARTY)
tests_test_bootstrap_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_bootstrap_LDADD = $(CORE_LIBS)
tests_test_machine_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_machine_LDADD = $(CORE_LIBS)
tests_test_process_SOURCES = tests/test_process.c $(PARTY)
tests_test_process_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_process_LDADD = $(CORE_LIBS)
tests_test_segment_SOURCES = tests/test_segment.c $(PARTY)
tests_test_segment_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_segment_LDADD = $(CORE_LIBS)
tests_test_strangers_SOURCES = tests/test_strangers.c $(PARTY)
tests_test_strangers_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_strangers_LDADD = $(CORE_LIBS)
endif

# ---- the trainer
if TRAINER
dist_check_SCRIPTS += tests/test_trainer_ranks.sh tests/test_trainer_torch.sh
TESTS += tests/test_trainer_ranks.sh tests/test_trainer_torch.sh
EXTRA_DIST += tests/trainer_torch.py
if HAVE_CHECK
check_PROGRAMS += tests/test_trainer
TESTS += tests/test_trainer
tests_test_trainer_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/trainer
tests_test_trainer_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_trainer_LDADD = libtrainer.la libhocket.la $(BLAS_LIBS) $(CHECK_LIBS) -lm
endif
endif

# ---- the tools
dist_check_SCRIPTS += tests/test_tools.sh
TESTS += tests/test_tools.sh

# ---- schedules, algorithms, the verifier
dist_check_SCRIPTS += tests/mutate.sh tests/test_verify.sh
TESTS += tests/mutate.sh tests/test_verify.sh
if HAVE_CHECK
check_PROGRAMS += tests/test_mutation tests/test_schedule
TESTS += tests/test_mutation tests/test_schedule
CONCRETE = tests/concrete.c tests/concrete.h
tests_test_mutation_SOURCES = tests/test_mutation.c $(CONCRETE)
tests_test_mutation_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_mutation_LDADD = libcore.la $(CHECK_LIBS) -lm
tests_test_schedule_SOURCES = tests/test_schedule.c $(CONCRETE)
tests_test_schedule_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_schedule_LDADD = libcore.la $(CHECK_LIBS) -lm
endif

# ---- types and reduction kernels
if HAVE_CHECK
check_PROGRAMS += tests/test_dtype tests/test_reduce
TESTS += tests/test_dtype tests/test_reduce
tests_test_dtype_SOURCES = tests/test_dtype.c tests/reduce_call.c tests/reduce_call.h
tests_test_dtype_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_dtype_LDADD = libcore.la $(CHECK_LIBS) -lm
tests_test_reduce_SOURCES = tests/test_reduce.c tests/reduce_call.c tests/reduce_call.h
tests_test_reduce_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_reduce_LDADD = libcore.la $(CHECK_LIBS) -lm
endif
