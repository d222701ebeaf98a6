/* launch_pmix.c -- the id by PMIx: Open MPI's mpirun and its PRRTE, Slurm's srun --mpi=pmix, and all that descends from them. See launch.h.
 *
 * Nobody who builds Hocket needs PMIx: the library of the machine that the program runs on is loaded there. What is used of its interface,
 * six functions and three structs, is fixed by the PMIx standard and has been the same from version 2 to 5; tests/test_launch.sh compares
 * the structs with the header of the machine. Never more than one pmix_info_t is passed, so that its size does not matter.
 *
 * The library's calls have no deadline of their own. A thread makes them, and is left to itself when it does not come back.
 */
#include "launch.h"

#include "base/error.h"
#include "base/memory.h"
#include "bootstrap.h"
#include "socket.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Of the standard, under the names that it gives. */
enum { PMIX_MAX_NSLEN = 255, PMIX_MAX_KEYLEN = 511 };
enum { PMIX_BOOL = 1, PMIX_STRING = 3, PMIX_UINT16 = 13, PMIX_UINT32 = 14 };
enum { PMIX_GLOBAL = 3 };
static const uint32_t PMIX_RANK_WILDCARD = UINT32_MAX - 1;

struct pmix_proc {
    char     nspace[PMIX_MAX_NSLEN + 1];
    uint32_t rank;
};

struct pmix_value {
    uint16_t type;
    union {
        bool     flag;
        uint16_t uint16;
        uint32_t uint32;
        char    *string;
        void    *largest[3];
    } data;
};

struct pmix_info {
    char              key[PMIX_MAX_KEYLEN + 1];
    uint32_t          flags;
    struct pmix_value value;
};

struct calls {
    int (*init)(struct pmix_proc *, struct pmix_info *, size_t);
    int (*put)(uint8_t, const char *, struct pmix_value *);
    int (*commit)(void);
    int (*fence)(const struct pmix_proc *, size_t, const struct pmix_info *, size_t);
    int (*get)(const struct pmix_proc *, const char *, const struct pmix_info *, size_t, struct pmix_value **);
    int (*finalize)(const struct pmix_info *, size_t);
    const char *(*error_string)(int);
};

static const struct {
    const char *name;
    size_t      offset;
} symbols[] = {
    {"PMIx_Init", offsetof(struct calls, init)},         {"PMIx_Put", offsetof(struct calls, put)},
    {"PMIx_Commit", offsetof(struct calls, commit)},     {"PMIx_Fence", offsetof(struct calls, fence)},
    {"PMIx_Get", offsetof(struct calls, get)},           {"PMIx_Finalize", offsetof(struct calls, finalize)},
    {"PMIx_Error_string", offsetof(struct calls, error_string)},
};

/* What the thread and the one who waits for it share; the last of the two frees it. */
struct conversation {
    struct calls             pmix;
    atomic_int               owners;
    int                      done;  /* eventfd: the thread is through */
    const char *_Atomic      step;  /* the call that it is in */
    int                      error; /* of that call; 0: all went well */
    uint32_t                 rank, size;
    int                      local_rank;
    char                     text[2 * HKT_UNIQUE_ID_BYTES + 1]; /* rank 0's id */
};

static int load(struct calls *pmix)
{
    static const char library[] = "libpmix.so.2";
    void             *handle    = dlopen(library, RTLD_NOW | RTLD_LOCAL); /* for good: it has threads */

    if (!handle)
        return hkt_fail(HKT_ERR_UNSUPPORTED, "PMIX_RANK=%s says that a PMIx launcher (mpirun, srun --mpi=pmix) has started this, but its library "
                        "cannot be loaded (%s); install %s (Debian: libpmix2) on every host or name its folder in LD_LIBRARY_PATH, or set "
                        "HKT_ROOT=host:port of rank 0", getenv("PMIX_RANK"), dlerror(), library);
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlsym(handle, symbols[i].name);

        if (!symbol)
            return hkt_fail(HKT_ERR_UNSUPPORTED, "%s has no %s: it is not a PMIx library of version 2 or later; set HKT_ROOT=host:port of rank 0 to "
                            "do without", library, symbols[i].name);
        memcpy((char *)pmix + symbols[i].offset, &symbol, sizeof(symbol));
    }
    return 0;
}

static void release(struct conversation *c)
{
    if (atomic_fetch_sub(&c->owners, 1) > 1) /* pairs with itself: who comes second sees all of it done */
        return;
    close(c->done);
    hkt_free(c);
}

/* ---- the thread ---------------------------------------------------------------------------------------------------- */

/* Gets a value of a type, into `to`, of `size` bytes; strings are cut. 0 or PMIx's error. */
static int get(struct conversation *c, const struct pmix_proc *of, const char *key, uint16_t type, void *to)
{
    struct pmix_value *value = NULL;
    int                rc    = c->pmix.get(of, key, NULL, 0, &value);

    if (rc)
        return rc;
    if (value->type != type)
        rc = -1; /* PMIX_ERROR */
    else if (type == PMIX_STRING) {
        snprintf(to, sizeof(c->text), "%s", value->data.string);
        free(value->data.string);
    } else if (type == PMIX_UINT32)
        memcpy(to, &value->data.uint32, sizeof(uint32_t));
    else
        memcpy(to, &value->data.uint16, sizeof(uint16_t));
    free(value); /* what PMIX_VALUE_RELEASE does; a value of a type that nobody asked for may leave something behind */
    return rc;
}

static int at(struct conversation *c, const char *step)
{
    atomic_store(&c->step, step); /* pairs with complain() */
    return 0;
}

