/* topology_value.c -- quantities and attributes as text. See topology_value.h. */
#include "topology_value.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- quantities -------------------------------------------------------------------------------------------------- */

struct unit {
    const char *name;
    double      factor;
};

static const struct unit byte_unit[] = {{"PiB", 0x1p50}, {"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10},
                                        {"PB", 1e15},    {"TB", 1e12},    {"GB", 1e9},     {"MB", 1e6},     {"kB", 1e3},
                                        {"B", 1},        {NULL, 0}};
static const struct unit rate_unit[] = {{"TB/s", 1e12},     {"GB/s", 1e9},     {"MB/s", 1e6},     {"kB/s", 1e3},      {"B/s", 1},
                                        {"Tb/s", 1e12 / 8}, {"Gb/s", 1e9 / 8}, {"Mb/s", 1e6 / 8}, {"kb/s", 1e3 / 8}, {NULL, 0}};
static const struct unit time_unit[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {NULL, 0}};

static bool quantity(const char *text, const struct unit *unit, double *value)
{
    char  *end;
    double number;

    if (!isdigit((unsigned char)text[0]) || strpbrk(text, "xXpP") == text + 1) /* no signs, no hexadecimal numbers */
        return false;
    number = strtod(text, &end);
    for (; unit->name; unit++)
        if (strcmp(end, unit->name) == 0) {
            *value = number * unit->factor;
            return isfinite(*value) && *value <= 0x1p60;
        }
    return false;
}

bool hkt_value_bytes(const char *text, uint64_t *bytes)
{
    double value;

    if (!quantity(text, byte_unit, &value))
        return false;
    *bytes = (uint64_t)value;
    return true;
}

bool hkt_value_rate(const char *text, double *bytes_per_second)
{
    return quantity(text, rate_unit, bytes_per_second);
}

bool hkt_value_seconds(const char *text, double *seconds)
{
    return quantity(text, time_unit, seconds);
}

bool hkt_value_integer(const char *text, int low, int high, int *value)
{
    char *end;
    long  number;

    if (!isdigit((unsigned char)text[0]))
        return false;
    number = strtol(text, &end, 10);
    if (*end || number < low || number > high)
        return false;
    *value = (int)number;
    return true;
}

const char *hkt_text_bytes(uint64_t bytes, char text[HKT_VALUE_TEXT])
{
    const struct unit *best = NULL;

    for (const struct unit *u = byte_unit; u->name; u++) /* the unit that leaves the least whole number */
        if (bytes % (uint64_t)u->factor == 0 && (!best || u->factor > best->factor))
            best = u;
    if (!bytes)
        best = &byte_unit[sizeof(byte_unit) / sizeof(byte_unit[0]) - 2];
    snprintf(text, HKT_VALUE_TEXT, "%llu%s", (unsigned long long)(bytes / (uint64_t)best->factor), best->name);
    return text;
}

static const char *scaled(double value, const struct unit *unit, int units, char text[HKT_VALUE_TEXT])
{
    int u = 0;

    while (u < units - 1 && value < unit[u].factor * (1 - 1e-12))
        u++;
    snprintf(text, HKT_VALUE_TEXT, "%.12g%s", value / unit[u].factor, unit[u].name);
    return text;
}

const char *hkt_text_rate(double bytes_per_second, bool bits, char text[HKT_VALUE_TEXT])
{
    return bits ? scaled(bytes_per_second, rate_unit + 6, 3, text) : scaled(bytes_per_second, rate_unit + 1, 4, text);
}

const char *hkt_text_seconds(double seconds, char text[HKT_VALUE_TEXT])
{
    return scaled(seconds, time_unit, 4, text);
}

bool hkt_value_name(const char *text, char name[HKT_NAME_BYTES])
{
    const size_t n = strlen(text);

    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return false;
    if (n < HKT_NAME_BYTES)
        memcpy(name, text, n + 1);
    return n < HKT_NAME_BYTES;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

enum type { NAME, LEVEL, LEAF, CPUS, SLOW, BYTES, RATE, BITRATE };

static const char *const expected[] = {
    [NAME]  = "fewer than 32 bytes without control characters are expected",
    [LEVEL] = "1 to 4 is expected",
    [LEAF]  = "the number of a leaf switch is expected, 0 to 1048575",
    [CPUS]  = "the numbers of the core's hardware threads are expected, such as 0,64 (1 to 8, each below 32768)",
    [SLOW]  = "yes is expected, or nothing",
    [BYTES] = "a size is expected, such as 32MiB or 80GB",
    [RATE]  = "a bandwidth is expected, such as 400Gb/s or 50GB/s",
    [BITRATE] = "a bandwidth is expected, such as 400Gb/s or 50GB/s",
};

#define ON(kind)       (1u << HKT_OBJECT_##kind)
#define FIELD(f)       offsetof(struct hkt_object, f)
#define DEVICE_KINDS   (ON(SWITCH) | ON(GPU) | ON(NIC))

static const struct attribute {
    const char *name;
    unsigned    kinds;
    enum type   type;
    size_t      field;
} attributes[] = {
    {"name", ON(HOST) | ON(SOCKET) | DEVICE_KINDS | ON(FABRIC), NAME, FIELD(name)},
    {"level", ON(CACHE), LEVEL, FIELD(level)},
    {"cpus", ON(CORE), CPUS, FIELD(cpus)},
    {"slow", ON(CORE), SLOW, FIELD(slow)},
    {"bus", DEVICE_KINDS, NAME, FIELD(bus)},
    {"size", ON(CACHE), BYTES, FIELD(bytes)},
    {"memory", ON(NUMA) | ON(GPU), BYTES, FIELD(bytes)},
    {"rate", ON(SWITCH) | ON(GPU), RATE, FIELD(bandwidth)},
    {"rate", ON(NIC), BITRATE, FIELD(bandwidth)},
    {"leaf", ON(NIC), LEAF, FIELD(leaf)},
};

enum { ATTRIBUTES = sizeof(attributes) / sizeof(attributes[0]) };

static bool set_cpus(struct hkt_object *o, const char *text)
{
    int n = 0;

    for (;;) {
        const size_t length = strcspn(text, ",");
        char         word[8];
        int          cpu;

        if (n == HKT_OBJECT_CPUS || length >= sizeof(word))
            return false;
        memcpy(word, text, length);
        word[length] = 0;
        if (!hkt_value_integer(word, 0, INT16_MAX, &cpu))
            return false;
        o->cpu[n++] = (int16_t)cpu;
        if (!text[length])
            break;
        text += length + 1;
    }
    o->cpus = n;
    return true;
}

static bool set(struct hkt_object *o, const struct attribute *a, const char *value)
{
    void *const field = (char *)o + a->field;

    switch (a->type) {
    case NAME:
        return hkt_value_name(value, field);
    case LEVEL:
        return hkt_value_integer(value, 1, 4, field);
    case LEAF:
        return hkt_value_integer(value, 0, (1 << 20) - 1, field);
    case CPUS:
        return set_cpus(o, value);
    case SLOW:
        return o->slow = strcmp(value, "yes") == 0;
    case BYTES:
        return hkt_value_bytes(value, field);
    case RATE:
    case BITRATE:
        return hkt_value_rate(value, field);
    }
    return false;
}

const char *hkt_attribute_set(struct hkt_object *o, const char *name, const char *value)
{
    for (int i = 0; i < ATTRIBUTES; i++)
        if ((attributes[i].kinds >> o->kind & 1) && strcmp(attributes[i].name, name) == 0)
            return set(o, &attributes[i], value) ? NULL : expected[attributes[i].type];
    return "that kind of object has no attribute of this name";
}

static void get_cpus(const struct hkt_object *o, char text[HKT_VALUE_TEXT])
{
    int n = 0;

    for (int i = 0; i < o->cpus; i++)
        n += snprintf(text + n, (size_t)(HKT_VALUE_TEXT - n), "%s%d", i ? "," : "", o->cpu[i]);
}

const char *hkt_attribute_get(const struct hkt_object *o, int i, char text[HKT_VALUE_TEXT])
{
    const struct attribute *a;

    if (i >= ATTRIBUTES)
        return NULL;
    a       = &attributes[i];
    text[0] = 0;
    if (!(a->kinds >> o->kind & 1))
        return a->name;
    if (a->type == NAME)
        snprintf(text, HKT_VALUE_TEXT, "%s", (const char *)o + a->field);
    else if (a->type == LEVEL && o->level > 0)
        snprintf(text, HKT_VALUE_TEXT, "%d", o->level);
    else if (a->type == LEAF && o->leaf >= 0)
        snprintf(text, HKT_VALUE_TEXT, "%d", o->leaf);
    else if (a->type == CPUS)
        get_cpus(o, text);
    else if (a->type == SLOW && o->slow)
        snprintf(text, HKT_VALUE_TEXT, "yes");
    else if (a->type == BYTES && o->bytes)
        hkt_text_bytes(o->bytes, text);
    else if ((a->type == RATE || a->type == BITRATE) && o->bandwidth > 0)
        hkt_text_rate(o->bandwidth, a->type == BITRATE, text);
    return a->name;
}
