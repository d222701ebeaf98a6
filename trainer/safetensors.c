/* safetensors.c -- see safetensors.h. */
#include "safetensors.h"

#include "json.h"
#include "mapping.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_HEADER = 100 << 20 /* the limit of the reference library */ };

static const struct {
    const char *name;
    hkt_type_t  type;
} types[] = {{"F64", HKT_FLOAT64},
             {"F32", HKT_FLOAT32},
             {"F16", HKT_FLOAT16},
             {"BF16", HKT_BFLOAT16},
             {"I64", HKT_INT64},
             {"U64", HKT_UINT64},
             {"I32", HKT_INT32},
             {"U32", HKT_UINT32},
             {"I16", HKT_INT16},
             {"U16", HKT_UINT16},
             {"I8", HKT_INT8},
             {"U8", HKT_UINT8},
             {"BOOL", HKT_UINT8},
             {"F8_E4M3", HKT_FLOAT8_E4M3},
             {"F8_E5M2", HKT_FLOAT8_E5M2}};

struct safetensors {
    const char        *map;
    size_t             size, header; /* bytes of all, of length and header */
    struct safetensor *tensor;
    size_t            *by_name; /* places in `tensor`, in the order of the names */
    size_t             count;
    char               path[];
};

/* ---- reading */

static int wrong(const struct safetensors *f, const struct json *j, const char *name)
{
    return hkt_error_set(HKT_ERR_ARGUMENT, "%s: %s at byte %zu of the header%s%s", f->path, j->wrong,
                         (size_t)(j->at - j->text), *name ? ", near tensor " : "", name);
}

static bool read_type(struct json *j, struct safetensor *t)
{
    char   name[16];
    size_t length;

    if (!json_string(j, name, sizeof(name), &length))
        return false;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, name) == 0) {
            t->type = types[i].type;
            return true;
        }
    return json_fail(j, "a type that is not supported");
}

static bool read_shape(struct json *j, struct safetensor *t)
{
    uint64_t number;

    json_enter(j, '[');
    while (json_more(j, ']')) {
        if (t->dims == SAFETENSORS_DIMS)
            return json_fail(j, "more dimensions than 6");
        if (!json_unsigned(j, &number))
            return false;
        t->shape[t->dims++] = number;
    }
    return !j->wrong;
}

static bool read_offsets(struct json *j, uint64_t offset[2])
{
    int n = 0;

    json_enter(j, '[');
    while (json_more(j, ']'))
        if (n == 2 || !json_unsigned(j, &offset[n++]))
            return json_fail(j, "two offsets expected");
    return n == 2 || json_fail(j, "two offsets expected");
}

/* Bytes of the tensor by type and shape; false: more than fit. */
static bool bytes_of(const struct safetensor *t, size_t *bytes)
{
    *bytes = hkt_type_size(t->type);
    for (int d = 0; d < t->dims; d++)
        if (__builtin_mul_overflow(*bytes, t->shape[d], bytes))
            return false;
    return true;
}

static bool read_tensor(struct json *j, struct safetensor *t, const struct safetensors *f)
{
    uint64_t offset[2];
    char     key[16];
    size_t   length, expected;
    unsigned seen = 0;

    json_enter(j, '{');
    while (json_more(j, '}')) {
        if (!json_key(j, key, sizeof(key), &length))
            return false;
        const unsigned which = strcmp(key, "dtype") == 0          ? 1
                               : strcmp(key, "shape") == 0        ? 2
                               : strcmp(key, "data_offsets") == 0 ? 4
                                                                  : 0;

        if (!which || (seen & which))
            return json_fail(j, "a key that is unknown or there twice");
        if (!(which == 1 ? read_type(j, t) : which == 2 ? read_shape(j, t) : read_offsets(j, offset)))
            return false;
        seen |= which;
    }
    if (j->wrong || seen != 7)
        return json_fail(j, "dtype, shape and data_offsets expected");
    if (offset[0] > offset[1] || offset[1] > f->size - f->header)
        return json_fail(j, "offsets beyond the end of the file (is it cut off?)");
    t->bytes = offset[1] - offset[0];
    t->data  = f->map + f->header + offset[0];
    return (bytes_of(t, &expected) && expected == t->bytes) || json_fail(j, "offsets that do not fit type and shape");
}

