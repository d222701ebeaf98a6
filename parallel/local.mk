# parallel: the training layer, a library of its own above libhocket; it sees the public headers only.
include_HEADERS += include/hocket_train.h
hocket_traindir = $(includedir)/hocket_train
hocket_train_HEADERS = \
	include/hocket_train/bucket.h \
	include/hocket_train/checkpoint.h \
	include/hocket_train/codec.h \
	include/hocket_train/context.h \
	include/hocket_train/ledger.h \
	include/hocket_train/mesh.h \
	include/hocket_train/parameter.h \
	include/hocket_train/pipeline.h \
	include/hocket_train/planner.h \
	include/hocket_train/random.h \
	include/hocket_train/scaler.h \
	include/hocket_train/tensor.h \
	include/hocket_train/zero.h
lib_LTLIBRARIES += libhocket-train.la
libhocket_train_la_SOURCES = \
	parallel/adamw.c \
	parallel/adamw.h \
	parallel/adamw_loops.c \
	parallel/agree.c \
	parallel/agree.h \
	parallel/bucket.c \
	parallel/bucket.h \
	parallel/bucket_layout.c \
	parallel/bucket_layout.h \
	parallel/bucket_result.c \
	parallel/bucket_state.c \
	parallel/bucket_work.c \
	parallel/checkpoint.h \
	parallel/checkpoint_convert.c \
	parallel/checkpoint_file.c \
	parallel/checkpoint_folder.c \
	parallel/checkpoint_hash.c \
	parallel/checkpoint_manifest.c \
	parallel/checkpoint_open.c \
	parallel/checkpoint_piece.c \
	parallel/checkpoint_read.c \
	parallel/checkpoint_save.c \
	parallel/checkpoint_saver.c \
	parallel/checkpoint_share.c \
	parallel/codec.c \
	parallel/codec.h \
	parallel/codec_gain.c \
	parallel/codec_powersgd.c \
	parallel/codec_shot.c \
	parallel/codec_state.c \
	parallel/common.h \
	parallel/compress.c \
	parallel/compress.h \
	parallel/context.c \
	parallel/exponential.h \
	parallel/isa.h \
	parallel/ledger.c \
	parallel/mesh.c \
	parallel/mesh_grid.c \
	parallel/mesh_links.c \
	parallel/offload.c \
	parallel/offload.h \
	parallel/offload_ring.c \
	parallel/offload_ring.h \
	parallel/onebit_adam.c \
	parallel/pipeline.h \
	parallel/pipeline_check.c \
	parallel/pipeline_layout.c \
	parallel/pipeline_links.c \
	parallel/pipeline_order.c \
	parallel/pipeline_program.c \
	parallel/pipeline_run.c \
	parallel/pipeline_run.h \
	parallel/pipeline_slots.c \
	parallel/pipeline_time.c \
	parallel/planner.h \
	parallel/planner_links.c \
	parallel/planner_memory.c \
	parallel/planner_model.c \
	parallel/planner_presets.c \
	parallel/planner_rules.c \
	parallel/planner_search.c \
	parallel/planner_time.c \
	parallel/random.c \
	parallel/rules.c \
	parallel/rules.h \
	parallel/scaler.c \
	parallel/tensor.c \
	parallel/tensor.h \
	parallel/tensor_linear.c \
	parallel/tensor_vocabulary.c \
	parallel/touch.c \
	parallel/zero.c \
	parallel/zero.h \
	parallel/zero_freeze.c \
	parallel/zero_gather.c \
	parallel/zero_norm.c \
	parallel/zero_state.c \
	parallel/zero_step.c \
	parallel/zero_team.c
libhocket_train_la_CPPFLAGS = -I$(top_srcdir)/include -I$(top_srcdir) -I$(top_builddir) -D_GNU_SOURCE
libhocket_train_la_CFLAGS = $(AM_CFLAGS) $(TRAIN_CFLAGS)
libhocket_train_la_LDFLAGS = $(AM_LDFLAGS) -version-info $(HKT_ABI) -Wl,--version-script=$(top_srcdir)/src/libhocket.map
libhocket_train_la_LIBADD = libhocket.la -lm
TRAIN_CFLAGS = $(VECTOR_CFLAGS) -fno-math-errno

# The codecs and their loops: one source, compiled once per instruction set.
CODEC_FILES = parallel/codec_table.c parallel/codec_block.h parallel/codec_float.h parallel/codec_integer.h parallel/codec_numbers.h \
	parallel/codec_powersgd.h parallel/codec_sign.h parallel/codec_topk.h
CODEC_FLAGS = $(AM_CFLAGS) $(TRAIN_CFLAGS) -fno-trapping-math
CODEC_LIBS = libcodec_portable.la
noinst_LTLIBRARIES += libcodec_portable.la
libcodec_portable_la_SOURCES = $(CODEC_FILES)
libcodec_portable_la_CPPFLAGS = $(libhocket_train_la_CPPFLAGS) -DHKT_ISA=portable
libcodec_portable_la_CFLAGS = $(CODEC_FLAGS)
if X86
noinst_LTLIBRARIES += libcodec_avx2.la libcodec_avx512.la
libcodec_avx2_la_SOURCES = $(CODEC_FILES)
libcodec_avx2_la_CPPFLAGS = $(libhocket_train_la_CPPFLAGS) -DHKT_ISA=avx2
libcodec_avx2_la_CFLAGS = $(CODEC_FLAGS) -mavx2
libcodec_avx512_la_SOURCES = $(CODEC_FILES)
libcodec_avx512_la_CPPFLAGS = $(libhocket_train_la_CPPFLAGS) -DHKT_ISA=avx512
libcodec_avx512_la_CFLAGS = $(CODEC_FLAGS) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512
CODEC_LIBS += libcodec_avx2.la libcodec_avx512.la
endif
libhocket_train_la_LIBADD += $(CODEC_LIBS)
