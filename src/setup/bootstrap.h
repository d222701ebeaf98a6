/* bootstrap.h -- how strangers that hold the same unique id become ranks that know each other.
 *
 * Everybody comes to rank 0 once: on its host over an abstract unix socket whose name is a hash of the id's public half, from other hosts over TCP
 * at whichever of its addresses answers. Rank 0 compares what has to be equal (capability.h) and gives everybody its place in a tree: ranks of one
 * host below one of them, so that the network is crossed once per host, and never more than a few sockets per rank. From then on everything is
 * all-gathers, up and down that tree. Nothing exists in a file system. Strangers (wrong user by SO_PEERCRED, wrong key, silence for a second) are
 * dropped and counted; a rank that comes twice is refused.
 * When one rank fails during setup, it calls hkt_bootstrap_fail() and every other rank's pending call returns that code and sentence.
 */
#ifndef HKT_BOOTSTRAP_H
#define HKT_BOOTSTRAP_H

#include "hocket.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hkt_bootstrap;

/* Meets the others. Returns when all `size` ranks are there, or after `timeout` seconds HKT_ERR_TIMEOUT naming the missing ranks on rank
 * 0 (and on the others that rank 0 is missing, or what it said). Different library versions, sizes or capabilities give HKT_ERR_MISMATCH that
 * names both. size == 1 needs no socket at all. */
int hkt_bootstrap_open(struct hkt_bootstrap **b, const hkt_unique_id_t *id, int size, int rank, double timeout);

/* all[r * len ..] = rank r's mine[len]. The same len on every rank; `mine` may lie in `all`. */
int hkt_bootstrap_all_gather(struct hkt_bootstrap *b, const void *mine, size_t len, void *all);

/* Does every rank have this capability (hkt_capability_may())? */
bool hkt_bootstrap_common(const struct hkt_bootstrap *b, const char *capability);

/* Tells the others that this rank has failed, with hkt_last_error(). */
void hkt_bootstrap_fail(struct hkt_bootstrap *b, int code);

void hkt_bootstrap_close(struct hkt_bootstrap *b); /* NULL is allowed */

unsigned hkt_bootstrap_strangers(const struct hkt_bootstrap *b); /* refused while the ranks met at this one */
int      hkt_bootstrap_sockets(const struct hkt_bootstrap *b);   /* that are open now */

/* A fresh id: 32 random bytes, the public and the secret half of a key, and where rank 0 can be met. Opens a TCP port for it, which is open until the
 * communicator has met or the process ends; so rank 0 must be in the process that calls this, when there are ranks on other hosts. Without a
 * network or libcrypto the id is for one host. HKT_ERR_SYSTEM, HKT_ERR_ARGUMENT: see hkt_inet_listen() and hkt_inet_own(). */
int hkt_bootstrap_unique_id(hkt_unique_id_t *id);

/* An id that nobody will use: closes its port, if this process opened one. Any bytes are allowed. */
void hkt_bootstrap_id_drop(const hkt_unique_id_t *id);

/* The same for ranks of one host: opens nothing, and rank 0 may be in any process. */
int hkt_bootstrap_local_id(hkt_unique_id_t *id);

/* The same id wherever it is derived from the same one with the same number; for ranks of one host. HKT_ERR_ARGUMENT when `from` is no id. */
int hkt_bootstrap_id_derive(hkt_unique_id_t *id, const hkt_unique_id_t *from, uint64_t salt);

/* The same id on every rank that calls this with the same two texts: for launchers. `root`: "host:port" or "[v6]:port", where rank 0 will be and will
 * listen; `secret`: any text that strangers cannot guess. */
int hkt_bootstrap_id_at(hkt_unique_id_t *id, const char *root, const char *secret);

/* Hex form for HKT_ID, 256 digits. HKT_ERR_ARGUMENT when the text is not an id. */
void hkt_bootstrap_id_print(const hkt_unique_id_t *id, char text[2 * HKT_UNIQUE_ID_BYTES + 1]);
int  hkt_bootstrap_id_parse(hkt_unique_id_t *id, const char *text);

extern uint32_t hkt_bootstrap_version; /* HKT_VERSION, but in tests of what happens when they differ */
extern int      hkt_bootstrap_arity;   /* 16, but in tests of high trees: children of a rank on its host, and of one on other hosts */

#endif
