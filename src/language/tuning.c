/* tuning.c -- the parser: words of a line, each by what stands in its column. */
#include "tuning.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 7, FEWEST = 5, MOST_BYTES = 1 << 20 };

static const char *const column_name[WORDS] = {"collective", "ranks", "hosts", "bytes", "algorithm", "inner", "outer"};

struct word {
    const char *begin;
    int         length, column; /* column in the line, from 1 */
};

struct line {
    const char *file;
    int         number, words;
    struct word word[WORDS];
};

static int wrong(const struct line *l, int i, const char *why)
{
    const struct word *w = &l->word[i];

    return hkt_fail(HKT_ERR_ARGUMENT, "%s, line %d, column %d: %s \"%.*s\": %s", l->file, l->number, w->column, column_name[i],
                    w->length < 40 ? w->length : 40, w->begin, why);
}

/* ---- one word ----------------------------------------------------------------------------------------------------- */

/* Digits and, for bytes, a suffix; true and *at behind it. */
static bool parse_number(const char **at, const char *end, bool bytes, uint64_t *number)
{
    const char *c      = *at;
    const char *suffix = NULL;

    for (*number = 0; c < end && *c >= '0' && *c <= '9'; c++) {
        if (*number > UINT64_MAX / 10 - 1)
            return false;
        *number = *number * 10 + (uint64_t)(*c - '0');
    }
    if (c == *at)
        return false;
    if (bytes && c < end && *c)
        suffix = strchr("KMGT", *c);
    if (suffix) {
        const int bits = 10 * (int)(suffix - "KMGT" + 1);

        if (*number > UINT64_MAX >> bits)
            return false;
        *number <<= bits;
        c++;
    }
    *at = c;
    return true;
}

static int parse_range(const struct line *l, int i, struct hkt_range *range)
{
    const bool  bytes = i == 3;
    const char *at = l->word[i].begin, *end = at + l->word[i].length;

    *range = (struct hkt_range){bytes ? 0 : 1, UINT64_MAX};
    if (l->word[i].length == 1 && *at == '*')
        return 0;
    if (!parse_number(&at, end, bytes, &range->least))
        return wrong(l, i, bytes ? "N, N-M, N- or * is expected, with K, M, G or T" : "N, N-M, N- or * is expected");
    if (at == end) {
        range->most = range->least;
    } else if (*at++ != '-' || (at < end && !parse_number(&at, end, bytes, &range->most)) || at < end) {
        return wrong(l, i, bytes ? "N, N-M, N- or * is expected, with K, M, G or T" : "N, N-M, N- or * is expected");
    }
    if (range->most < range->least)
        return wrong(l, i, "the range ends before it begins");
    return !bytes && range->least == 0 ? wrong(l, i, "counts begin at 1") : 0;
}

static bool is_word(const struct word *w, const char *text)
{
    return strlen(text) == (size_t)w->length && !strncmp(w->begin, text, (size_t)w->length);
}

static int parse_collective(const struct line *l, uint32_t *colls)
{
    if (is_word(&l->word[0], "*")) {
        *colls = (1u << HKT_COLL_SCHEDULED) - 1;
        return 0;
    }
    for (int coll = 0; coll < HKT_COLL_SCHEDULED; coll++)
        if (is_word(&l->word[0], hkt_coll_name[coll])) {
            *colls = 1u << coll;
            return 0;
        }
    return wrong(l, 0, "no algorithm does a collective of this name; * means all");
}

static int parse_algorithm(const struct line *l, int i, const struct hkt_algorithm **a)
{
    for (int k = 0; hkt_algorithms[k]; k++)
        if (is_word(&l->word[i], hkt_algorithms[k]->name)) {
            *a = hkt_algorithms[k];
            return 0;
        }
    return wrong(l, i, "there is no such algorithm; hkt-info --algorithms lists them");
}

/* ---- a line ------------------------------------------------------------------------------------------------------- */

