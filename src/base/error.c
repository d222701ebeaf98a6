/* error.c -- texts of the codes and the last sentence of each thread. Leaves where it is printed to log.c. */
#include "error.h"

#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SENTENCE = 1024 };

static _Thread_local char last[SENTENCE];

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
    return last;
}

void hkt_error_clear(void)
{
    last[0] = 0;
}

static int kills_communicator(int code)
{
    return code == HKT_ERR_TIMEOUT || code == HKT_ERR_PEER || code == HKT_ERR_INTERNAL;
}

int hkt_fail(int code, const char *format, ...)
{
    char    sentence[SENTENCE];
    va_list args;

    va_start(args, format);
    vsnprintf(sentence, sizeof(sentence), format, args); /* the arguments may point into `last` */
    va_end(args);
    memcpy(last, sentence, sizeof(last));
    hkt_log(kills_communicator(code) ? HKT_LOG_ERROR : HKT_LOG_INFO, "%s", last);
    return code;
}

/* The same for layers above the library, under a public name. */
int hkt_error_set(int code, const char *format, ...) __attribute__((alias("hkt_fail")));

int hkt_fail_quiet(int code, const char *sentence)
{
    if (sentence != last)
        snprintf(last, sizeof(last), "%s", sentence);
    return code;
}
