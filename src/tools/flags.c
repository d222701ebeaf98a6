/* flags.c -- see flags.h. getopt_long() does the splitting, so that flags look as in every other tool. */
#include "flags.h"

#include "hocket.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT = 31, RIGHT = 100 }; /* columns of -h */
enum { MAX_FLAGS = 128, LONG_ONLY = 256 /* getopt's value of row i without a letter is LONG_ONLY + i */ };

int flags_word(const char *words, const char *text)
{
    const size_t length = strlen(text);
    int          index  = 0;

    for (const char *word = words; word; word = strchr(word, '|'), index++) {
        word += *word == '|';
        if (strcspn(word, "|") == length && strncmp(word, text, length) == 0)
            return index;
    }
    return -1;
}

void flags_fail(const struct flags *flags, const char *format, ...)
{
    va_list args;

    fflush(stdout);
    fprintf(stderr, "%s: ", flags->tool);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "; %s -h lists the flags\n", flags->tool);
    exit(2);
}

static void print_number(double number, bool bytes, char *text, size_t size)
{
    int suffix = 0;

    for (; bytes && suffix < 4 && number >= 1024 && (size_t)number % 1024 == 0; suffix++)
        number /= 1024;
    snprintf(text, size, number >= 1e6 ? "%.3g%.*s" : "%.6g%.*s", number, suffix > 0, &" KMGT"[suffix]);
}

/* The value in force as text; "" where there is none worth showing. */
static void print_value(const struct flag *row, char *text, size_t size)
{
    text[0] = 0;
    switch (row->kind) {
    case FLAG_INTEGER:
        if (*(const long *)row->value >= (long)row->min) /* else it has no default */
            snprintf(text, size, "%ld", *(const long *)row->value);
        break;
    case FLAG_BYTES:
        print_number((double)*(const size_t *)row->value, true, text, size);
        break;
    case FLAG_NUMBER:
        print_number(*(const double *)row->value, false, text, size);
        break;
    case FLAG_TEXT:
        if (*(const char *const *)row->value)
            snprintf(text, size, "%s", *(const char *const *)row->value);
        break;
    case FLAG_WORD: {
        const char *word = row->argument;

        for (int i = *(const int *)row->value; i > 0; i--)
            word = strchr(word, '|') + 1;
        snprintf(text, size, "%.*s", (int)strcspn(word, "|"), word);
        break;
    }
    case FLAG_ON:
    case FLAG_LIST:
        break;
    }
}

/* Prints the words of `text` in lines that begin at column LEFT; the first line is there already. */
static void print_wrapped(const char *text)
{
    int column = LEFT;

    while (*text) {
        const int n = (int)strcspn(text, " ");

        if (column > LEFT && column + 1 + n > RIGHT)
            column = printf("\n%*s", LEFT, "") - 1;
        column += printf("%s%.*s", column > LEFT ? " " : "", n, text);
        text += n + (text[n] == ' ');
    }
    printf("\n");
}

static void print_help(const struct flags *flags)
{
    char left[128], value[64], text[512];

    printf("usage: %s %s\n%s\n\n", flags->tool, flags->usage, flags->about);
    for (size_t i = 0; i < flags->count; i++) {
        const struct flag *row = &flags->row[i];

        snprintf(left, sizeof(left), "%c%c%s --%s%s%s", row->letter ? '-' : ' ', row->letter ? row->letter : ' ',
                 row->letter ? "," : " ", row->name, row->argument ? " " : "", row->argument ? row->argument : "");
        print_value(row, value, sizeof(value));
        snprintf(text, sizeof(text), "%s%s%s%s", row->doc, value[0] ? " (default " : "", value, value[0] ? ")" : "");
        printf("  %-*s", LEFT - 2, left);
        if (strlen(left) > LEFT - 3)
            printf("\n%*s", LEFT, "");
        print_wrapped(text);
    }
    printf("  %-*s%s\n  %-*s%s\n", LEFT - 2, "-h, --help", "Prints this.", LEFT - 2, "-V, --version",
           "Prints the version.");
}

