/* safetensors.h -- tensors in a file, in the format of that name: u64 bytes of the header, the header as JSON (per
 * tensor its type, shape and place), the data behind it without gaps.
 *
 * Functions return 0 or a negative HKT_ERR_* with the sentence in hkt_last_error(). A file that is open may be read by
 * many threads.
 */
#ifndef TRAINER_SAFETENSORS_H
#define TRAINER_SAFETENSORS_H

#include <hocket_train.h>

enum { SAFETENSORS_DIMS = 6, SAFETENSORS_NAME = 256 };

struct safetensor {
    char        name[SAFETENSORS_NAME];
    hkt_type_t  type; /* BOOL is HKT_UINT8 */
    int         dims;
    size_t      shape[SAFETENSORS_DIMS];
    size_t      bytes;
    const void *data; /* in the mapped file, or to be written */
};

struct safetensors;

/* Maps the file and checks all of the header: types, shapes, and that the tensors fill the file without gap or overlap.
 */
int  safetensors_open(struct safetensors **file, const char *path);
void safetensors_close(struct safetensors *file); /* NULL is allowed */

size_t                   safetensors_count(const struct safetensors *file);
const struct safetensor *safetensors_at(const struct safetensors *file, size_t index); /* in the order of the data */
const struct safetensor *safetensors_find(const struct safetensors *file, const char *name); /* NULL: not there */
const char              *safetensors_path(const struct safetensors *file);

/* Writes the tensors as the reference library does, larger types first and then by name, under a temporary name until
 * it is complete. Where data is NULL, fill(arg, tensor, out) is called for it when its turn has come; so the whole
 * model need not be in memory. Name, type and shape are read, bytes is set. */
struct safetensors_content {
    struct safetensor    *tensor;
    size_t                count;
    const hkt_metadata_t *metadata;
    size_t                n_metadata;
    int (*fill)(void *arg, const struct safetensor *tensor, void *out);
    void *arg;
};
int safetensors_write(const char *path, const struct safetensors_content *content);

#endif