/* From PMIx_Init to PMIx_Finalize. 0 or PMIx's error, in c->step. */
static int talk(struct conversation *c)
{
    static const char key[]   = "hocket.id";
    struct pmix_info  collect = {.key = "pmix.collect", .value = {.type = PMIX_BOOL, .data.flag = true}};
    struct pmix_value id      = {.type = PMIX_STRING, .data.string = c->text};
    struct pmix_proc  self, other;
    uint16_t          local;
    int               rc = at(c, "PMIx_Init");

    if (!rc)
        rc = c->pmix.init(&self, NULL, 0);
    if (rc)
        return rc;
    other      = self;
    other.rank = PMIX_RANK_WILDCARD;
    c->rank    = self.rank;
    at(c, "PMIx_Get of the job's size");
    rc = get(c, &other, "pmix.job.size", PMIX_UINT32, &c->size);
    if (!rc && !get(c, &self, "pmix.lrank", PMIX_UINT16, &local))
        c->local_rank = local;
    if (!rc && self.rank == 0) {
        at(c, "PMIx_Put");
        rc = c->pmix.put(PMIX_GLOBAL, key, &id);
    }
    if (!rc && !at(c, "PMIx_Commit"))
        rc = c->pmix.commit();
    if (!rc && !at(c, "PMIx_Fence"))
        rc = c->pmix.fence(NULL, 0, &collect, 1);
    other.rank = 0;
    if (!rc && self.rank && !at(c, "PMIx_Get of rank 0's id"))
        rc = get(c, &other, key, PMIX_STRING, c->text);
    if (!rc && !at(c, "PMIx_Finalize"))
        return c->pmix.finalize(NULL, 0);
    c->pmix.finalize(NULL, 0); /* the first error counts */
    return rc;
}

static void *talk_thread(void *arg)
{
    struct conversation *c   = arg;
    const uint64_t       one = 1;

    c->error = talk(c);
    if (write(c->done, &one, sizeof(one)) < 0)
        atomic_store(&c->step, "eventfd"); /* cannot be: it is empty; the deadline would say so */
    release(c);
    return NULL;
}

/* Starts the thread, which takes no signals: they are for the program. */
static int start(struct conversation *c)
{
    pthread_attr_t attr;
    pthread_t      thread;
    sigset_t       all, before;
    int            rc;

    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    atomic_store(&c->owners, 2);
    rc = hkt_alloc_check() ? ENOMEM : pthread_create(&thread, &attr, talk_thread, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (!rc)
        return 0;
    atomic_store(&c->owners, 1);
    return hkt_fail(rc == ENOMEM ? HKT_ERR_MEMORY : HKT_ERR_SYSTEM, "cannot start the thread that speaks PMIx: %s", hkt_errno_text(rc));
}

/* ---- the exchange ---------------------------------------------------------------------------------------------------- */

static int complain(const struct conversation *c, int waited)
{
    const char *step = atomic_load((const char *_Atomic *)(uintptr_t)&c->step); /* pairs with at() */

    if (hkt_socket_stopped())
        return hkt_fail(HKT_ERR_ABORTED, "PMIx was given up in %s", step);
    if (waited == -ETIMEDOUT)
        return hkt_fail(HKT_ERR_TIMEOUT, "%s did not end in time (limit: HKT_INIT_TIMEOUT)%s", step,
                        strcmp(step, "PMIx_Fence") ? "; does the launcher still run?" : ": not every rank of the job has called "
                                                                                        "hkt_comm_init_env(), or a rank has died");
    if (waited)
        return hkt_fail(HKT_ERR_SYSTEM, "waiting for PMIx: %s", hkt_errno_text(-waited));
    if (c->error)
        return hkt_fail(HKT_ERR_SYSTEM, "%s: %s (%d), by the launcher with PMIX_NAMESPACE=%.60s PMIX_RANK=%.12s; is the library of another version "
                        "than the launcher, or has the launcher ended? HKT_ROOT=host:port of rank 0 does without PMIx",
                        step, c->pmix.error_string(c->error), c->error, getenv("PMIX_NAMESPACE"), getenv("PMIX_RANK"));
    if (c->size < 1 || c->size > HKT_RANKS || c->rank >= c->size)
        return hkt_fail(HKT_ERR_SYSTEM, "PMIx says that this is rank %u of %u; set HKT_ROOT=host:port of rank 0 to do without it", c->rank, c->size);
    return 0;
}

int hkt_pmix_exchange(struct hkt_launched *place, uint64_t deadline)
{
    struct hkt_launched     found;
    struct conversation *c = hkt_alloc(sizeof(*c));
    hkt_unique_id_t      made = {{0}};
    int                  rc, waited;

    if (!c)
        return HKT_ERR_MEMORY;
    c->local_rank = -1;
    c->owners     = 1;
    c->step       = "the start";
    c->done       = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc            = c->done < 0 ? hkt_fail(HKT_ERR_SYSTEM, "eventfd: %s", hkt_errno_text(errno)) : load(&c->pmix);
    if (!rc && strcmp(getenv("PMIX_RANK"), "0") == 0) { /* here, where a failure finds its sentence */
        rc = hkt_bootstrap_unique_id(&made);
        if (!rc)
            hkt_bootstrap_id_print(&made, c->text);
    }
    rc = rc ? rc : start(c);
    if (!rc) {
        waited = hkt_socket_wait(c->done, POLLIN, deadline);
        rc     = complain(c, waited);
    }
    if (!rc)
        rc = hkt_bootstrap_id_parse(&found.id, c->text);
    if (!rc) {
        found.rank       = (int)c->rank;
        found.size       = (int)c->size;
        found.local_rank = c->local_rank;
        *place           = found;
    } else
        hkt_bootstrap_id_drop(&made);
    release(c);
    return rc;
}
