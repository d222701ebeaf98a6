/* life.h -- making the page that says who this process is and which host it is on. See process.h. */
#ifndef HKT_LIFE_H
#define HKT_LIFE_H

#include "process.h"

/* This process's page and its memfd, filled but for the uuid and what the helper thread adds. 0, HKT_ERR_MEMORY, HKT_ERR_SYSTEM. */
int hkt_life_make(struct hkt_life **made, int *fd);

#endif
