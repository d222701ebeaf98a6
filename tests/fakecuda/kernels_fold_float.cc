#include "device/kernels/fold_float.cu"
