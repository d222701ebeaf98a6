#include "device/kernels/fold_quarter.cu"
