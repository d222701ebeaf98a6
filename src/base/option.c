/* option.c -- reads the option table from the environment, once. */
#include "option.h"

#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

const struct hkt_option_row hkt_option_table[] = {
#define ROW(NAME, field, kind, initial, min, max, unit, doc)                                                           \
    {"HKT_" #NAME, HKT_OPTION_##kind, initial, (double)(min), (double)(max), unit, doc, offsetof(struct hkt_options, field)},
    HKT_OPTION_LIST(ROW)
#undef ROW
};
const size_t hkt_option_count = sizeof(hkt_option_table) / sizeof(hkt_option_table[0]);

static struct hkt_options values;

/* Index of `text` among words separated by '|', or -1. */
static int word_index(const char *words, const char *text)
{
    const size_t n = strlen(text);
    int          i = 0;

    for (const char *w = words; w; w = strchr(w, '|'), i++) {
        w += *w == '|';
        if (strncmp(w, text, n) == 0 && (w[n] == '|' || w[n] == 0))
            return i;
    }
    return -1;
}

static bool parse_number(const struct hkt_option_row *row, const char *text, double *number)
{
    char *end;

    errno   = 0;
    *number = strtod(text, &end);
    if (end == text || errno)
        return false;
    if (row->kind == HKT_OPTION_BYTES && *end) {
        const char *suffix = strchr("kKmMgG", *end);

        if (!suffix || end[1])
            return false;
        *number *= (double)(1ULL << (10 * ((suffix - "kKmMgG") / 2 + 1)));
        end++;
    }
    return *end == 0 && *number >= row->min && *number <= row->max;
}

static bool store(const struct hkt_option_row *row, const char *text)
{
    char  *at     = (char *)&values + row->offset;
    double number = 0;

    switch (row->kind) {
    case HKT_OPTION_TEXT:
    case HKT_OPTION_SECRET:
        memcpy(at, &text, sizeof(text));
        return true;
    case HKT_OPTION_CHOICE:
        number = word_index(row->unit, text);
        if (number < 0)
            return false;
        break;
    case HKT_OPTION_INTEGER:
    case HKT_OPTION_BYTES:
    case HKT_OPTION_SECONDS:
        if (!parse_number(row, text, &number))
            return false;
        break;
    }
    if (row->kind == HKT_OPTION_SECONDS)
        memcpy(at, &number, sizeof(number));
    else
        memcpy(at, &(int64_t){(int64_t)number}, sizeof(int64_t));
    return true;
}

/* Number of single-letter edits between two names, for the hint; names are shorter than 64. */
static unsigned distance(const char *a, const char *b)
{
    unsigned     row[65];
    const size_t nb = strlen(b) < 64 ? strlen(b) : 64;

    for (size_t j = 0; j <= nb; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; a[i - 1]; i++) {
        unsigned diagonal = row[0];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            const unsigned change = diagonal + (a[i - 1] != b[j - 1]);
            const unsigned least  = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;

            diagonal = row[j];
            row[j]   = change < least ? change : least;
        }
    }
    return row[nb];
}

static void warn_unknown(const char *name)
{
    const char *nearest = hkt_option_table[0].name;

    for (size_t i = 0; i < hkt_option_count; i++)
        if (strcmp(name, hkt_option_table[i].name) == 0)
            return;
    for (size_t i = 1; i < hkt_option_count; i++)
        if (distance(name, hkt_option_table[i].name) < distance(name, nearest))
            nearest = hkt_option_table[i].name;
    hkt_log(HKT_LOG_ERROR, "the environment variable %s is no option of Hocket; did you mean %s? (hkt-info --options lists all)", name,
            nearest);
}

static void parse_all(void)
{
    char name[64];

    for (size_t i = 0; i < hkt_option_count; i++) {
        const struct hkt_option_row *row  = &hkt_option_table[i];
        const char                  *text = getenv(row->name);

        store(row, row->initial);
        if (text && !store(row, text))
            hkt_log(HKT_LOG_ERROR, "%s=%s is not valid (%s, %g to %g); %s is used", row->name, text, row->unit, row->min, row->max,
                    row->initial);
        if (i == 0)
            hkt_log_level = (int)values.log;
    }
    for (char **e = environ; e && *e; e++) {
        const size_t n = strcspn(*e, "=");

        if (strncmp(*e, "HKT_", 4) || n >= sizeof(name))
            continue;
        memcpy(name, *e, n);
        name[n] = 0;
        warn_unknown(name);
    }
}

const struct hkt_options *hkt_options(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, parse_all);
    return &values;
}

void hkt_option_print(const struct hkt_option_row *row, char *text, size_t size)
{
    const char *at = (const char *)hkt_options() + row->offset;
    int64_t     integer;
    double      number;
    const char *string;

    memcpy(&integer, at, sizeof(integer));
    memcpy(&number, at, sizeof(number));
    memcpy(&string, at, sizeof(string));
    switch (row->kind) {
    case HKT_OPTION_TEXT:
        snprintf(text, size, "%s", string);
        break;
    case HKT_OPTION_SECRET:
        snprintf(text, size, "%s", string[0] ? "(set)" : "");
        break;
    case HKT_OPTION_SECONDS:
        snprintf(text, size, "%g", number);
        break;
    case HKT_OPTION_INTEGER:
    case HKT_OPTION_BYTES:
        snprintf(text, size, "%lld", (long long)integer);
        break;
    case HKT_OPTION_CHOICE: {
        const char *word = row->unit;

        while (integer-- > 0)
            word = strchr(word, '|') + 1;
        snprintf(text, size, "%.*s", (int)strcspn(word, "|"), word);
        break;
    }
    }
}
