/* image.h -- the library's device code as the driver loads it; built without nvcc, something that no GPU loads. */
#ifndef HKT_DEVICE_IMAGE_H
#define HKT_DEVICE_IMAGE_H

const void *hkt_kernel_image(void);

#endif