static bool parse_number(const struct flag *row, const char *text, double *number)
{
    char *end;

    errno   = 0;
    *number = strtod(text, &end);
    if (end == text || errno)
        return false;
    if (row->kind == FLAG_BYTES && *end) {
        const char *suffix = strchr("kKmMgGtT", *end);

        if (!suffix)
            return false;
        *number *= (double)(1ULL << (10 * ((suffix - "kKmMgGtT") / 2 + 1)));
        end++;
    }
    if (*end || !(*number >= row->min && *number <= row->max))
        return false;
    return row->kind == FLAG_NUMBER || *number == (double)(long long)*number;
}

static void set_number(const struct flags *flags, const struct flag *row, const char *text)
{
    char   least[32], most[32];
    double number;

    if (!parse_number(row, text, &number)) {
        print_number(row->min, row->kind == FLAG_BYTES, least, sizeof(least));
        print_number(row->max, row->kind == FLAG_BYTES, most, sizeof(most));
        flags_fail(flags, "--%s %s: %s from %s to %s is expected", row->name, text,
                   row->kind == FLAG_NUMBER ? "a number" : "a whole number", least, most);
    }
    if (row->kind == FLAG_INTEGER)
        *(long *)row->value = (long)number;
    else if (row->kind == FLAG_BYTES)
        *(size_t *)row->value = (size_t)number;
    else
        *(double *)row->value = number;
}

static void set_value(const struct flags *flags, const struct flag *row, const char *text)
{
    struct flag_list *list;

    switch (row->kind) {
    case FLAG_ON:
        *(bool *)row->value = true;
        break;
    case FLAG_INTEGER:
    case FLAG_BYTES:
    case FLAG_NUMBER:
        set_number(flags, row, text);
        break;
    case FLAG_TEXT:
        *(const char **)row->value = text;
        break;
    case FLAG_WORD:
        if (flags_word(row->argument, text) < 0)
            flags_fail(flags, "--%s %s: one of %s is expected", row->name, text, row->argument);
        *(int *)row->value = flags_word(row->argument, text);
        break;
    case FLAG_LIST:
        list = row->value;
        if (list->count == FLAG_LIST_MAX)
            flags_fail(flags, "--%s can be given %d times at most", row->name, FLAG_LIST_MAX);
        list->item[list->count++] = text;
        break;
    }
}

static const struct flag *find(const struct flags *flags, int code)
{
    for (size_t i = 0; i < flags->count; i++)
        if (code == (flags->row[i].letter ? flags->row[i].letter : LONG_ONLY + (int)i))
            return &flags->row[i];
    return NULL;
}

int flags_parse(const struct flags *flags, int argc, char **argv)
{
    struct option long_form[MAX_FLAGS + 3] = {{"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'}};
    char          letters[2 * MAX_FLAGS + 8];
    size_t        n    = (size_t)snprintf(letters, sizeof(letters), "%s:hV", flags->stop_at_word ? "+" : "");
    int           code = 0;

    for (size_t i = 0; i < flags->count && i < MAX_FLAGS; i++) {
        const struct flag *row = &flags->row[i];
        const bool         on  = row->kind == FLAG_ON;

        long_form[i + 2] = (struct option){row->name, on ? no_argument : required_argument, NULL,
                                           row->letter ? row->letter : LONG_ONLY + (int)i};
        if (row->letter)
            n += (size_t)snprintf(letters + n, sizeof(letters) - n, "%c%s", row->letter, on ? "" : ":");
    }
    while ((code = getopt_long(argc, argv, letters, long_form, NULL)) != -1) {
        if (code == 'h') {
            print_help(flags);
            exit(0);
        }
        if (code == 'V') {
            printf("%s of Hocket %d.%d.%d\n", flags->tool, HKT_VERSION_MAJOR, HKT_VERSION_MINOR, HKT_VERSION_PATCH);
            exit(0);
        }
        if (code == ':')
            flags_fail(flags, "%s needs an argument", argv[optind - 1]);
        if (code == '?')
            flags_fail(flags, "unknown flag %s",
                       optopt && optopt < LONG_ONLY ? (char[]){'-', (char)optopt, 0} : argv[optind - 1]);
        set_value(flags, find(flags, code), optarg);
    }
    return optind;
}
