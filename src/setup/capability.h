/* capability.h -- what a process can do and how it is set up, as its ranks tell it to rank 0 when they meet: what has to be the same everywhere
 * (options, tables), and what may differ and is then used where all have it (carriers).
 *
 * The layers above say what they have with hkt_capability_must() and hkt_capability_may() before the first communicator; the options that must be
 * equal are here. The version of the library is compared by itself, before anything else.
 */
#ifndef HKT_CAPABILITY_H
#define HKT_CAPABILITY_H

#include <stdbool.h>
#include <stddef.h>

enum { HKT_MUST = 384, HKT_MAY = 128 };

/* As it is sent. */
struct hkt_capabilities {
    char must[HKT_MUST]; /* lines "name=value"; a name that is not there has the value "" */
    char may[HKT_MAY];   /* words, each with a space behind it */
};

/* Adds a line or a word, of this process, once: a name that is there already gets the new value. HKT_ERR_ARGUMENT when there is no room. Any
 * thread. */
int hkt_capability_must(const char *name, const char *value);
int hkt_capability_may(const char *name);

void hkt_capabilities_own(struct hkt_capabilities *own);

/* The first line in which two differ, as "name is a here and b there" in `text`; false: none. */
bool hkt_capabilities_differ(const struct hkt_capabilities *here, const struct hkt_capabilities *there, char *text, size_t size);

/* Keeps of `may` what `other` has too. */
void hkt_capabilities_intersect(char may[HKT_MAY], const char other[HKT_MAY]);

bool hkt_capabilities_have(const char may[HKT_MAY], const char *name);

#endif
