# src/tools: what is installed to be run. hkt-perf is an ordinary user of the library; the others look inside.
bin_PROGRAMS += hkt-run hkt-perf hkt-info

hkt_run_SOURCES = \
	src/tools/hkt-run.c \
	src/tools/flags.c src/tools/flags.h \
	src/tools/run_output.c src/tools/run_output.h \
	src/tools/run_ranks.c src/tools/run_ranks.h
hkt_run_LDADD = libcore.la

hkt_perf_SOURCES = \
	src/tools/flags.c src/tools/flags.h \
	src/tools/perf.h \
	src/tools/perf_cases.c \
	src/tools/perf_main.c \
	src/tools/perf_measure.c \
	src/tools/perf_output.c \
	src/tools/perf_verify.c \
	src/tools/svg.c src/tools/svg.h
hkt_perf_LDADD = libhocket.la -lm

hkt_info_SOURCES = \
	src/tools/hkt-info.c \
	src/tools/flags.c src/tools/flags.h \
	src/tools/info.h \
	src/tools/info_device.c \
	src/tools/info_drawing.c \
	src/tools/info_launcher.c \
	src/tools/info_machine.c \
	src/tools/info_plan.c \
	src/tools/info_topology.c \
	src/tools/svg.c src/tools/svg.h
hkt_info_LDADD = libcore.la -lm

bin_PROGRAMS += hkt-verify
hkt_verify_SOURCES = \
	src/tools/flags.c src/tools/flags.h \
	src/tools/hkt-verify.c \
	src/tools/verify.h \
	src/tools/verify_print.c \
	src/tools/verify_sweep.c
hkt_verify_LDADD = libcore.la

bin_PROGRAMS += hkt-plan
hkt_plan_SOURCES = \
	src/tools/flags.c src/tools/flags.h \
	src/tools/plan.h \
	src/tools/plan_json.c \
	src/tools/plan_machine.c \
	src/tools/plan_main.c \
	src/tools/plan_measure.c \
	src/tools/plan_print.c \
	src/tools/plan_svg.c \
	src/tools/plan_try.c \
	src/tools/plan_why.c \
	src/tools/svg.c src/tools/svg.h
hkt_plan_LDADD = libhocket-train.la libhocket.la -lm

bin_PROGRAMS += hkt-simulate
hkt_simulate_SOURCES = \
	src/tools/flags.c src/tools/flags.h \
	src/tools/simulate.h \
	src/tools/simulate_json.c \
	src/tools/simulate_main.c \
	src/tools/simulate_measure.c \
	src/tools/simulate_print.c \
	src/tools/simulate_run.c \
	src/tools/simulate_svg.c \
	src/tools/svg.c src/tools/svg.h
hkt_simulate_LDADD = libcore.la -lm
