# frameworks/nccl: libnccl.so.2, included by the top Makefile.am. It has a folder of its own, so that no program finds it unasked.
ncclincludedir = $(includedir)/hocket/nccl
nccllibdir = $(libdir)/hocket/nccl
ncclinclude_HEADERS = frameworks/nccl/nccl.h
nccllib_LTLIBRARIES = libnccl.la
NCCL_FILES = frameworks/nccl/inside.h frameworks/nccl/nccl.h \
	frameworks/nccl/call.c \
	frameworks/nccl/comm.c \
	frameworks/nccl/config.c \
	frameworks/nccl/device.c \
	frameworks/nccl/error.c \
	frameworks/nccl/group.c \
	frameworks/nccl/job.c \
	frameworks/nccl/make.c \
	frameworks/nccl/memory.c \
	frameworks/nccl/param.c \
	frameworks/nccl/queue.c
libnccl_la_SOURCES = $(NCCL_FILES)
libnccl_la_LIBADD = libhocket.la
libnccl_la_LDFLAGS = $(AM_LDFLAGS) -version-info 2:0:0 -Wl,--version-script=$(top_srcdir)/frameworks/nccl/libnccl.map \
	-Wl,-Bsymbolic-functions -Wl,-z,nodelete -Wl,-rpath,'$$ORIGIN/../..'
EXTRA_libnccl_la_DEPENDENCIES = frameworks/nccl/libnccl.map
EXTRA_DIST += frameworks/nccl/libnccl.map frameworks/nccl/check-nccl-tests
