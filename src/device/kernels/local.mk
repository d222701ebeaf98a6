# src/device/kernels: the kernels for GPUs. With nvcc each architecture is compiled by itself, so that make does it side by side, and all go
# into one fat binary, which image.c takes into the library. tests/check-kernel-code.sh looks at the machine code in between.
GPU_KERNEL_INCLUDES = src/device/kernels/compress.h src/device/kernels/fold.h src/device/kernels/gpu.h src/device/kernels/list.h src/device/kernels/low.h \
	src/device/kernels/move.h src/device/kernels/segment.h src/device/kernels/types.h src/device/kernels/wait.h
GPU_KERNEL_TEXTS = src/device/kernels/all.cu src/device/kernels/compress.cu src/device/kernels/copy.cu src/device/kernels/fold_average.cu \
	src/device/kernels/fold_float.cu src/device/kernels/fold_half.cu src/device/kernels/fold_integer.cu src/device/kernels/fold_quarter.cu
EXTRA_DIST += $(GPU_KERNEL_INCLUDES) $(GPU_KERNEL_TEXTS)
if NVCC
GPU_COMPILE = $(NVCC) -std=c++17 --fmad=false -I$(top_srcdir)/src $(NVCCFLAGS)
GPU_CUBINS = $(GPU_ARCHES:%=src/device/kernels/sm_%.cubin)
GPU_PTX_ARCH = $(firstword $(GPU_ARCHES))
src/device/kernels/sm_%.cubin: $(GPU_KERNEL_INCLUDES) $(GPU_KERNEL_TEXTS)
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(GPU_COMPILE) -Xptxas -v -cubin -gencode arch=compute_$*,code=sm_$* -o $@.tmp \
	  $(top_srcdir)/src/device/kernels/all.cu 2>src/device/kernels/sm_$*.log || { cat src/device/kernels/sm_$*.log; exit 1; }; \
	mv $@.tmp $@
src/device/kernels/hocket.ptx: $(GPU_KERNEL_INCLUDES) $(GPU_KERNEL_TEXTS)
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(GPU_COMPILE) -ptx -arch=compute_$(GPU_PTX_ARCH) -o $@.tmp $(top_srcdir)/src/device/kernels/all.cu && \
	mv $@.tmp $@
src/device/kernels/hocket.fatbin: $(GPU_CUBINS) src/device/kernels/hocket.ptx
	$(AM_V_GEN)`dirname $(NVCC)`/fatbinary -64 --compress-all --create=$@ \
	  $(foreach a,$(GPU_ARCHES),--image3=kind=elf,sm=$(a),file=src/device/kernels/sm_$(a).cubin) \
	  --image3=kind=ptx,sm=$(GPU_PTX_ARCH),file=src/device/kernels/hocket.ptx
src/device/kernels/image.lo: src/device/kernels/hocket.fatbin
CLEANFILES += $(GPU_CUBINS) $(GPU_ARCHES:%=src/device/kernels/sm_%.log) src/device/kernels/hocket.ptx src/device/kernels/hocket.fatbin
endif
