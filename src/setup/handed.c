/* handed.c -- see handed.h. What was given waits in a list until it is taken; a giver that dies leaves at most a few descriptors. */
#include "setup/handed.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "setup/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 1024 };

static const uint64_t HAND_NS = 5000000000u;

struct handed {
    struct handed *next;
    uint64_t       from[2];
    uint32_t       number;
    int            fd;
};

static struct handed   *list;
static int              kept;
static pthread_mutex_t  lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t last;

int hkt_handed_keep(const struct hkt_ask *ask, int fd)
{
    struct handed *h = hkt_alloc(sizeof(*h));
    int            rc = h ? 0 : -ENOMEM;

    if (h)
        h->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (h && h->fd < 0)
        rc = -errno;
    pthread_mutex_lock(&lock);
    if (!rc && kept >= MOST)
        rc = -EMFILE;
    if (!rc) {
        memcpy(h->from, ask->from, sizeof(h->from));
        h->number = ask->id;
        h->next   = list;
        list      = h;
        kept++;
    }
    pthread_mutex_unlock(&lock);
    if (rc && h) {
        if (h->fd >= 0)
            close(h->fd);
        hkt_free(h);
    }
    return rc;
}

int hkt_handed(const struct hkt_process *peer, uint32_t number)
{
    struct handed **at = &list, *h;
    int             fd = -1;

    pthread_mutex_lock(&lock);
    while (*at && ((*at)->number != number || memcmp((*at)->from, peer->life->address.uuid, sizeof((*at)->from)) != 0))
        at = &(*at)->next;
    h = *at;
    if (h) {
        *at = h->next;
        fd  = h->fd;
        kept--;
    }
    pthread_mutex_unlock(&lock);
    hkt_free(h);
    return fd;
}

int hkt_hand(uint32_t *number, struct hkt_process *peer, int fd)
{
    struct hkt_process_address own;
    struct hkt_ask             ask = {.kind = HKT_ASK_KEEP, .id = atomic_fetch_add(&last, 1) + 1};
    const uint64_t             deadline = hkt_now_ns() + HAND_NS;
    int                        rc;

    hkt_process_address(&own);
    memcpy(ask.from, own.uuid, sizeof(ask.from));
    rc = hkt_helper_send(&peer->life->address, &ask, fd, deadline, NULL);
    if (rc >= 0)
        rc = hkt_helper_answer(rc, deadline, peer, NULL);
    if (rc)
        return hkt_fail(HKT_ERR_SYSTEM, "the process of a peer (host %s, pid %d) does not take a descriptor: %s", peer->life->host,
                        (int)peer->life->pid, hkt_errno_text(-rc));
    *number = ask.id;
    return 0;
}
