# tests: sources, included by the top Makefile.am

# ---- the tree itself
EXTRA_DIST += .ci/run tests/layers.txt tests/sanitize.sh tests/tool.sh
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
SETUP_SUITES = tests/test_bootstrap tests/test_machine tests/test_process tests/test_reach tests/test_segment tests/test_strangers \
	tests/test_tree tests/test_hosts
check_PROGRAMS += $(SETUP_SUITES)
TESTS += $(SETUP_SUITES)
PARTY = tests/party.c tests/party.h
NETWORK = tests/network.c tests/network.h
tests_test_bootstrap_SOURCES = tests/test_bootstrap.c $(PARTY)
tests_test_bootstrap_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_bootstrap_LDADD = $(CORE_LIBS)
tests_test_machine_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_machine_LDADD = $(CORE_LIBS)
tests_test_process_SOURCES = tests/test_process.c $(PARTY)
tests_test_process_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_process_LDADD = $(CORE_LIBS)
tests_test_reach_SOURCES = tests/test_reach.c $(NETWORK) $(PARTY)
tests_test_reach_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_reach_LDADD = $(CORE_LIBS)
tests_test_segment_SOURCES = tests/test_segment.c $(PARTY)
tests_test_segment_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_segment_LDADD = $(CORE_LIBS)
tests_test_strangers_SOURCES = tests/test_strangers.c $(PARTY)
tests_test_strangers_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_strangers_LDADD = $(CORE_LIBS)
tests_test_tree_SOURCES = tests/test_tree.c $(PARTY)
tests_test_tree_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_tree_LDADD = $(CORE_LIBS)
tests_test_hosts_SOURCES = tests/test_hosts.c $(NETWORK) $(PARTY)
tests_test_hosts_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_hosts_LDADD = $(CORE_LIBS)
endif

# ---- machines: files, texts, this one; what is found in them
if HAVE_CHECK
MACHINE_SUITES = tests/test_graph tests/test_topology tests/test_topology_read
check_PROGRAMS += $(MACHINE_SUITES)
TESTS += $(MACHINE_SUITES)
MACHINES = tests/machines.c tests/machines.h
tests_test_graph_SOURCES = tests/test_graph.c $(MACHINES)
tests_test_graph_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_graph_LDADD = $(CORE_LIBS)
tests_test_topology_SOURCES = tests/test_topology.c $(MACHINES)
tests_test_topology_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_topology_LDADD = $(CORE_LIBS)
tests_test_topology_read_SOURCES = tests/test_topology_read.c $(MACHINES)
tests_test_topology_read_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_topology_read_LDADD = $(CORE_LIBS)
endif
EXTRA_DIST += tests/topologies/cloud-vm.xml tests/topologies/cloud-vm.expected tests/topologies/cube-mesh-like.xml \
	tests/topologies/cube-mesh-like.expected tests/topologies/dgx-h100-like.xml tests/topologies/dgx-h100-like.expected \
	tests/topologies/hosts-32.expected tests/topologies/laptop.xml tests/topologies/laptop.expected tests/topologies/mi300x-like.xml \
	tests/topologies/mi300x-like.expected tests/topologies/two-socket.xml tests/topologies/two-socket.expected

# ---- messages between hosts
if HAVE_CHECK
NET_SUITES = tests/test_wire tests/test_wire_death tests/test_far
check_PROGRAMS += $(NET_SUITES)
TESTS += $(NET_SUITES)
WIRES = tests/wires.c tests/wires.h $(NETWORK) $(PARTY)
tests_test_wire_SOURCES = tests/test_wire.c $(WIRES)
tests_test_wire_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_wire_LDADD = $(CORE_LIBS)
tests_test_far_SOURCES = tests/test_far.c $(NETWORK)
tests_test_far_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_far_LDADD = $(CORE_LIBS)
tests_test_wire_death_SOURCES = tests/test_wire_death.c $(WIRES)
tests_test_wire_death_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_wire_death_LDADD = $(CORE_LIBS)
if VERBS
check_PROGRAMS += tests/test_verbs
TESTS += tests/test_verbs
tests_test_verbs_SOURCES = tests/test_verbs.c $(WIRES)
tests_test_verbs_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_verbs_LDADD = $(CORE_LIBS)
endif
endif

