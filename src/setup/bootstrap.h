/* bootstrap.h -- how strangers that hold the same unique id become ranks that know each other.
 *
 * On one machine: rank 0 listens at an abstract unix socket whose name is a hash of the id's public half; the others connect, prove
 * the secret, and hand in their rank. Then everything is all-gathers through rank 0. Nothing exists in a file system. Strangers (wrong
 * user by SO_PEERCRED, wrong secret, silence for a second) are dropped and counted; a rank that comes twice is refused.
 * When one rank fails during setup, it calls hkt_bootstrap_fail() and every other rank's pending call returns that code and sentence.
 */
#ifndef HKT_BOOTSTRAP_H
#define HKT_BOOTSTRAP_H

#include "hocket.h"

#include <stddef.h>
#include <stdint.h>

struct hkt_bootstrap;

/* Meets the others. Returns when all `size` ranks are there, or after `timeout` seconds HKT_ERR_TIMEOUT naming the missing ranks on rank
 * 0 (and on the others that rank 0 is missing, or what it said). Different library versions or sizes give HKT_ERR_MISMATCH that names
 * both. size == 1 needs no socket at all. */
int hkt_bootstrap_open(struct hkt_bootstrap **b, const hkt_unique_id_t *id, int size, int rank, double timeout);

/* all[r * len ..] = rank r's mine[len]. The same len on every rank. */
int hkt_bootstrap_all_gather(struct hkt_bootstrap *b, const void *mine, size_t len, void *all);

/* Tells the others that this rank has failed, with hkt_last_error(). */
void hkt_bootstrap_fail(struct hkt_bootstrap *b, int code);

void hkt_bootstrap_close(struct hkt_bootstrap *b); /* NULL is allowed */

/* A fresh id: 16 random bytes public, 16 secret, version, zeros. */
int hkt_bootstrap_unique_id(hkt_unique_id_t *id);

/* Hex form for HKT_ID, 256 digits. HKT_ERR_ARGUMENT when the text is not an id. */
void hkt_bootstrap_id_print(const hkt_unique_id_t *id, char text[2 * HKT_UNIQUE_ID_BYTES + 1]);
int  hkt_bootstrap_id_parse(hkt_unique_id_t *id, const char *text);

extern uint32_t hkt_bootstrap_version; /* HKT_VERSION, but in tests of what happens when they differ */

#endif
