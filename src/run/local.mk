# What binds and runs schedules (src/run) and what the user calls (src/face).
libcore_la_SOURCES += \
	src/run/bind.c src/run/bind.h \
	src/run/bind_wire.c \
	src/run/buffer.c src/run/buffer.h \
	src/run/call.c src/run/call.h \
	src/run/choose.c src/run/choose.h \
	src/run/communicator.c src/run/communicator.h \
	src/run/edge.c src/run/edge.h \
	src/run/execute_cuda.c \
	src/run/execute_host.c src/run/execute_host.h \
	src/run/execute_wire.c \
	src/run/far.c src/run/far.h \
	src/run/far_measure.c \
	src/run/flat.c \
	src/run/flat_far.c \
	src/run/gpu.h \
	src/run/gpu_connect.c \
	src/run/gpu_watch.c \
	src/run/message.c \
	src/run/message_far.c \
	src/run/operation.c src/run/operation.h \
	src/run/plan.c src/run/plan.h \
	src/run/scheduled.c src/run/scheduled.h \
	src/run/shared.h \
	src/run/staged.c src/run/staged.h \
	src/run/site.c src/run/site.h \
	src/run/trace.c \
	src/run/tune.c src/run/tune.h \
	src/face/api.c \
	src/face/comm.c src/face/comm.h \
	src/face/end.c \
	src/face/group.c src/face/group.h \
	src/face/handle.c src/face/handle.h \
	src/face/library.h \
	src/face/make.c \
	src/face/memory.c \
	src/face/split.c \
	src/face/stream.c src/face/stream.h \
	src/face/stream_cuda.c \
	src/face/submit.c src/face/submit.h \
	src/face/together.c
