/* codec.c -- codecs by name, and vectors to codes and back; what a codec is stands in codec.h. */
#include "codec.h"
#include "isa.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct codec_loops codec_loops_portable, codec_loops_avx2, codec_loops_avx512;

const struct codec_loops *codec_loops(void)
{
#ifdef __x86_64__
    static const struct codec_loops *const all[ISAS] = {&codec_loops_portable, &codec_loops_avx2, &codec_loops_avx512};

    return all[isa_usable()];
#else
    return &codec_loops_portable;
#endif
}

/* ---- names and options */

static int options_of(const struct codec *entry)
{
    int n = 0;

    while (n < CODEC_OPTIONS && entry->option[n].name)
        n++;
    return n;
}

/* "name, name, ..." of the codecs, or of the options of one. */
static const char *names(char *text, size_t size, const struct codec *entry)
{
    const struct codec *const *table = codec_loops()->table;
    size_t                     at    = 0;

    *text = 0;
    for (int i = 0; entry ? i < options_of(entry) : table[i] != NULL; i++) {
        const int wrote =
            snprintf(text + at, size - at, "%s%s", i ? ", " : "", entry ? entry->option[i].name : table[i]->name);

        at += wrote > 0 && (size_t)wrote < size - at ? (size_t)wrote : 0;
    }
    return *text ? text : "none";
}

static int set_option(hkt_codec_t *codec, const char *text, size_t length)
{
    const struct codec *entry = codec_of(codec);
    const char         *equal = memchr(text, '=', length);
    const size_t        name  = equal ? (size_t)(equal - text) : length;
    char                list[200], number[32], *end;

    for (int i = 0; i < options_of(entry); i++) {
        const struct codec_option *o = &entry->option[i];

        if (strlen(o->name) != name || strncmp(o->name, text, name) != 0)
            continue;
        snprintf(number, sizeof(number), "%.*s", equal ? (int)(length - name - 1) : 0, equal ? equal + 1 : "");
        const double value = strtod(number, &end);
        const bool whole = value == floor(value), power = whole && value >= 1 && ((long)value & ((long)value - 1)) == 0;

        if (end == number || *end || !(value >= o->least && value <= o->most) || (o->kind == CODEC_WHOLE && !whole) ||
            (o->kind == CODEC_POWER && !power))
            return hkt_error_set(HKT_ERR_ARGUMENT, "codec %s: '%.*s' is not valid: %s is %s", entry->name, (int)length,
                                 text, o->name, o->desc);
        codec->value[i] = value;
        return HKT_OK;
    }
    return hkt_error_set(HKT_ERR_ARGUMENT, "codec %s has no option '%.*s'; its options: %s", entry->name, (int)name,
                         text, names(list, sizeof(list), entry));
}

int hkt_codec_parse(hkt_codec_t *codec, const char *text)
{
    const struct codec *const *table = codec_loops()->table;
    const size_t               name  = text ? strcspn(text, ":") : 0;
    char                       list[200];
    hkt_codec_t                made = {0};

    if (!codec || !text)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_codec_parse: a pointer is NULL");
    for (int i = 0; table[i]; i++)
        if (strlen(table[i]->name) == name && strncmp(table[i]->name, text, name) == 0)
            made.entry = table[i];
    if (!made.entry)
        return hkt_error_set(HKT_ERR_ARGUMENT, "there is no codec '%.*s'; there are: %s", (int)name, text,
                             names(list, sizeof(list), NULL));
    for (int i = 0; i < options_of(made.entry); i++)
        made.value[i] = codec_of(&made)->option[i].normal;
    for (const char *at = text + name; *at;) {
        const size_t length = strcspn(++at, ",");

        TRY(set_option(&made, at, length));
        at += length;
    }
    *codec = made;
    return HKT_OK;
}

int hkt_codec_text(char *text, size_t size, const hkt_codec_t *codec)
{
    const struct codec *entry;
    char                whole[256];
    int                 at;

    if (!text || !codec || !codec->entry)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_codec_text: a pointer is NULL, or the codec was not parsed");
    entry = codec_of(codec);
    at    = snprintf(whole, sizeof(whole), "%s", entry->name);
    for (int i = 0; i < options_of(entry); i++)
        at += snprintf(whole + at, sizeof(whole) - (size_t)at, "%c%s=%.9g", i ? ',' : ':', entry->option[i].name,
                       codec->value[i]);
    if ((size_t)at >= size)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_codec_text: %d bytes are needed, there are %zu", at + 1, size);
    memcpy(text, whole, (size_t)at + 1);
    return HKT_OK;
}

