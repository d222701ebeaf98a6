/* flags.h -- the command-line flags of a tool as rows of one table: parsed, checked against their range, and listed by
 * -h from the same row.
 */
#ifndef HKT_FLAGS_H
#define HKT_FLAGS_H

#include <stdbool.h>
#include <stddef.h>

/* The kind says what `value` points to. */
enum flag_kind {
    FLAG_ON,      /* bool, set to true; takes no argument */
    FLAG_INTEGER, /* long */
    FLAG_BYTES,   /* size_t; K, M, G suffixes are binary */
    FLAG_NUMBER,  /* double */
    FLAG_TEXT,    /* const char * */
    FLAG_WORD,    /* int: index among the words of `argument`, separated by '|' */
    FLAG_LIST     /* struct flag_list; may be given again and again */
};

enum { FLAG_LIST_MAX = 64 };

struct flag_list {
    const char *item[FLAG_LIST_MAX];
    int         count;
};

struct flag {
    int            letter; /* 0: long form only */
    const char    *name;
    enum flag_kind kind;
    void          *value; /* holds the default, which -h prints */
    double         min, max;
    const char    *argument; /* what -h calls it; for FLAG_WORD the words */
    const char    *doc;
};

struct flags {
    const char        *tool, *usage, *about; /* "hkt-run", "-n N program ...", one sentence */
    const struct flag *row;
    size_t             count;
    bool               stop_at_word; /* the first word that is no flag ends them (a command line follows) */
};

/* Sets the values and returns the index of the first word; words that stood among flags are moved behind them. Does not
 * return for -h and -V (exit 0) and for a flag that is unknown or out of range (message, exit 2). */
int flags_parse(const struct flags *flags, int argc, char **argv);

/* Ends the tool with a message and exit status 2. */
_Noreturn void flags_fail(const struct flags *flags, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Index of `text` among words separated by '|', or -1. */
int flags_word(const char *words, const char *text);

#endif
