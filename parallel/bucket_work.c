/* bucket_work.c -- what happens to a bucket once its gradients are there.
 *
 * Announcements come from any thread, so "launch bucket k when it is complete and k - 1 has been launched" is done by
 * whoever completes something: the first one in launches, others only leave a mark that makes it look again. Nobody
 * waits and the order is the same on every rank. The reduction itself is one call on the stream's thread, which also
 * notes the times; without a stream the one who launches runs it. */
#include <parallel/bucket.h>

#include <string.h>
#include <time.h>

double hkt_bucket_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void note_error(hkt_buckets_t *b, int rc)
{
    int none = HKT_OK;
    if (rc < 0) /* the first one; hkt_bucket_settle() reads it when all have come back */
        atomic_compare_exchange_strong(&b->error, &none, rc);
}

static char *at(void *memory, size_t elements, const hkt_buckets_t *b)
{
    return (char *)memory + elements * b->size;
}

void *hkt_bucket_result(hkt_buckets_t *b, int bucket)
{
    const size_t first = b->flat.cut[bucket].first, n = (size_t)b->ranks;

    if (!b->config.sharded)
        return at(b->gradient, first, b);
    return b->config.each ? at(b->gradient, first / n, b)
                          : at(b->gradient, hkt_flat_shard(&b->flat, bucket, b->rank), b);
}

/* Reduces `memory`, which holds the whole bucket, in place. */
static int reduce(hkt_buckets_t *b, int bucket, void *memory)
{
    const size_t      count = b->flat.cut[bucket].count, piece = count / (size_t)b->ranks;
    void             *own        = at(memory, piece * (size_t)b->rank, b);
    hkt_compressor_t *compressor = b->plain ? NULL : b->bucket[bucket].compressor;
    const bool        average    = b->config.op == HKT_AVG;

    if (b->ranks == 1)
        return HKT_OK;
    if (compressor && b->config.sharded)
        return hkt_compressor_reduce_scatter(compressor, memory, own, piece, average, NULL);
    if (compressor)
        return hkt_compressor_all_reduce(compressor, memory, memory, count, average, NULL);
    if (b->config.sharded)
        return hkt_reduce_scatter(memory, own, piece, b->config.type, b->config.op, b->comm, NULL);
    return hkt_all_reduce(memory, memory, count, b->config.type, b->config.op, b->comm, NULL);
}

/* What came out of a micro-batch is added to the sums of the step. */
static void keep(hkt_buckets_t *b, const struct hkt_staging *s)
{
    const size_t count = b->flat.cut[s->bucket].count, piece = count / (size_t)b->ranks;
    const size_t kept = b->config.sharded ? piece : count;
    const void  *out  = b->config.sharded ? at(s->memory, piece * (size_t)b->rank, b) : s->memory;
    void        *sum  = hkt_bucket_result(b, s->bucket);

    if (s->first)
        memcpy(sum, out, kept * b->size);
    else
        hkt_float_add(sum, b->config.type, out, b->config.type, kept);
}

static void give_staging(hkt_buckets_t *b, struct hkt_staging *s)
{
    (void)pthread_mutex_lock(&b->lock);
    s->bucket = -1;
    s->flying = false;
    (void)pthread_cond_broadcast(&b->freed);
    (void)pthread_mutex_unlock(&b->lock);
}

static int run_staging(void *arg)
{
    struct hkt_staging *s      = arg;
    hkt_buckets_t      *b      = s->owner;
    struct hkt_bucket  *bucket = &b->bucket[s->bucket];

    bucket->launched = s->launched;
    bucket->started  = hkt_bucket_clock();
    const int rc     = reduce(b, s->bucket, s->memory);
    if (rc == HKT_OK)
        keep(b, s);
    bucket->finished = hkt_bucket_clock();
    b->overlap.in_flight += bucket->finished - bucket->started;
    note_error(b, rc);
    give_staging(b, s);
    return rc;
}

static int run_bucket(void *arg)
{
    struct hkt_bucket *bucket = arg;
    hkt_buckets_t     *b      = bucket->owner;
    const int          index  = (int)(bucket - b->bucket);

    bucket->started  = hkt_bucket_clock();
    const int rc     = reduce(b, index, at(b->gradient, b->flat.cut[index].first, b));
    bucket->finished = hkt_bucket_clock();
    b->overlap.in_flight += bucket->finished - bucket->started;
    note_error(b, rc);
    return rc;
}

