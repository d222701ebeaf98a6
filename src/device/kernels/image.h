/* image.h -- the library's device code as the driver loads it. */
#ifndef HKT_DEVICE_IMAGE_H
#define HKT_DEVICE_IMAGE_H

/* A fat binary. Built without nvcc: a text that no GPU's driver takes, and hkt_kernel_image_is_empty(). */
const void *hkt_kernel_image(void);
int         hkt_kernel_image_is_empty(void);

#endif
