/* mapping.h -- a file as memory that is only read. */
#ifndef TRAINER_MAPPING_H
#define TRAINER_MAPPING_H

#include <stddef.h>

struct mapping {
    const unsigned char *at; /* NULL: an empty file */
    size_t               size;
};

/* HKT_ERR_SYSTEM, with a sentence that names the path; then there is nothing to close. */
int  mapping_open(struct mapping *mapping, const char *path);
void mapping_close(struct mapping *mapping); /* an empty one is allowed */

#endif
