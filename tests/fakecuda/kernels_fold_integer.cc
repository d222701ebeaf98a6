#include "device/kernels/fold_integer.cu"
