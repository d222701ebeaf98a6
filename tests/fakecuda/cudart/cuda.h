/* cuda.h -- nothing of the driver is used. */
