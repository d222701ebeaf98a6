/* pipeline_layout.c -- how many layers each virtual stage has.
 *
 * Layers are never cut off or invented: the sum is the model's, or the layout is refused with what would be valid. */
#include <parallel/rules.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 1 << 24 };

static int check(int layers, int stages, int chunks)
{
    if (layers < 1 || layers > MOST_LAYERS || stages < 1 || chunks < 1 || (int64_t)stages * chunks > MOST_LAYERS)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "a layout of %d layers on %d stages of %d chunks; all are 1 or more, and at most %d",
                             layers, stages, chunks, MOST_LAYERS);
    return HKT_OK;
}

/* ---- even -------------------------------------------------------------------------------------------------------- */

/* Embedding and head, where they count, take the place of a layer at the two ends. */
static int divide(int *layers_of, int layers, int parts, int stages, unsigned counted)
{
    const int embedding = counted & HKT_LAYOUT_EMBEDDING ? 1 : 0, head = counted & HKT_LAYOUT_HEAD ? 1 : 0;
    const int slots = layers + embedding + head;

    if (slots < parts || (parts == 1 && layers < 1))
        return hkt_error_set(
            HKT_ERR_ARGUMENT,
            "%d layers%s do not fill %d stages of %d chunks (valid: %d layers or more, or stages * chunks at "
            "most %d)",
            layers, embedding || head ? ", embedding and head counted where asked," : "", stages, parts / stages,
            parts - embedding - head, slots);
    for (int k = 0; k < parts; k++)
        layers_of[k] = slots / parts + (k < slots % parts);
    layers_of[0] -= embedding;
    layers_of[parts - 1] -= head;
    return HKT_OK;
}

/* ---- explicit ---------------------------------------------------------------------------------------------------- */

/* The next "6" or "6*10" of a list: layers and how many times. NULL: it is neither. */
static const char *next_entry(const char *at, long *layers, long *times)
{
    char *end;

    errno   = 0;
    *layers = strtol(at, &end, 10);
    *times  = 1;
    if (end == at || errno || *layers > MOST_LAYERS)
        return NULL;
    if (*end == '*') {
        at     = end + 1;
        *times = strtol(at, &end, 10);
        if (end == at || errno || *times < 1 || *times > MOST_LAYERS)
            return NULL;
    }
    while (*end == ' ')
        end++;
    if (*end == ',')
        return end + 1;
    return *end ? NULL : end;
}

static int parse(int *layers_of, int layers, int parts, int stages, const char *text)
{
    struct hkt_rules rules = {0};
    int64_t          sum = 0, n = 0;

    for (const char *at = text; *at;) {
        const char *const word = at;
        long              value, times;

        at = next_entry(at, &value, &times);
        if (!at)
            return hkt_error_set(
                HKT_ERR_ARGUMENT,
                "the layout \"%.80s\" is not readable at \"%.20s\" (valid: numbers of layers with ',' between "
                "them, also 6*10 for ten times 6)",
                text, word);
        for (long i = 0; i < times; i++, n++) {
            if (value < (n == 0 || n == parts - 1 ? 0 : 1) && n < parts)
                hkt_rules_add(&rules, "entry %lld is %ld (valid: 1 or more, 0 only at the ends)", (long long)n + 1,
                              value);
            if (n < parts)
                layers_of[n] = (int)value;
        }
        sum += (int64_t)value * times;
    }
    if (n != parts)
        hkt_rules_add(&rules, "it has %lld entries, and there are %d stages of %d chunks (valid: %d entries)",
                      (long long)n, stages, parts / stages, parts);
    if (sum != layers)
        hkt_rules_add(&rules, "its sum is %lld, and the model has %d layers (valid: a sum of %d)", (long long)sum,
                      layers, layers);
    return hkt_rules_end(&rules, "the layout");
}

int hkt_layout_make(int *layers_of, int layers, int stages, int chunks, const char *text, unsigned counted)
{
    void *memory = NULL;
    int   rc;

    if (!layers_of || counted & ~(unsigned)(HKT_LAYOUT_EMBEDDING | HKT_LAYOUT_HEAD))
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_layout_make: %s",
                             layers_of ? "counted is HKT_LAYOUT_* together" : "layers_of is NULL");
    TRY(check(layers, stages, chunks));
    if (!text || !*text)
        return divide(layers_of, layers, stages * chunks, stages, counted);
    TRY(hkt_ledger_take(&memory, (size_t)stages * (size_t)chunks * sizeof(int), HKT_BYTES_OTHER, false,
                        NULL)); /* written only on success */
    rc = parse(memory, layers, stages * chunks, stages, text);
    if (!rc)
        memcpy(layers_of, memory, (size_t)stages * (size_t)chunks * sizeof(int));
    (void)hkt_ledger_give(memory, NULL);
    return rc;
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

int hkt_layout_first(const int *layers_of, int virtual_stage)
{
    int first = 0;

    for (int k = 0; k < virtual_stage; k++)
        first += layers_of[k];
    return first;
}

int hkt_layout_print(FILE *out, const int *layers_of, int stages, int chunks)
{
    if (!out || !layers_of || stages < 1 || chunks < 1)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_layout_print: out and layers_of are not NULL, stages and chunks are 1 or more");
    for (int r = 0; r < stages; r++) {
        fprintf(out, "stage %d:", r);
        for (int c = 0; c < chunks; c++) {
            const int k = c * stages + r, first = hkt_layout_first(layers_of, k);

            fprintf(out, "%s%s", c ? " |" : "", k == 0 ? " embedding" : "");
            if (layers_of[k])
                fprintf(out, " layers %d-%d", first, first + layers_of[k] - 1);
            fprintf(out, "%s", k == stages * chunks - 1 ? " head" : "");
        }
        fprintf(out, "\n");
    }
    return HKT_OK;
}

int hkt_layout_chunks(int *chunks, int layers, int stages, int layers_per_chunk)
{
    const int        each  = stages > 0 ? layers / stages : 0;
    struct hkt_rules rules = {0};
    int              n     = 0;

    if (!chunks)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_layout_chunks: chunks is NULL");
    TRY(check(layers, stages, 1));
    if (layers % stages == 0 && layers_per_chunk > 0 && each % layers_per_chunk == 0) {
        *chunks = each / layers_per_chunk;
        return HKT_OK;
    }
    if (layers % stages) {
        hkt_rules_add(&rules, "%d layers do not divide over %d stages (valid: ", layers, stages);
        for (int p = 1; p <= layers && n < 12; p++)
            if (layers % p == 0)
                hkt_rules_more(&rules, "%s%d", n++ ? ", " : "", p);
        hkt_rules_more(&rules, " stages, or an explicit layout)");
    } else {
        hkt_rules_add(&rules, "%d layers a chunk do not divide the %d layers of a stage (valid: ", layers_per_chunk,
                      each);
        for (int l = 1; l <= each && n < 12; l++)
            if (each % l == 0)
                hkt_rules_more(&rules, "%s%d", n++ ? ", " : "", l);
        hkt_rules_more(&rules, ")");
    }
    return hkt_rules_end(&rules, "the layout");
}
