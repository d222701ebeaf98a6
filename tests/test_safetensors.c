/* test_safetensors.c -- files of safetensors byte for byte, bad ones refused, GPT-2 there and back with the layout of
 * transformers. */
#include "harness.h"

#include "safetensors.h"
#include "safetensors_gpt2.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[300];

static void setup(void)
{
    const char *base = getenv("TMPDIR");
    int         fd;

    snprintf(path, sizeof(path), "%s/hocket-safetensors-XXXXXX", base ? base : "/tmp");
    fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static size_t slurp(char *data, size_t room)
{
    FILE  *f = fopen(path, "rb");
    size_t n = f ? fread(data, 1, room, f) : 0;

    ck_assert_msg(f, "%s", path);
    fclose(f);
    return n;
}

static void spill(const char *data, size_t size)
{
    FILE *f = fopen(path, "wb");

    ck_assert(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

/* What the reference library writes for these four tensors. */
static const char header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
    "\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
    "\"a\":{\"dtype\":\"F16\",\"shape\":[3,1],\"data_offsets\":[12,18]},"
    "\"\u00e9\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[18,19]}}      ";
static const unsigned char data[] = {0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 192, 63, 0, 60, 0, 64, 0, 66, 7};

static size_t golden(char *file)
{
    const uint64_t n = sizeof(header) - 1;

    memcpy(file, &n, 8);
    memcpy(file + 8, header, n);
    memcpy(file + 8 + n, data, sizeof(data));
    return 8 + n + sizeof(data);
}

static int fill_c(void *arg, const struct safetensor *tensor, void *out)
{
    const float x = 1.5f;

    ck_assert_str_eq(tensor->name, "c");
    memcpy(out, &x, sizeof(x));
    return *(int *)arg;
}

/* Proves: the file written is byte for byte that of the reference library, and is read back; a failing source leaves the old
 * file. */
START_TEST(golden_bytes)
{
    const float                b[]      = {1, 2};
    const uint16_t             a[]      = {0x3c00, 0x4000, 0x4200};
    const uint8_t              e        = 7;
    struct safetensor          t[]      = {{.name = "a", .type = HKT_FLOAT16, .dims = 2, .shape = {3, 1}, .data = a},
                                           {.name = "\u00e9", .type = HKT_UINT8, .data = &e},
                                           {.name = "c", .type = HKT_FLOAT32, .dims = 1, .shape = {1}},
                                           {.name = "b", .type = HKT_FLOAT32, .dims = 1, .shape = {2}, .data = b}};
    const hkt_metadata_t       metadata = {"format", "pt"};
    int                        rc       = HKT_OK;
    struct safetensors_content content  = {t, 4, &metadata, 1, fill_c, &rc};
    char                       want[600], got[600];
    struct safetensors        *f;

    setup();
    ck_assert_msg(safetensors_write(path, &content) == 0, "%s", hkt_last_error());
    ck_assert_uint_eq(slurp(got, sizeof(got)), golden(want));
    ck_assert(memcmp(got, want, golden(want)) == 0);
    rc = HKT_ERR_USAGE;
    ck_assert_int_eq(safetensors_write(path, &content), HKT_ERR_USAGE);
    content.count = 4;
    memcpy(t[1].name, "b", 2);
    ck_assert_int_eq(safetensors_write(path, &content), HKT_ERR_ARGUMENT);

    ck_assert_msg(safetensors_open(&f, path) == 0, "%s", hkt_last_error());
    ck_assert(safetensors_count(f) == 4 && !safetensors_find(f, "d") && strcmp(safetensors_at(f, 2)->name, "a") == 0 &&
              !safetensors_at(f, 4));
    ck_assert(safetensors_find(f, "a")->dims == 2 && safetensors_find(f, "a")->shape[0] == 3 &&
              safetensors_find(f, "a")->bytes == 6);
    ck_assert(memcmp(safetensors_find(f, "b")->data, b, sizeof(b)) == 0 && safetensors_find(f, "\u00e9")->dims == 0);
    safetensors_close(f);
    ck_assert_int_eq(safetensors_write("/no/such/folder/x", &content), HKT_ERR_ARGUMENT); /* still twice the same */
    content.count = 1;
    ck_assert_int_eq(safetensors_write("/no/such/folder/x", &content), HKT_ERR_SYSTEM);
    unlink(path);
}
END_TEST

/* Reads every byte of every tensor. */
static uint64_t touch(const struct safetensors *f)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < safetensors_count(f); i++)
        sum += hkt_checksum(safetensors_at(f, i)->data, safetensors_at(f, i)->bytes, 0);
    return sum;
}

/* Proves: cut off anywhere, with any byte of length or header changed, or with pieces of the header doubled or lost, a file is
 * refused with its name or is a file that can be read. */
START_TEST(bad_files)
{
    char                file[700], bad[1400];
    const size_t        n = golden(file);
    struct safetensors *f;
    int                 refused = 0;

    setup();
    for (size_t size = 0; size < n; size++) {
        spill(file, size);
        ck_assert_msg(safetensors_open(&f, path) == HKT_ERR_ARGUMENT, "%zu bytes are accepted", size);
        ck_assert_msg(strstr(hkt_last_error(), path), "%s", hkt_last_error());
    }
    for (uint64_t turn = 0; turn < 6000; turn++) {
        const size_t at = mix(turn) % (8 + sizeof(header) - 1), from = 8 + mix(turn + 9000) % (sizeof(header) - 60),
                     length   = 1 + mix(turn + 20000) % 50;
        const uint64_t longer = sizeof(header) - 1 + length, shorter = sizeof(header) - 1 - length;

        memcpy(bad, file, n);
        if (turn % 3 == 0) {
            bad[at] = turn % 2 ? (char)mix(turn + 1) : "{}[]\",:019"[mix(turn + 2) % 10];
            spill(bad, n);
        } else if (turn % 3 == 1) {
            memcpy(bad, &longer, 8);
            memcpy(bad + from + length, file + from, n - from);
            spill(bad, n + length);
        } else {
            memcpy(bad, &shorter, 8);
            memcpy(bad + from, file + from + length, n - from - length);
            spill(bad, n - length);
        }
        if (safetensors_open(&f, path) == 0) {
            (void)touch(f);
            safetensors_close(f);
        } else {
            refused++;
        }
    }
    ck_assert_msg(refused > 5000, "only %d of 6000 were refused", refused);
    unlink(path);
}
END_TEST

/* Proves: what the format forbids is refused by name: gaps, overlaps, sizes that do not fit, unknown types, doubled names. */
START_TEST(forbidden)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", "does not begin where"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "has 8 bytes of data, and its tensors 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", "do not fit type and shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,2],\"data_offsets\":[0,8]}}", "do not fit type and shape"},
        {"{\"a\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}", "a type that is not supported"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_"
         "offsets\":[8,8]}}",
         "a is there twice"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", "beyond the end"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "data_offsets expected"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4,8]}}", "two offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", "more dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"x\":1}}", "unknown or there twice"},
    };

    setup();
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char                file[300] = {0};
        const uint64_t      n         = strlen(bad[i].text);
        struct safetensors *f;

        memcpy(file, &n, 8);
        memcpy(file + 8, bad[i].text, n);
        spill(file, 16 + n);
        ck_assert_int_eq(safetensors_open(&f, path), HKT_ERR_ARGUMENT);
        ck_assert_msg(strstr(hkt_last_error(), bad[i].says), "%s: %s", bad[i].text, hkt_last_error());
    }
    unlink(path);
}
END_TEST

