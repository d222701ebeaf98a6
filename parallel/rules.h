/* rules.h -- several broken rules in one sentence: who asks for a layout gets to know all that is wrong with it at
 * once. */
#ifndef PARALLEL_RULES_H
#define PARALLEL_RULES_H

#include <parallel/common.h>

/* Zero at first. The text is cut where it is full; `broken` goes on counting. */
struct hkt_rules {
    int    broken;
    size_t used;
    char   text[880];
};

/* One more rule that is broken: which value, and what would be valid. */
void hkt_rules_add(struct hkt_rules *rules, const char *format, ...) HKT_PRINTF(2, 3);

/* The last rule goes on: for lists of valid values. */
void hkt_rules_more(struct hkt_rules *rules, const char *format, ...) HKT_PRINTF(2, 3);

/* 0, or HKT_ERR_ARGUMENT with "`what` breaks 2 rules: ...; ...". */
int hkt_rules_end(const struct hkt_rules *rules, const char *what);

#endif