# ---- real verbs, in guests: a short run in every check, all of it with make check-vm
EXTRA_DIST += tests/vm/one-guest tests/vm/run-in-rdma-vm tests/vm/two-guests
dist_check_SCRIPTS += tests/vm/check
TESTS += tests/vm/check
check-vm: all $(check_PROGRAMS)
	TEST_LONG=1 srcdir=$(srcdir) $(srcdir)/tests/vm/check
.PHONY: check-vm

# ---- every byte that comes from elsewhere: the corpus and a little around it; make fuzz: libFuzzer, FUZZ_SECONDS for each target
FUZZ_FILES = tests/fuzz/fuzz.h tests/fuzz/fuzz_meet.c tests/fuzz/fuzz_text.c tests/fuzz/fuzz_wire.c tests/fuzz/main.c
EXTRA_DIST += tests/fuzz/corpus tests/fuzz/ignore.txt tests/fuzz/run.sh
check_PROGRAMS += tests/test_fuzz
TESTS += tests/test_fuzz
tests_test_fuzz_SOURCES = $(FUZZ_FILES)
tests_test_fuzz_LDADD = libcore.la -lm
fuzz:
	$(srcdir)/tests/fuzz/run.sh build-fuzz
.PHONY: fuzz

# ---- the trainer
if TRAINER
dist_check_SCRIPTS += tests/test_trainer_ranks.sh tests/test_layouts.sh tests/test_trainer_state.sh tests/test_trainer_torch.sh
TESTS += tests/test_trainer_ranks.sh tests/test_layouts.sh tests/test_trainer_state.sh tests/test_trainer_torch.sh
EXTRA_DIST += tests/trainer_torch.py
if HAVE_CHECK
check_PROGRAMS += tests/test_trainer
TESTS += tests/test_trainer
tests_test_trainer_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/trainer
tests_test_trainer_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_trainer_LDADD = libtrainer.la libhocket-train.la libhocket.la $(CHECK_LIBS) -lm
endif
endif

# ---- PyTorch on Hocket
TORCH_FILES = frameworks/torch/Makefile frameworks/torch/bench.py frameworks/torch/pyproject.toml frameworks/torch/setup.py \
	frameworks/torch/csrc frameworks/torch/hocket/torch/__init__.py frameworks/torch/hocket/torch/hooks.py \
	frameworks/torch/examples/ddp.py frameworks/torch/examples/fsdp2.py frameworks/torch/examples/pipeline.py \
	frameworks/torch/tests/ranks.py frameworks/torch/tests/run.py frameworks/torch/tests/suite.py \
	frameworks/torch/tests/test_collectives.py frameworks/torch/tests/test_failures.py frameworks/torch/tests/test_hooks.py \
	frameworks/torch/tests/test_messages.py frameworks/torch/tests/test_starting.py frameworks/torch/tests/test_training.py \
	frameworks/torch/tests/upstream.py
EXTRA_DIST += $(TORCH_FILES)
dist_check_SCRIPTS += tests/test_torch.sh
TESTS += tests/test_torch.sh
check-torch:
	TEST_LONG=1 srcdir=$(srcdir) $(srcdir)/tests/test_torch.sh
.PHONY: check-torch

# ---- the tools
dist_check_SCRIPTS += tests/test_tools.sh
TESTS += tests/test_tools.sh

# ---- launchers: the suite has a server of its own; check-launchers has the real ones, as far as they are installed
check_PROGRAMS += tests/launched
tests_launched_LDADD = libhocket.la
tests_launched_LDFLAGS = $(AM_LDFLAGS) -no-install # no wrapper, which several ranks would make at once
EXTRA_DIST += tests/test_launch.sh
check-launchers: tests/launched hkt-info
	CC='$(CC)' srcdir=$(srcdir) $(srcdir)/tests/test_launch.sh
.PHONY: check-launchers
if HAVE_CHECK
check_PROGRAMS += tests/test_launcher
TESTS += tests/test_launcher
tests_test_launcher_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_launcher_LDADD = $(CORE_LIBS)
endif

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

# ---- schedules in virtual time, the choice
dist_check_SCRIPTS += tests/test_simulate_tool.sh
TESTS += tests/test_simulate_tool.sh
if HAVE_CHECK
check_PROGRAMS += tests/test_simulate tests/test_tuning
TESTS += tests/test_simulate tests/test_tuning
tests_test_simulate_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_simulate_LDADD = libcore.la $(CHECK_LIBS) -lm
tests_test_tuning_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_tuning_LDADD = libcore.la $(CHECK_LIBS) -lm
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

# ---- the training layer