/* ---- GPT-2 */

static const struct gpt2_shape shape = {
    .layers = 2, .width = 6, .heads = 3, .mlp = 10, .length = 4, .vocabulary = 7, .padded = 8};

/* The trainer's element (r, c) of tensor `index`. */
static float element(size_t index, size_t r, size_t c)
{
    return (float)(index * 10000 + r * 100 + c);
}

static int fetch(void *arg, size_t index, float *out)
{
    const struct gpt2_tensor t = gpt2_tensor(&shape, index);

    (void)arg;
    for (size_t r = 0; r < t.rows; r++)
        for (size_t c = 0; c < t.cols; c++)
            out[r * t.cols + c] = element(index, r, c);
    return HKT_OK;
}

static size_t index_of(const char *name)
{
    size_t i = 0;

    while (strcmp(gpt2_tensor(&shape, i).name, name) != 0)
        ck_assert_uint_lt(++i, gpt2_count(&shape));
    return i;
}

static float in_file(const struct safetensors *f, const char *name, size_t r, size_t c)
{
    const struct safetensor *t = safetensors_find(f, name);
    float                    x;

    ck_assert_msg(t, "%s", name);
    memcpy(&x, (const char *)t->data + (r * (t->dims == 2 ? t->shape[1] : 0) + c) * sizeof(x), sizeof(x));
    return x;
}

/* Proves: names and shapes are GPT-2's in transformers (weights turned, queries, keys and values of all heads apart, no padding),
 * and what is written comes back, padding as zeros. */
