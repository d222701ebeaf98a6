#include "device/kernels/fold_half.cu"
