#include "device/kernels/fold_average.cu"
