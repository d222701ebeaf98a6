/* zero_team.c -- several threads for the arithmetic at the end of a step.
 *
 * Tiles are handed out in order, to whoever is free. That is no choice of order for any number: the update treats
 * elements by themselves, and the sums of the norm are exact. The threads are those of streams, which sleep in between.
 */
#include <parallel/zero.h>

#include <stdlib.h>

/* One pass over the tiles. */
struct pass {
    hkt_zero_t   *zero;
    hkt_zero_job *job;
    int (*between)(void *arg);
    void       *arg;
    _Atomic int next; /* tile */
};

struct hkt_worker {
    hkt_stream_t *stream;
    struct pass  *pass;
    int           index;
};

static int work(struct pass *p, int worker)
{
    hkt_zero_t *z = p->zero;
    int         t, rc = HKT_OK;

    while (rc == HKT_OK && (t = atomic_fetch_add(&p->next, 1)) < z->n_tiles) {
        rc = p->job(p->arg, &z->tiles[t], worker);
        atomic_fetch_sub(&z->left[z->tiles[t].bucket], 1);
        if (rc == HKT_OK && worker == 0 && p->between)
            rc = p->between(p->arg);
    }
    return rc;
}

static int help(void *arg)
{
    struct hkt_worker *w = arg;
    return work(w->pass, w->index);
}

int hkt_zero_make_team(hkt_zero_t *z)
{
    const int others = z->config.threads - 1;

    z->left    = calloc((size_t)z->flat->buckets, sizeof *z->left);
    z->workers = calloc((size_t)others + 1, sizeof *z->workers);
    if (!z->left || !z->workers)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for %d threads", others);
    for (int i = 0; i < others; i++) {
        z->workers[i].index = i + 1;
        TRY(hkt_stream_create(&z->workers[i].stream));
    }
    return HKT_OK;
}

int hkt_zero_free_team(hkt_zero_t *z)
{
    int rc = HKT_OK;

    for (int i = 0; z->workers && i < z->config.threads - 1; i++) {
        const int end = hkt_stream_destroy(z->workers[i].stream);
        rc            = rc < 0 ? rc : end;
    }
    free(z->workers);
    free(z->left);
    return rc;
}

int hkt_zero_each_tile(hkt_zero_t *z, hkt_zero_job *job, int (*between)(void *arg), void *arg)
{
    struct pass p      = {.zero = z, .job = job, .between = between, .arg = arg};
    const int   others = z->config.threads - 1 < z->n_tiles - 1 ? z->config.threads - 1 : z->n_tiles - 1;
    int         rc = HKT_OK, started = 0;

    for (int k = 0; k < z->flat->buckets; k++)
        atomic_store(&z->left[k], 0);
    for (int t = 0; t < z->n_tiles; t++)
        atomic_fetch_add(&z->left[z->tiles[t].bucket], 1);
    for (; started < others && rc == HKT_OK; started += rc == HKT_OK) {
        z->workers[started].pass = &p;
        rc                       = hkt_stream_call(z->workers[started].stream, help, &z->workers[started]);
    }
    if (rc == HKT_OK)
        rc = work(&p, 0);
    for (int i = 0; i < started; i++) { /* p is theirs until here */
        const int end = hkt_stream_synchronize(z->workers[i].stream);
        rc            = rc < 0 ? rc : end;
    }
    return rc == HKT_OK && between ? between(arg) : rc;
}