TRAIN_LIBS = tests/libharness.la libhocket-train.la libhocket.la $(CHECK_LIBS) -lm
if HAVE_CHECK
ZERO_SUITES = tests/test_bucket tests/test_bucket_calls tests/test_scaler tests/test_zero tests/test_zero_freeze tests/test_zero_layouts \
	tests/test_zero_numbers tests/test_zero_offload
check_PROGRAMS += $(ZERO_SUITES)
TESTS += $(ZERO_SUITES)
tests_test_bucket_SOURCES = tests/test_bucket.c tests/bucket_model.c tests/bucket_model.h
tests_test_bucket_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_bucket_LDADD = $(TRAIN_LIBS)
tests_test_bucket_calls_SOURCES = tests/test_bucket_calls.c tests/bucket_model.c tests/bucket_model.h
tests_test_bucket_calls_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_bucket_calls_LDADD = $(TRAIN_LIBS)
tests_test_scaler_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_scaler_LDADD = $(TRAIN_LIBS)
tests_test_zero_SOURCES = tests/test_zero.c tests/zero_model.c tests/zero_model.h
tests_test_zero_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_zero_LDADD = $(TRAIN_LIBS)
tests_test_zero_freeze_SOURCES = tests/test_zero_freeze.c tests/zero_model.c tests/zero_model.h
tests_test_zero_freeze_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_zero_freeze_LDADD = $(TRAIN_LIBS)
tests_test_zero_layouts_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_zero_layouts_LDADD = $(TRAIN_LIBS)
tests_test_zero_numbers_SOURCES = tests/test_zero_numbers.c parallel/adamw.c parallel/adamw.h parallel/adamw_loops.c parallel/isa.h
tests_test_zero_numbers_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)
tests_test_zero_numbers_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS) $(TRAIN_CFLAGS)
tests_test_zero_numbers_LDADD = $(TRAIN_LIBS)
tests_test_zero_offload_SOURCES = tests/test_zero_offload.c tests/zero_model.c tests/zero_model.h
tests_test_zero_offload_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_zero_offload_LDADD = $(TRAIN_LIBS)
CODEC_SUITES = tests/test_codec tests/test_codec_bits tests/test_codec_powersgd tests/test_codec_reduce tests/test_codec_training
check_PROGRAMS += $(CODEC_SUITES)
TESTS += $(CODEC_SUITES)
tests_test_codec_SOURCES = tests/test_codec.c tests/codecs.h
tests_test_codec_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_codec_LDADD = $(TRAIN_LIBS)
tests_test_codec_bits_SOURCES = tests/test_codec_bits.c tests/codecs.h
tests_test_codec_bits_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)
tests_test_codec_bits_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_codec_bits_LDADD = $(CODEC_LIBS) $(TRAIN_LIBS)
tests_test_codec_powersgd_SOURCES = tests/test_codec_powersgd.c tests/codecs.h
tests_test_codec_powersgd_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_codec_powersgd_LDADD = $(TRAIN_LIBS)
tests_test_codec_reduce_SOURCES = tests/test_codec_reduce.c tests/codecs.h
tests_test_codec_reduce_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_codec_reduce_LDADD = $(TRAIN_LIBS)
tests_test_codec_training_SOURCES = tests/test_codec_training.c tests/codecs.h
tests_test_codec_training_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_codec_training_LDADD = $(TRAIN_LIBS)
endif
if HAVE_CHECK
check_PROGRAMS += tests/test_mesh tests/test_pipeline tests/test_pipeline_conduct tests/test_pipeline_mesh tests/test_pipeline_run
TESTS += tests/test_mesh tests/test_pipeline tests/test_pipeline_conduct tests/test_pipeline_mesh tests/test_pipeline_run
tests_test_mesh_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_mesh_LDADD = $(TRAIN_LIBS)
tests_test_pipeline_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_pipeline_LDADD = $(TRAIN_LIBS)
tests_test_pipeline_conduct_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_pipeline_conduct_LDADD = $(TRAIN_LIBS)
tests_test_pipeline_mesh_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_pipeline_mesh_LDADD = $(TRAIN_LIBS)
tests_test_pipeline_run_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_pipeline_run_LDADD = $(TRAIN_LIBS)
endif
if HAVE_CHECK
check_PROGRAMS += tests/test_context tests/test_random123 tests/test_tensor
TESTS += tests/test_context tests/test_random123 tests/test_tensor
tests_test_context_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_context_LDADD = $(TRAIN_LIBS)
tests_test_random123_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_random123_LDADD = $(TRAIN_LIBS)
tests_test_tensor_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_tensor_LDADD = $(TRAIN_LIBS)
endif
if TRAINER
if HAVE_CHECK
check_PROGRAMS += tests/test_gpt tests/test_gpt_context tests/test_gpt_layouts tests/test_layers tests/test_loops
TESTS += tests/test_gpt tests/test_gpt_context tests/test_gpt_layouts tests/test_layers tests/test_loops
GPT_CASE = tests/gpt_case.c tests/gpt_case.h
tests_test_gpt_SOURCES = tests/test_gpt.c $(GPT_CASE)
tests_test_gpt_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/trainer
tests_test_gpt_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_gpt_LDADD = libtrainer.la tests/libharness.la libhocket-train.la libhocket.la $(CHECK_LIBS) -lm
tests_test_gpt_context_SOURCES = tests/test_gpt_context.c $(GPT_CASE)
tests_test_gpt_context_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/trainer
tests_test_gpt_context_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_gpt_context_LDADD = libtrainer.la tests/libharness.la libhocket-train.la libhocket.la $(CHECK_LIBS) -lm
tests_test_gpt_layouts_SOURCES = tests/test_gpt_layouts.c $(GPT_CASE)
tests_test_gpt_layouts_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/trainer
tests_test_gpt_layouts_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_gpt_layouts_LDADD = libtrainer.la tests/libharness.la libhocket-train.la libhocket.la $(CHECK_LIBS) -lm
tests_test_loops_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/trainer
tests_test_loops_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_loops_LDADD = libtrainer.la tests/libharness.la libhocket-train.la libhocket.la $(CHECK_LIBS) -lm
tests_test_layers_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/trainer
if AMX
tests_test_layers_CPPFLAGS += -DHAVE_AMX
endif
tests_test_layers_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_layers_LDADD = libtrainer.la tests/libharness.la libhocket-train.la libhocket.la $(CHECK_LIBS) -lm
endif
endif
dist_check_SCRIPTS += tests/test_planner_tool.sh
TESTS += tests/test_planner_tool.sh
if HAVE_CHECK
check_PROGRAMS += tests/test_planner tests/test_planner_pipeline tests/test_planner_refuse tests/test_planner_search
TESTS += tests/test_planner tests/test_planner_pipeline tests/test_planner_refuse tests/test_planner_search
tests_test_planner_SOURCES = tests/test_planner.c tests/planner_job.h
tests_test_planner_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_planner_LDADD = $(TRAIN_LIBS)
tests_test_planner_pipeline_SOURCES = tests/test_planner_pipeline.c tests/planner_job.h
tests_test_planner_pipeline_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_planner_pipeline_LDADD = $(TRAIN_LIBS)
tests_test_planner_refuse_SOURCES = tests/test_planner_refuse.c tests/planner_job.h
tests_test_planner_refuse_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_planner_refuse_LDADD = $(TRAIN_LIBS)
tests_test_planner_search_SOURCES = tests/test_planner_search.c tests/planner_job.h
tests_test_planner_search_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_planner_search_LDADD = $(TRAIN_LIBS)
endif
if HAVE_CHECK
CHECKPOINT_SUITES = tests/test_checkpoint tests/test_checkpoint_damage tests/test_checkpoint_kill
CHECKPOINT_MODEL = tests/checkpoint_model.c tests/checkpoint_model.h
check_PROGRAMS += $(CHECKPOINT_SUITES)
TESTS += $(CHECKPOINT_SUITES)
tests_test_checkpoint_SOURCES = tests/test_checkpoint.c $(CHECKPOINT_MODEL)
tests_test_checkpoint_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_checkpoint_LDADD = $(TRAIN_LIBS)
tests_test_checkpoint_damage_SOURCES = tests/test_checkpoint_damage.c $(CHECKPOINT_MODEL)
tests_test_checkpoint_damage_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_checkpoint_damage_LDADD = $(TRAIN_LIBS)
tests_test_checkpoint_kill_SOURCES = tests/test_checkpoint_kill.c $(CHECKPOINT_MODEL)
tests_test_checkpoint_kill_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_checkpoint_kill_LDADD = $(TRAIN_LIBS)
endif
if TRAINER
dist_check_SCRIPTS += tests/test_data_tool.sh
TESTS += tests/test_data_tool.sh
if HAVE_CHECK
DATA_SUITES = tests/test_indexed tests/test_safetensors tests/test_samples tests/test_tokenizer
DATA_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/trainer
DATA_LIBS = libtrainer.la $(TRAIN_LIBS)
TOKEN_FILES = tests/token_files.c tests/token_files.h
check_PROGRAMS += $(DATA_SUITES)
TESTS += $(DATA_SUITES)
tests_test_indexed_SOURCES = tests/test_indexed.c $(TOKEN_FILES)
tests_test_indexed_CPPFLAGS = $(DATA_CPPFLAGS)
tests_test_indexed_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_indexed_LDADD = $(DATA_LIBS)
tests_test_safetensors_CPPFLAGS = $(DATA_CPPFLAGS)
tests_test_safetensors_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_safetensors_LDADD = $(DATA_LIBS)
tests_test_samples_SOURCES = tests/test_samples.c $(TOKEN_FILES)
tests_test_samples_CPPFLAGS = $(DATA_CPPFLAGS)
tests_test_samples_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_samples_LDADD = $(DATA_LIBS)
tests_test_tokenizer_CPPFLAGS = $(DATA_CPPFLAGS)
tests_test_tokenizer_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_tokenizer_LDADD = $(DATA_LIBS)
endif
endif

