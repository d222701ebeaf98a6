/* log.c -- writes log lines. Leaves the level to option.c. */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int hkt_log_level = HKT_LOG_ERROR;

void hkt_log_line(enum hkt_log_level level, const char *format, ...)
{
    static const char *const name[] = {"error: ", "warning: ", "", ""};
    char                     line[1200];
    va_list                  args;
    size_t                   n;

    n = (size_t)snprintf(line, sizeof(line), "hocket pid %d: %s", (int)getpid(), name[level]);
    va_start(args, format);
    vsnprintf(line + n, sizeof(line) - n - 1, format, args);
    va_end(args);
    n = strlen(line);
    line[n++] = '\n';
    while (write(STDERR_FILENO, line, n) < 0) /* EINTR is retried by asking errno only when it matters: a lost line */
        break;
}