static int split(struct line *l, const char *text, int length)
{
    for (int i = 0; i < length;) {
        const int begin = i;

        if (text[i] == ' ' || text[i] == '\t' || text[i] == '\r') {
            i++;
            continue;
        }
        while (i < length && text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            i++;
        if (l->words == WORDS)
            return hkt_fail(HKT_ERR_ARGUMENT, "%s, line %d, column %d: \"%.*s\" is one word too many; at the most stand %s", l->file, l->number,
                            begin + 1, i - begin < 40 ? i - begin : 40, text + begin, "collective, ranks, hosts, bytes, algorithm, inner, outer");
        l->word[l->words++] = (struct word){text + begin, i - begin, begin + 1};
    }
    if (l->words && l->words < FEWEST)
        return hkt_fail(HKT_ERR_ARGUMENT, "%s, line %d, column %d: the line ends before it says the %s", l->file, l->number, length + 1,
                        column_name[l->words]);
    return 0;
}

static int check_rule(const struct line *l, const struct hkt_tuning_rule *r)
{
    const bool hierarchical = !strcmp(r->algorithm->name, "hierarchical");

    if (l->words > FEWEST && !hierarchical)
        return wrong(l, FEWEST, "only hierarchical is composed of others");
    if (l->words == FEWEST + 1)
        return wrong(l, FEWEST, "an algorithm across hosts must follow the one inside");
    if (r->inner == r->algorithm || r->outer == r->algorithm)
        return wrong(l, r->inner == r->algorithm ? FEWEST : FEWEST + 1, "hierarchical is not composed of itself");
    if (!is_word(&l->word[0], "*") && (r->colls & ~r->algorithm->colls))
        return wrong(l, 4, "it does not do this collective");
    return 0;
}

static uint64_t mix(uint64_t hash, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_rule(uint64_t hash, const struct hkt_tuning_rule *r)
{
    const uint64_t               number[] = {r->colls,     r->ranks.least, r->ranks.most, r->hosts.least,
                                             r->hosts.most, r->bytes.least, r->bytes.most};
    const struct hkt_algorithm *const named[] = {r->algorithm, r->inner, r->outer};

    for (size_t i = 0; i < sizeof(number) / sizeof(number[0]); i++)
        for (int shift = 0; shift < 64; shift += 8)
            hash = mix(hash, &(uint8_t){(uint8_t)(number[i] >> shift)}, 1);
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
        hash = mix(hash, named[i] ? named[i]->name : "", named[i] ? strlen(named[i]->name) + 1 : 1);
    return hash;
}

static int add(struct hkt_tuning *t, const struct hkt_tuning_rule *rule)
{
    if (t->count == t->cap) {
        void *more = hkt_realloc(t->rule, (t->cap ? 2 * (size_t)t->cap : 16) * sizeof(*t->rule));

        if (!more)
            return HKT_ERR_MEMORY;
        t->rule = more;
        t->cap  = t->cap ? 2 * t->cap : 16;
    }
    t->rule[t->count++] = *rule;
    t->hash             = hash_rule(t->hash ? t->hash : 0xcbf29ce484222325u, rule);
    return 0;
}

static int parse_line(struct hkt_tuning *t, struct line *l, const char *text, int length)
{
    struct hkt_tuning_rule rule = {.line = l->number};

    HKT_TRY(split(l, text, length));
    if (!l->words)
        return 0;
    HKT_TRY(parse_collective(l, &rule.colls));
    HKT_TRY(parse_range(l, 1, &rule.ranks));
    HKT_TRY(parse_range(l, 2, &rule.hosts));
    HKT_TRY(parse_range(l, 3, &rule.bytes));
    HKT_TRY(parse_algorithm(l, 4, &rule.algorithm));
    if (l->words > FEWEST)
        HKT_TRY(parse_algorithm(l, 5, &rule.inner));
    if (l->words > FEWEST + 1)
        HKT_TRY(parse_algorithm(l, 6, &rule.outer));
    HKT_TRY(check_rule(l, &rule));
    return add(t, &rule);
}

/* ---- the whole ---------------------------------------------------------------------------------------------------- */

void hkt_tuning_free(struct hkt_tuning *t)
{
    hkt_free(t->rule);
    memset(t, 0, sizeof(*t));
}

int hkt_tuning_parse(struct hkt_tuning *t, const char *text, const char *name)
{
    memset(t, 0, sizeof(*t));
    for (int number = 1; *text; number++) {
        struct line  l      = {.file = name, .number = number};
        const size_t length = strcspn(text, "\n"), said = strcspn(text, "#\n");
        const int    rc     = parse_line(t, &l, text, (int)said);

        if (rc < 0) {
            hkt_tuning_free(t);
            return rc;
        }
        text += length + (text[length] == '\n');
    }
    return 0;
}

int hkt_tuning_read(struct hkt_tuning *t, const char *path)
{
    FILE *f = fopen(path, "re");
    char *text;
    int   rc;

    memset(t, 0, sizeof(*t));
    if (!f)
        return hkt_fail(HKT_ERR_SYSTEM, "the table of algorithms %s cannot be opened: %s", path, strerror(errno));
    text = hkt_alloc(MOST_BYTES + 2); /* one more than is allowed, and the end */
    rc   = text ? 0 : HKT_ERR_MEMORY;
    if (rc == 0) {
        const size_t size = fread(text, 1, MOST_BYTES + 1, f);

        if (ferror(f))
            rc = hkt_fail(HKT_ERR_SYSTEM, "the table of algorithms %s cannot be read: %s", path, strerror(errno));
        else if (size > MOST_BYTES || memchr(text, 0, size))
            rc = hkt_fail(HKT_ERR_ARGUMENT, "%s is no table of algorithms: %s", path, size > MOST_BYTES ? "it is above 1 MiB" : "it holds a zero byte");
        else
            rc = hkt_tuning_parse(t, text, path);
    }
    hkt_free(text);
    fclose(f);
    return rc;
}

static bool in_range(const struct hkt_range *range, double value)
{
    return value >= (double)range->least && value <= (double)range->most;
}

const struct hkt_tuning_rule *hkt_tuning_find(const struct hkt_tuning *t, const struct hkt_shape *shape, int hosts, double bytes)
{
    for (uint32_t i = 0; i < t->count; i++) {
        const struct hkt_tuning_rule *r = &t->rule[i];

        if (hkt_coll_in(shape->coll, r->colls) && hkt_coll_in(shape->coll, r->algorithm->colls) && in_range(&r->ranks, shape->size) &&
            in_range(&r->hosts, hosts > 1 ? hosts : 1) && in_range(&r->bytes, bytes))
            return r;
    }
    return NULL;
}