START_TEST(gpt2_there_and_back)
{
    const struct gpt2_source source = {fetch, NULL};
    struct safetensors      *f;
    struct gpt2_shape        found;
    float                    out[400];
    const size_t             qkv = index_of("h.1.attn.c_attn.weight"), bias = index_of("h.1.attn.c_attn.bias"),
                 up = index_of("h.0.mlp.c_fc.weight");

    setup();
    ck_assert_msg(gpt2_write(path, &shape, &source) == 0, "%s", hkt_last_error());
    ck_assert_msg(safetensors_open(&f, path) == 0, "%s", hkt_last_error());
    ck_assert(safetensors_count(f) == 4 + 2 * 12 && gpt2_count(&shape) == 28);
    ck_assert(safetensors_find(f, "wte.weight")->shape[0] == 7 && safetensors_find(f, "h.0.mlp.c_fc.weight")->shape[0] == 6 &&
              safetensors_find(f, "h.0.mlp.c_fc.weight")->shape[1] == 10 &&
              safetensors_find(f, "h.0.attn.c_attn.bias")->dims == 1);
    ck_assert_float_eq(in_file(f, "h.0.mlp.c_fc.weight", 2, 9), element(up, 9, 2));
    /* head 1, key, dimension 1: here row 1 * 6 + 2 + 1 = 9; there column 6 + 2 + 1 = 9; head 2, query, 0: row 12, column 4 */
    ck_assert_float_eq(in_file(f, "h.1.attn.c_attn.weight", 5, 9), element(qkv, 9, 5));
    ck_assert_float_eq(in_file(f, "h.1.attn.c_attn.weight", 3, 4), element(qkv, 12, 3));
    ck_assert_float_eq(in_file(f, "h.1.attn.c_attn.bias", 0, 4), element(bias, 0, 12));
    ck_assert_float_eq(in_file(f, "h.1.attn.c_attn.bias", 0, 17), element(bias, 0, 17));

    ck_assert_int_eq(gpt2_shape(&found, f), 0);
    ck_assert(found.layers == 2 && found.width == 6 && found.mlp == 10 && found.length == 4 && found.vocabulary == 7 &&
              found.padded == 7);
    for (size_t i = 0; i < gpt2_count(&shape); i++) {
        const struct gpt2_tensor t = gpt2_tensor(&shape, i);

        ck_assert_msg(gpt2_read(out, &shape, i, f) == 0, "%s", hkt_last_error());
        for (size_t r = 0; r < t.rows; r++)
            for (size_t c = 0; c < t.cols; c++)
                ck_assert_msg(out[r * t.cols + c] == (i == 0 && r == 7 ? 0 : element(i, r, c)), "%s (%zu, %zu)", t.name, r, c);
    }
    safetensors_close(f);
    unlink(path);
}
END_TEST

/* Proves: names with "transformer." before them and 16-bit types are read; missing tensors, other shapes and impossible models
 * are refused by name. */
START_TEST(gpt2_variants)
{
    uint16_t          half[7 * 6];
    float             wpe[4 * 6] = {0}, up[6 * 10] = {0}, out[8 * 6];
    struct safetensor t[] = {
        {.name = "transformer.wte.weight", .type = HKT_BFLOAT16, .dims = 2, .shape = {7, 6}, .data = half},
        {.name = "transformer.wpe.weight", .type = HKT_FLOAT32, .dims = 2, .shape = {4, 6}, .data = wpe},
        {.name = "transformer.h.0.mlp.c_fc.weight", .type = HKT_FLOAT32, .dims = 2, .shape = {6, 10}, .data = up},
        {.name = "transformer.h.0.ln_1.weight", .type = HKT_FLOAT32, .dims = 1, .shape = {5}, .data = up}};
    struct safetensors_content content = {.tensor = t, .count = 4};
    struct gpt2_shape          found, odd = shape;
    struct safetensors        *f;
    const struct gpt2_source   source = {fetch, NULL};

    for (size_t i = 0; i < 42; i++)
        half[i] = 0x3f80;
    setup();
    ck_assert_msg(safetensors_write(path, &content) == 0, "%s", hkt_last_error());
    ck_assert_int_eq(safetensors_open(&f, path), 0);
    ck_assert_int_eq(gpt2_shape(&found, f), 0);
    ck_assert(found.layers == 1 && found.vocabulary == 7);
    ck_assert_int_eq(gpt2_read(out, &shape, index_of("wte.weight"), f), 0);
    ck_assert(out[0] == 1 && out[41] == 1 && out[42] == 0);
    ck_assert_int_eq(gpt2_read(out, &shape, index_of("ln_f.bias"), f), HKT_ERR_ARGUMENT);
    ck_assert(strstr(hkt_last_error(), "has no tensor ln_f.bias"));
    ck_assert_int_eq(gpt2_read(out, &shape, index_of("h.0.ln_1.weight"), f), HKT_ERR_ARGUMENT);
    ck_assert(strstr(hkt_last_error(), "has shape 5 and not 6"));
    safetensors_close(f);
    odd.heads = 4;
    ck_assert_int_eq(gpt2_write(path, &odd, &source), HKT_ERR_ARGUMENT);
    odd.heads  = 3;
    odd.padded = 6;
    ck_assert_int_eq(gpt2_write(path, &odd, &source), HKT_ERR_ARGUMENT);
    content.count = 1;
    ck_assert_int_eq(safetensors_write(path, &content), 0);
    ck_assert_int_eq(safetensors_open(&f, path), 0);
    ck_assert_int_eq(gpt2_shape(&found, f), HKT_ERR_ARGUMENT);
    ck_assert(strstr(hkt_last_error(), "is no GPT-2"));
    safetensors_close(f);
    unlink(path);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, golden_bytes, 1, 10);
    ADD(s, bad_files, 1, 20);
    ADD(s, forbidden, 1, 10);
    ADD(s, gpt2_there_and_back, 1, 10);
    ADD(s, gpt2_variants, 1, 10);
}

int main(void)
{
    return run_suite("safetensors", add);
}
