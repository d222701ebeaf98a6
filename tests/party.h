/* party.h -- ranks of a bare world that have met: a bootstrap and each other's processes, without a communicator. */
#ifndef TEST_PARTY_H
#define TEST_PARTY_H

#include "harness.h"

#include "setup/bootstrap.h"
#include "setup/process.h"
#include "setup/segment.h"

enum { MIB = 1 << 20, PARTY = 8 /* most ranks */ };

/* What the ranks of one test tell each other outside of the library: struct rank.shared. */
struct board {
    _Atomic uint32_t go, ready;
    double           when;
};

struct party {
    struct hkt_bootstrap *b;
    struct hkt_process   *self, *peer[PARTY];
};

void party_join(struct party *p, struct rank *me);
void party_attach(struct party *p, struct rank *me);
void party_detach(struct party *p, int n);
void party_barrier(struct party *p);
void party_leave(struct party *p, struct rank *me); /* a barrier first */

/* Runs ranks that make no communicator; those of may_die (a bit per rank) may end in any way. */
void bare_world(int n, enum kind kind, rank_fn *fn, void *arg, uint64_t may_die);

#endif