static int by_place(const void *a, const void *b)
{
    const struct safetensor *x = a, *y = b;

    if (x->data != y->data)
        return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int check_places(const struct safetensors *f)
{
    const char *end = f->map + f->header;

    for (size_t i = 0; i < f->count; i++) {
        if (f->tensor[i].data != end)
            return hkt_error_set(HKT_ERR_ARGUMENT, "%s: tensor %s does not begin where the one before ends", f->path,
                                 f->tensor[i].name);
        end += f->tensor[i].bytes;
    }
    if (end != f->map + f->size)
        return hkt_error_set(HKT_ERR_ARGUMENT, "%s has %zu bytes of data, and its tensors %zu", f->path,
                             f->size - f->header, (size_t)(end - f->map) - f->header);
    return HKT_OK;
}

static int compare_names(const void *a, const void *b, void *file)
{
    const struct safetensors *f = file;

    return strcmp(f->tensor[*(const size_t *)a].name, f->tensor[*(const size_t *)b].name);
}

static int sort_names(struct safetensors *f)
{
    f->by_name = calloc(f->count + 1, sizeof(*f->by_name));
    if (!f->by_name)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for the %zu names of %s", f->count, f->path);
    for (size_t i = 0; i < f->count; i++)
        f->by_name[i] = i;
    qsort_r(f->by_name, f->count, sizeof(*f->by_name), compare_names, f);
    for (size_t i = 1; i < f->count; i++)
        if (compare_names(&f->by_name[i - 1], &f->by_name[i], f) == 0)
            return hkt_error_set(HKT_ERR_ARGUMENT, "%s: tensor %s is there twice", f->path,
                                 f->tensor[f->by_name[i]].name);
    return HKT_OK;
}

static int read_header(struct safetensors *f)
{
    struct json j                      = json_text(f->map + 8, f->header - 8);
    char        name[SAFETENSORS_NAME] = "";
    size_t      most                   = 0, length;

    for (size_t i = 8; i < f->header; i++)
        most += f->map[i] == '{';
    f->tensor = calloc(most + 1, sizeof(*f->tensor));
    if (!f->tensor)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for the %zu tensors of %s", most, f->path);
    json_enter(&j, '{');
    while (json_more(&j, '}')) {
        if (!json_key(&j, name, sizeof(name), &length))
            break;
        if (strcmp(name, "__metadata__") == 0) {
            json_skip(&j);
            continue;
        }
        memcpy(f->tensor[f->count].name, name, sizeof(name));
        if (!read_tensor(&j, &f->tensor[f->count], f))
            break;
        f->count++;
    }
    if (!json_done(&j))
        return wrong(f, &j, name);
    qsort(f->tensor, f->count, sizeof(*f->tensor), by_place);
    return check_places(f) < 0 ? HKT_ERR_ARGUMENT : sort_names(f);
}

static int open_file(struct safetensors *f)
{
    struct mapping file;
    uint64_t       header;
    const int      rc = mapping_open(&file, f->path);

    if (rc < 0)
        return rc;
    f->map  = (const char *)file.at;
    f->size = file.size;
    if (f->size < 10)
        return hkt_error_set(HKT_ERR_ARGUMENT, "%s is no file of safetensors: it has %zu bytes", f->path, f->size);
    memcpy(&header, f->map, sizeof(header));
    if (header > MOST_HEADER || header > f->size - 8 || f->map[8] != '{')
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "%s is no file of safetensors, or cut off: its header would have %" PRIu64
                             " bytes, and it has %zu",
                             f->path, header, f->size);
    f->header = 8 + header;
    return read_header(f);
}

int safetensors_open(struct safetensors **file, const char *path)
{
    const size_t        n = strlen(path);
    struct safetensors *f = calloc(1, sizeof(*f) + n + 1);
    int                 rc;

    if (!f)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory to open %s", path);
    memcpy(f->path, path, n + 1);
    rc = open_file(f);
    if (rc < 0)
        safetensors_close(f);
    else
        *file = f;
    return rc;
}

void safetensors_close(struct safetensors *f)
{
    if (!f)
        return;
    mapping_close(&(struct mapping){(const unsigned char *)f->map, f->size});
    free(f->tensor);
    free(f->by_name);
    free(f);
}

size_t safetensors_count(const struct safetensors *f)
{
    return f->count;
}

const struct safetensor *safetensors_at(const struct safetensors *f, size_t index)
{
    return index < f->count ? &f->tensor[index] : NULL;
}

