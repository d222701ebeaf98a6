/* rules.c -- see rules.h. */
#include <parallel/rules.h>

#include <stdarg.h>

static void append(struct hkt_rules *rules, const char *format, va_list args)
{
    const size_t room = sizeof(rules->text) - rules->used;
    const int    n    = vsnprintf(rules->text + rules->used, room, format, args);

    if (n > 0)
        rules->used += (size_t)n < room ? (size_t)n : room - 1;
}

void hkt_rules_more(struct hkt_rules *rules, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    append(rules, format, args);
    va_end(args);
}

void hkt_rules_add(struct hkt_rules *rules, const char *format, ...)
{
    va_list args;

    if (rules->broken++)
        hkt_rules_more(rules, "; ");
    va_start(args, format);
    append(rules, format, args);
    va_end(args);
}

int hkt_rules_end(const struct hkt_rules *rules, const char *what)
{
    if (!rules->broken)
        return HKT_OK;
    return hkt_error_set(HKT_ERR_ARGUMENT, "%s breaks %d rule%s: %s", what, rules->broken,
                         rules->broken == 1 ? "" : "s", rules->text);
}
