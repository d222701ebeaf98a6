/* shm.c -- ranks in other processes of this machine: shared segments are mapped, plain memory is read and written by the kernel
 * (process_vm_readv and process_vm_writev, "CMA"), where the system lets one process do that to another. */
#include "net/transport.h"

#include "base/error.h"
#include "base/option.h"
#include "setup/segment.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

typedef ssize_t copy_fn(pid_t pid, const struct iovec *mine, unsigned long n, const struct iovec *theirs, unsigned long m, unsigned long flags);

/* Copies as much as the kernel does at a time until all is there. 0 or -errno. */
static int copy_all(copy_fn *copy, int32_t pid, char *here, uint64_t address, size_t size)
{
    size_t done = 0;

    while (done < size) {
        const struct iovec mine   = {here + done, size - done};
        const struct iovec theirs = {(void *)(uintptr_t)(address + done), size - done};
        const ssize_t      n      = copy(pid, &mine, 1, &theirs, 1, 0);

        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            return -EFAULT;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Reads the beginning of the peer's life page from its memory: right only when we may, and when the pid is the peer's.
 */
static bool can_read(const struct hkt_process *peer)
{
    struct hkt_process_address address;

    return hkt_options()->cma && peer->pid > 0 &&
           copy_all(process_vm_readv, peer->pid, (char *)&address, peer->life->self, sizeof(address)) == 0 &&
           memcmp(&address, &peer->life->address, sizeof(address)) == 0;
}

/* The costs are orders of magnitude of what was measured on two-core virtual machines. */
static int reach(const struct hkt_process *peer, struct hkt_link *link)
{
    struct hkt_process *p = (struct hkt_process *)(uintptr_t)peer;

    if (peer->self)
        return HKT_ERR_UNSUPPORTED;
    if (atomic_load_explicit(&p->readable, memory_order_relaxed) == 0) /* every thread finds the same: no partner */
        atomic_store_explicit(&p->readable, can_read(peer) ? 1 : -1, memory_order_relaxed);
    *link = (struct hkt_link){.alpha = 0.3e-6, .gap = 0.02e-6, .beta = 0.1e-9, .gamma = 0.05e-9};
    return 0;
}

static char *map(const struct hkt_process *peer, const struct hkt_location *at)
{
    char *base = at->segment ? hkt_segment_peer(peer, at->segment) : NULL;

    return base ? base + at->offset : NULL;
}

/* What a copy of the kernel came to. */
static int judge(const struct hkt_process *peer, int error, const char *what, uint64_t address, size_t size)
{
    const struct hkt_life *life = peer->life;

    /* Alive afterwards: then the pid was its own all the time, and not that of a successor. */
    if (!error && hkt_process_alive(peer))
        return 0;
    if (!error || error == -ESRCH || !hkt_process_alive(peer))
        return hkt_fail(HKT_ERR_PEER, "the process of a peer (host %s, pid %d) has died", life->host, (int)life->pid);
    return hkt_fail(HKT_ERR_SYSTEM, "cannot %s %zu bytes at 0x%llx of the process of a peer (host %s, pid %d): %s", what, size,
                    (unsigned long long)address, life->host, (int)life->pid, strerror(-error));
}

static int fetch(const struct hkt_process *peer, void *to, uint64_t address, size_t size)
{
    return judge(peer, copy_all(process_vm_readv, peer->pid, to, address, size), "read", address, size);
}

static int deliver(const struct hkt_process *peer, uint64_t address, const void *from, size_t size)
{
    return judge(peer, copy_all(process_vm_writev, peer->pid, (char *)(uintptr_t)from, address, size), "write", address, size);
}

const struct hkt_transport hkt_transport_shm = {
    .name  = "shm",
    .desc  = "processes of this machine, through shared memory",
    .reach = reach,
    .map   = map,
    .read  = fetch,
    .write = deliver,
};
