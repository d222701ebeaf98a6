#include "device/kernels/compress.cu"