int hkt_bucket_add_staging(hkt_buckets_t *b)
{
    size_t largest = 0;
    void  *memory  = NULL;

    if (b->stagings == b->most)
        return hkt_error_set(HKT_ERR_INTERNAL, "%d buckets are open at a time, more than there are", b->most);
    for (int i = 0; i < b->flat.buckets; i++)
        largest = b->flat.cut[i].count > largest ? b->flat.cut[i].count : largest;
    TRY(hkt_ledger_take(&memory, largest * b->size, HKT_BYTES_GRADIENT, true, b->ledger));
    b->staging[b->stagings++] = (struct hkt_staging){.owner = b, .memory = memory, .bucket = -1};
    return HKT_OK;
}

/* A free staging buffer, or NULL after a wait for one that was flying: then things have changed. More are made only
 * when all are being filled. They take turns, so that the first step touches them all. The lock is held. */
static int find_staging(struct hkt_staging **staging, hkt_buckets_t *b)
{
    bool flying = false;

    *staging = NULL;
    for (int i = 0; i < b->stagings; i++) {
        struct hkt_staging *s = &b->staging[(b->turn + i) % b->stagings];

        if (s->bucket < 0) {
            *staging = s;
            b->turn  = (int)(s - b->staging) + 1;
            return HKT_OK;
        }
        flying |= s->flying;
    }
    if (!flying)
        return hkt_bucket_add_staging(b);
    (void)pthread_cond_wait(&b->freed, &b->lock);
    return HKT_OK;
}

int hkt_bucket_staging(struct hkt_staging **staging, int bucket, hkt_buckets_t *b)
{
    struct hkt_bucket  *k  = &b->bucket[bucket];
    struct hkt_staging *s  = atomic_load(&k->staging);
    int                 rc = HKT_OK;

    if (s) {
        *staging = s;
        return HKT_OK;
    }
    (void)pthread_mutex_lock(&b->lock);
    while (rc == HKT_OK && !atomic_load(&k->staging)) { /* another thread may do it while this one waits */
        rc = find_staging(&s, b);
        if (rc < 0 || !s)
            continue;
        s->bucket = bucket;
        s->first  = b->micro_batch == 0;
        memset(s->memory, 0, b->flat.cut[bucket].count * b->size);
        atomic_store(&k->staging, s);
    }
    if (rc == HKT_OK)
        *staging = atomic_load(&k->staging);
    (void)pthread_mutex_unlock(&b->lock);
    return rc;
}

static int launch_staging(hkt_buckets_t *b, int bucket)
{
    struct hkt_staging *s;

    TRY(hkt_bucket_staging(&s, bucket, b)); /* there is none yet when all of it is unused */
    s->launched = hkt_bucket_clock();
    (void)pthread_mutex_lock(&b->lock);
    s->flying = true; /* from here on it is worth waiting for */
    atomic_store(&b->bucket[bucket].staging, NULL);
    (void)pthread_mutex_unlock(&b->lock);
    if (!b->stream)
        return run_staging(s);
    const int rc = hkt_stream_call(b->stream, run_staging, s);
    if (rc < 0)
        give_staging(b, s);
    return rc;
}

static void launch(hkt_buckets_t *b, int bucket)
{
    struct hkt_bucket *k = &b->bucket[bucket];

    if (b->config.each) {
        note_error(b, launch_staging(b, bucket));
        return;
    }
    k->launched = hkt_bucket_clock();
    note_error(b, b->stream ? hkt_stream_call(b->stream, run_bucket, k) : run_bucket(k));
}

void hkt_bucket_advance(hkt_buckets_t *b)
{
    int seen = 1;

    if (atomic_fetch_add(&b->requests, 1) != 0)
        return; /* pairs with the exchange below: whoever launches will look again */
    do {
        while (b->next < b->flat.buckets && atomic_load(&b->bucket[b->next].missing) == 0)
            launch(b, b->next++);
    } while (!atomic_compare_exchange_strong(&b->requests, &seen, 0));
}

void hkt_bucket_expect(hkt_buckets_t *b)
{
    const int times = b->config.each ? 1 : b->micro_batches;

    b->next = 0;
    for (int i = 0; i < b->flat.buckets; i++)
        atomic_store(&b->bucket[i].missing, b->flat.cut[i].parameters * times);
}

int hkt_bucket_launch_rest(hkt_buckets_t *b)
{
    while (b->next < b->flat.buckets)
        launch(b, b->next++);
    return atomic_load(&b->error);
}

int hkt_bucket_settle(hkt_buckets_t *b)
{
    const double start = hkt_bucket_clock();
    const int    rc    = b->stream ? hkt_stream_synchronize(b->stream) : HKT_OK;

    b->overlap.waited += hkt_bucket_clock() - start;
    if (rc < 0)
        return rc;
    const int error = atomic_load(&b->error);
    return error < 0 ? hkt_error_set(
                           error,
                           "the reduction of gradients failed on this rank (%s); see hkt_comm_error() for the state "
                           "of the communicator",
                           hkt_error_string(error))
                     : HKT_OK;
}
