/* error.c -- texts of the codes and the last sentence of each thread. Leaves where it is printed to log.c.
 *
 * The sentences of a thread are on the heap: a library that is loaded late (dlopen, a plugin of Python) finds little room for thread-local
 * variables, some 1.6 KB with glibc for all of them together.
 */
#include "error.h"

#include "log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SENTENCE = 1024 };

struct sentences {
    char last[SENTENCE];
    char kept[SENTENCE];
};

static _Thread_local struct sentences *mine;

/* Frees those of a thread that ends. */
static pthread_key_t sentences_of_thread;

static void make_key(void)
{
    pthread_key_create(&sentences_of_thread, free);
}

/* This thread's, made at the first error; NULL when there is no memory. Not hkt_alloc(): that reports its own failure here. */
static struct sentences *sentences(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (!mine) {
        pthread_once(&once, make_key);
        mine = calloc(1, sizeof(*mine));
        pthread_setspecific(sentences_of_thread, mine);
    }
    return mine;
}

const char *hkt_error_string(int code)
{
    switch (code) {
    case HKT_OK:
        return "no error";
    case HKT_IN_PROGRESS:
        return "not finished yet";
#define TEXT(name, value, text)                                                                                        \
    case name:                                                                                                         \
        return text;
        HKT_ERROR_LIST(TEXT)
#undef TEXT
    default:
        return "no such error code";
    }
}

const char *hkt_last_error(void)
{
    return mine ? mine->last : "";
}

void hkt_error_clear(void)
{
    if (mine)
        mine->last[0] = 0;
}

void hkt_error_keep(void)
{
    if (mine)
        memcpy(mine->kept, mine->last, sizeof(mine->kept));
}

int hkt_fail_kept(int code)
{
    return hkt_fail_quiet(code, mine ? mine->kept : "");
}

static int kills_communicator(int code)
{
    return code == HKT_ERR_TIMEOUT || code == HKT_ERR_PEER || code == HKT_ERR_INTERNAL;
}

int hkt_fail(int code, const char *format, ...)
{
    struct sentences *s = sentences();
    char              sentence[SENTENCE];
    va_list           args;

    va_start(args, format);
    vsnprintf(sentence, sizeof(sentence), format, args); /* the arguments may point into `last` */
    va_end(args);
    if (s)
        memcpy(s->last, sentence, sizeof(s->last));
    hkt_log(kills_communicator(code) ? HKT_LOG_ERROR : HKT_LOG_INFO, "%s", sentence);
    return code;
}

/* The same for layers above the library, under a public name. */
int hkt_error_set(int code, const char *format, ...) __attribute__((alias("hkt_fail")));

int hkt_fail_quiet(int code, const char *sentence)
{
    struct sentences *s = sentences();

    if (s && sentence != s->last)
        snprintf(s->last, sizeof(s->last), "%s", sentence);
    return code;
}
