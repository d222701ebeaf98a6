/* error.h -- one sentence an error. hkt_fail() keeps the sentence for hkt_last_error() and logs it once, where the error is
 * first decided; callers only pass the code on. */
#ifndef HKT_ERROR_H
#define HKT_ERROR_H

#include "hocket.h"

/* Keeps the sentence (printf form) as the thread's last error, logs it, returns `code`. Errors that kill a communicator are
 * logged at level error, those of one call at level info: the caller has them in hand. */
int hkt_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Replaces the thread's last error without logging: for a sentence another rank or thread has already logged. */
int hkt_fail_quiet(int code, const char *sentence);

void hkt_error_clear(void);

/* Puts the thread's last error aside, one at a time; hkt_fail_kept() makes it the last one again. */
void hkt_error_keep(void);
int hkt_fail_kept(int code);

/* Passes an error on. Only where nothing is to be undone. */
#define HKT_TRY(expr)                                                                                                  \
    do {                                                                                                               \
        const int rc_ = (expr);                                                                                        \
        if (rc_ < 0)                                                                                                   \
            return rc_;                                                                                                \
    } while (0)

#endif