const struct safetensor *safetensors_find(const struct safetensors *f, const char *name)
{
    size_t low = 0, high = f->count;

    while (low < high) { /* the first that is not before it */
        const size_t middle = low + (high - low) / 2;

        if (strcmp(f->tensor[f->by_name[middle]].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < f->count && strcmp(f->tensor[f->by_name[low]].name, name) == 0 ? &f->tensor[f->by_name[low]] : NULL;
}

const char *safetensors_path(const struct safetensors *f)
{
    return f->path;
}

/* ---- writing */

static const char *type_name(hkt_type_t type)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (types[i].type == type)
            return types[i].name;
    return "?";
}

static int larger_first(const void *a, const void *b)
{
    const struct safetensor *x = a, *y = b;
    const size_t             n = hkt_type_size(x->type), m = hkt_type_size(y->type);

    return n != m ? (n < m ? 1 : -1) : strcmp(x->name, y->name);
}

static int check_content(const struct safetensors_content *c)
{
    for (size_t i = 0; i < c->count; i++) {
        struct safetensor *t = &c->tensor[i];

        if (!hkt_type_size(t->type) || t->dims < 0 || t->dims > SAFETENSORS_DIMS || !bytes_of(t, &t->bytes) ||
            (!t->data && !c->fill))
            return hkt_error_set(HKT_ERR_ARGUMENT, "tensor %s cannot be written: type, shape or data is not valid",
                                 t->name);
        if (i && strcmp(t->name, t[-1].name) == 0)
            return hkt_error_set(HKT_ERR_ARGUMENT, "tensor %s is to be written twice", t->name);
    }
    return HKT_OK;
}

/* The header as text, padded with spaces to 8 bytes. free() it. */
static char *make_header(const struct safetensors_content *c, size_t *length)
{
    size_t room = 64, n, offset = 0;
    char  *text;

    for (size_t i = 0; i < c->n_metadata; i++)
        room += 6 * (strlen(c->metadata[i].key) + strlen(c->metadata[i].value)) + 16;
    text = malloc(room + c->count * (6 * SAFETENSORS_NAME + 300));
    if (!text)
        return NULL;
    n = (size_t)sprintf(text, "{");
    for (size_t i = 0; i < c->n_metadata; i++) {
        n += (size_t)sprintf(text + n, "%s", i ? "," : "\"__metadata__\":{");
        n += json_quote(text + n, c->metadata[i].key, strlen(c->metadata[i].key));
        text[n++] = ':';
        n += json_quote(text + n, c->metadata[i].value, strlen(c->metadata[i].value));
    }
    n += (size_t)sprintf(text + n, "%s", c->n_metadata ? "}" : "");
    for (size_t i = 0; i < c->count; i++) {
        const struct safetensor *t = &c->tensor[i];

        n += (size_t)sprintf(text + n, "%s", i || c->n_metadata ? "," : "");
        n += json_quote(text + n, t->name, strlen(t->name));
        n += (size_t)sprintf(text + n, ":{\"dtype\":\"%s\",\"shape\":[", type_name(t->type));
        for (int d = 0; d < t->dims; d++)
            n += (size_t)sprintf(text + n, "%s%zu", d ? "," : "", t->shape[d]);
        n += (size_t)sprintf(text + n, "],\"data_offsets\":[%zu,%zu]}", offset, offset + t->bytes);
        offset += t->bytes;
    }
    text[n++] = '}';
    while (n % 8)
        text[n++] = ' ';
    *length = n;
    return text;
}

static int write_data(FILE *file, const char *path, const struct safetensors_content *c)
{
    size_t largest = 1;
    void  *out     = NULL;
    int    rc      = HKT_OK;

    for (size_t i = 0; i < c->count; i++)
        largest = !c->tensor[i].data && c->tensor[i].bytes > largest ? c->tensor[i].bytes : largest;
    out = malloc(largest);
    if (!out)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for a tensor of %zu bytes", largest);
    for (size_t i = 0; i < c->count && rc == HKT_OK; i++) {
        const struct safetensor *t = &c->tensor[i];

        if (!t->data)
            rc = c->fill(c->arg, t, out);
        if (rc == HKT_OK && fwrite(t->data ? t->data : out, 1, t->bytes, file) != t->bytes)
            rc = hkt_error_set(HKT_ERR_SYSTEM, "writing %s: %s", path, strerror(errno));
    }
    free(out);
    return rc;
}

static int write_all(FILE *file, const char *path, const struct safetensors_content *c)
{
    size_t length = 0; /* u64 of the format */
    char  *header = make_header(c, &length);
    bool   failed;
    int    rc;

    _Static_assert(sizeof(length) == sizeof(uint64_t), "it is written as it is");
    if (!header)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for the header of %s", path);
    failed = fwrite(&length, sizeof(length), 1, file) != 1 || fwrite(header, 1, length, file) != length;
    free(header);
    if (failed)
        return hkt_error_set(HKT_ERR_SYSTEM, "writing %s: %s", path, strerror(errno));
    rc = write_data(file, path, c);
    if (rc == HKT_OK && (fflush(file) || fsync(fileno(file))))
        rc = hkt_error_set(HKT_ERR_SYSTEM, "writing %s: %s", path, strerror(errno));
    return rc;
}

int safetensors_write(const char *path, const struct safetensors_content *content)
{
    char  temporary[4100];
    FILE *file;
    int   rc;

    if (content->count)
        qsort(content->tensor, content->count, sizeof(*content->tensor), larger_first);
    rc = check_content(content);
    if (rc < 0)
        return rc;
    if (snprintf(temporary, sizeof(temporary), "%s.tmp", path) >= (int)sizeof(temporary))
        return hkt_error_set(HKT_ERR_ARGUMENT, "the path of the file is longer than 4095 bytes");
    file = fopen(temporary, "wb");
    if (!file)
        return hkt_error_set(HKT_ERR_SYSTEM, "creating %s: %s", temporary, strerror(errno));
    rc = write_all(file, temporary, content);
    if (fclose(file) && rc == HKT_OK)
        rc = hkt_error_set(HKT_ERR_SYSTEM, "writing %s: %s", temporary, strerror(errno));
    if (rc == HKT_OK && rename(temporary, path))
        rc = hkt_error_set(HKT_ERR_SYSTEM, "renaming to %s: %s", path, strerror(errno));
    if (rc < 0)
        unlink(temporary);
    return rc;
}