# ---- device memory, on the fake driver
if HAVE_CHECK
DEVICE_SUITES = tests/test_device
check_PROGRAMS += $(DEVICE_SUITES)
TESTS += $(DEVICE_SUITES)
dist_check_SCRIPTS += tests/mutate-device.sh
TESTS += tests/mutate-device.sh
tests_test_device_SOURCES = tests/test_device.c tests/gpu.c tests/gpu.h
tests_test_device_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_device_LDADD = $(CORE_LIBS)
endif

# ---- libnccl.so.2; the fake CUDA runtime is a part of the suite that uses it, which exports its functions
dist_check_SCRIPTS += tests/check-nccl.sh tests/test_nccl_python.sh
TESTS += tests/check-nccl.sh tests/test_nccl_python.sh
FAKE_CUDART = tests/fakecuda/cudart/cudart.c tests/fakecuda/cudart/devices.c tests/fakecuda/cudart/cuda_runtime.h
EXTRA_DIST += tests/fakecuda/cudart/cuda.h tests/fakecuda/cudart/cuda_bf16.h tests/fakecuda/cudart/cuda_fp16.h tests/fakecuda/cudart/cuda_fp8.h
if HAVE_CHECK
NCCL_RANKS = tests/nccl_ranks.c tests/nccl_ranks.h
NCCL_CPPFLAGS = $(AM_CPPFLAGS) -DHOCKET_NCCL_WITHOUT_CUDA
NCCL_LIBS = tests/libharness.la libnccl.la libhocket.la $(CHECK_LIBS) -lm
check_PROGRAMS += tests/test_nccl tests/test_nccl_device tests/test_nccl_life tests/test_nccl_stream
TESTS += tests/test_nccl tests/test_nccl_device tests/test_nccl_life tests/test_nccl_stream
tests_test_nccl_SOURCES = tests/test_nccl.c $(NCCL_RANKS)
tests_test_nccl_CPPFLAGS = $(NCCL_CPPFLAGS)
tests_test_nccl_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_nccl_LDADD = $(NCCL_LIBS)
tests_test_nccl_device_SOURCES = tests/test_nccl_device.c $(NCCL_RANKS)
tests_test_nccl_device_CPPFLAGS = $(NCCL_CPPFLAGS)
tests_test_nccl_device_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_nccl_device_LDADD = $(NCCL_LIBS)
tests_test_nccl_life_SOURCES = tests/test_nccl_life.c $(NCCL_RANKS)
tests_test_nccl_life_CPPFLAGS = $(NCCL_CPPFLAGS)
tests_test_nccl_life_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_nccl_life_LDADD = $(NCCL_LIBS)
tests_test_nccl_stream_SOURCES = tests/test_nccl_stream.c $(NCCL_RANKS) $(FAKE_CUDART)
tests_test_nccl_stream_CPPFLAGS = -I$(top_srcdir)/tests/fakecuda/cudart $(AM_CPPFLAGS)
tests_test_nccl_stream_CFLAGS = $(AM_CFLAGS) $(CHECK_CFLAGS)
tests_test_nccl_stream_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
tests_test_nccl_stream_LDADD = $(NCCL_LIBS)
endif
