/* log.h -- one line format to stderr; off costs one predictable branch. */
#ifndef HKT_LOG_H
#define HKT_LOG_H

enum hkt_log_level { HKT_LOG_ERROR, HKT_LOG_WARN, HKT_LOG_INFO, HKT_LOG_DEBUG };

extern int hkt_log_level; /* set once from HKT_LOG; HKT_LOG_ERROR before that */

/* "hocket pid 4711: sentence". Written with one write(2), so lines of several ranks do not mix. */
void hkt_log_line(enum hkt_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define hkt_log(level, ...)                                                                                            \
    do {                                                                                                               \
        if ((int)(level) <= hkt_log_level)                                                                             \
            hkt_log_line(level, __VA_ARGS__);                                                                          \
    } while (0)

#endif
