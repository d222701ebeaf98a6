#include "device/kernels/copy.cu"
