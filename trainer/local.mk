# trainer: hkt-train, an ordinary user of the library. Everything but main() is a convenience library, for the tests.
noinst_LTLIBRARIES += libtrainer.la libtrainer_portable.la
libtrainer_la_SOURCES = \
	trainer/batches.c trainer/batches.h \
	trainer/clock.h \
	trainer/crew.c trainer/crew.h \
	trainer/data.c trainer/data.h \
	trainer/dump.c trainer/dump.h \
	trainer/engine.c trainer/engine.h \
	trainer/engine_hooks.c \
	trainer/engine_step.c \
	trainer/flash.c trainer/flash.h \
	trainer/gpt.h trainer/gpt_inside.h \
	trainer/gpt_backward.c \
	trainer/gpt_forward.c \
	trainer/gpt_head.c \
	trainer/gpt_layout.c \
	trainer/gpt_memory.c \
	trainer/indexed.c trainer/indexed.h \
	trainer/indexed_write.c \
	trainer/json.c trainer/json.h \
	trainer/kernels_choose.c trainer/kernels.h \
	trainer/mapping.c trainer/mapping.h \
	trainer/matrix.c trainer/matrix.h \
	trainer/plot.c trainer/plot.h \
	trainer/product.c trainer/product.h \
	trainer/product_choose.c \
	trainer/report.c trainer/report.h \
	trainer/sample.c trainer/sample.h \
	trainer/safetensors.c trainer/safetensors.h \
	trainer/safetensors_gpt2.c trainer/safetensors_gpt2.h \
	trainer/samples.c trainer/samples.h \
	trainer/samples_batch.c \
	trainer/samples_cache.c trainer/samples_index.h \
	trainer/settings.c trainer/settings.h \
	trainer/state.c trainer/state.h \
	trainer/state_codec.c \
	trainer/stop.c trainer/stop.h \
	trainer/tokenizer.c trainer/tokenizer.h \
	trainer/tokenizer_files.c \
	trainer/tokenizer_split.c trainer/tokenizer_unicode.h \
	trainer/tokenizer_table.c trainer/tokenizer_parts.h \
	trainer/tokenizer_train.c \
	src/tools/flags.c src/tools/flags.h \
	src/tools/svg.c src/tools/svg.h
libtrainer_la_CPPFLAGS = $(AM_CPPFLAGS)
libtrainer_la_CFLAGS = $(AM_CFLAGS) $(TRAINER_CFLAGS)
libtrainer_la_LIBADD = libtrainer_portable.la
TRAINER_CFLAGS = $(VECTOR_CFLAGS) -fopenmp-simd -fno-math-errno -fno-trapping-math

# The kernels: one source, compiled once per instruction set.
libtrainer_portable_la_SOURCES = trainer/kernels.c trainer/product_single.c
libtrainer_portable_la_CPPFLAGS = $(AM_CPPFLAGS) -DTRAINER_ISA=portable
libtrainer_portable_la_CFLAGS = $(AM_CFLAGS) $(TRAINER_CFLAGS)
if X86
noinst_LTLIBRARIES += libtrainer_avx2.la libtrainer_avx512.la
libtrainer_avx2_la_SOURCES = trainer/kernels.c trainer/product_single.c
libtrainer_avx2_la_CPPFLAGS = $(AM_CPPFLAGS) -DTRAINER_ISA=avx2
libtrainer_avx2_la_CFLAGS = $(AM_CFLAGS) $(TRAINER_CFLAGS) -ffp-contract=fast -mavx2 -mfma
libtrainer_avx512_la_SOURCES = trainer/kernels.c trainer/product_single.c
libtrainer_avx512_la_CPPFLAGS = $(AM_CPPFLAGS) -DTRAINER_ISA=avx512
libtrainer_avx512_la_CFLAGS = $(AM_CFLAGS) $(TRAINER_CFLAGS) -ffp-contract=fast -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma
libtrainer_la_LIBADD += libtrainer_avx2.la libtrainer_avx512.la
endif
if AMX
noinst_LTLIBRARIES += libtrainer_amx.la
libtrainer_amx_la_SOURCES = trainer/product_amx.c trainer/product_dot.c trainer/product_pairs.h
libtrainer_amx_la_CPPFLAGS = $(AM_CPPFLAGS)
libtrainer_amx_la_CFLAGS = $(AM_CFLAGS) $(TRAINER_CFLAGS) $(AMX_CFLAGS)
libtrainer_la_LIBADD += libtrainer_amx.la
libtrainer_la_CPPFLAGS += -DHAVE_AMX
endif

bin_PROGRAMS += hkt-train
hkt_train_SOURCES = trainer/train.c
hkt_train_LDADD = libtrainer.la libhocket-train.la libhocket.la -lm
bin_PROGRAMS += hkt-data
hkt_data_SOURCES = trainer/data_tool.c trainer/data_tool.h trainer/data_model.c
hkt_data_LDADD = libtrainer.la libhocket-train.la libhocket.la -lm
dist_man_MANS += docs/man/hkt-data.1
EXTRA_DIST += trainer/get-text docs/training.md
dist_man_MANS += docs/man/hkt-train.1