int hkt_codec_list(hkt_codec_info_t *info, int index)
{
    const struct codec *const *table = codec_loops()->table;
    int                        count = 0;

    while (table[count])
        count++;
    if (!info || index < 0 || index >= count)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_codec_list: info is NULL, or index %d is not 0 to %d", index,
                             count - 1);
    const struct codec *c    = table[index];
    hkt_codec_info_t    made = {c->name, c->desc, {NULL}, c->ratio, c->feedback, c->random, c->linear};

    for (int i = 0; i < options_of(c); i++)
        made.option[i] = c->option[i].desc;
    *info = made;
    return HKT_OK;
}

/* ---- vectors */

size_t hkt_codec_bound(const hkt_codec_t *codec, size_t count)
{
    const struct codec *entry = codec && codec->entry ? codec_of(codec) : NULL;
    const size_t        rest  = count % CODEC_TILE;

    if (!entry || entry->linear)
        return 0;
    return count / CODEC_TILE * entry->bound(CODEC_TILE, codec->value) + (rest ? entry->bound(rest, codec->value) : 0);
}

void codec_encode_tile(uint8_t *code, float *e, struct codec_desk *desk, const struct codec_source *source)
{
    const hkt_codec_t  *codec = source->codec;
    const struct codec *entry = codec_of(codec);
    struct codec_call   call  = {codec->value, NULL, 0};

    if (entry->random) {
        const uint64_t first = source->first + desk->tile * CODEC_TILE; /* element i has half i % 2 of word i / 2 */

        hkt_random_fill_bits(desk->random, source->random, first / 2, codec_groups(desk->count) / 2 + first % 2);
        call.random = (const uint16_t *)desk->random + first % 2;
    }
    if (entry->measure)
        call.scale = source->scale ? source->scale[desk->tile] : entry->measure(desk->x, desk->count, codec->value);
    entry->encode(code, desk->x, desk->count, &call);
    if (e) {
        entry->decode(desk->d, code, desk->count, codec->value);
        codec_loops()->keep(e, desk->x, desk->d, desk->count);
    }
}

void codec_encode(uint8_t *code, float *e, const float *x, size_t count, const struct codec_source *source)
{
    const size_t      bytes = codec_of(source->codec)->bound(CODEC_TILE, source->codec->value);
    struct codec_desk desk;

    desk.tile = 0;
    for (size_t at = 0; at < count; at += CODEC_TILE, desk.tile++) {
        float *lost = e ? e + at : NULL;

        desk.count = codec_least(CODEC_TILE, count - at);
        if (source->unit)
            codec_loops()->load_units(desk.x, &(struct codec_units){x + at, source->unit + at}, lost, desk.count);
        else
            codec_loops()->load(desk.x, x + at, lost, desk.count);
        codec_encode_tile(code + desk.tile * bytes, lost, &desk, source);
    }
}

void codec_decode(float *x, const uint8_t *code, size_t count, const hkt_codec_t *codec)
{
    const struct codec *entry = codec_of(codec);
    const size_t        bytes = entry->bound(CODEC_TILE, codec->value);
    float               last[CODEC_TILE] __attribute__((aligned(64)));

    for (size_t at = 0; at < count; at += CODEC_TILE, code += bytes) {
        const size_t size  = codec_least(CODEC_TILE, count - at);
        const bool   whole = codec_groups(size) == size; /* else more would be written than x has */

        entry->decode(whole ? x + at : last, code, size, codec->value);
        if (!whole)
            memcpy(x + at, last, size * sizeof(float));
    }
}

static int check_call(const void *a, const void *b, size_t count, const hkt_codec_t *codec, const char *call)
{
    if (!codec || !codec->entry || (count && (!a || !b)))
        return hkt_error_set(HKT_ERR_ARGUMENT, "%s: a pointer is NULL, or the codec was not parsed", call);
    if (codec_of(codec)->linear)
        return hkt_error_set(HKT_ERR_UNSUPPORTED,
                             "%s: %s has no code of its own; use it through hkt_compressor_create()", call,
                             codec_of(codec)->name);
    return HKT_OK;
}

int hkt_codec_encode(void *code, float *feedback, const float *x, size_t count, const hkt_codec_place_t *place,
                     const hkt_codec_t *codec)
{
    struct codec_source source = {.codec = codec};

    TRY(check_call(code, x, count, codec, "hkt_codec_encode"));
    if (codec_of(codec)->random && !place)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_codec_encode: %s rounds by chance and needs a place",
                             codec_of(codec)->name);
    if (place) {
        source.random = (hkt_random_t){place->seed, place->stream};
        source.first  = place->first;
    }
    codec_encode(code, feedback, x, count, &source);
    return HKT_OK;
}

int hkt_codec_decode(float *x, const void *code, size_t count, const hkt_codec_t *codec)
{
    TRY(check_call(x, code, count, codec, "hkt_codec_decode"));
    codec_decode(x, code, count, codec);
    return HKT_OK;
}
