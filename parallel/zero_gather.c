/* zero_gather.c -- weights for the passes: gathered after the update (stages 1 and 2), or group by group while they are
 * needed (stage 3).
 *
 * Gathers have a stream and a communicator of their own, so they neither wait for reductions nor mix with them. In
 * stage 3 every group remembers which group was fetched next the last time, separately for coming from above and from
 * below; that one is gathered ahead. All ranks fetch in the same order, so they remember the same. What was gathered
 * stays until its memory is needed or the weights change, so the turn from forward to backward moves nothing twice. */
#include <parallel/zero.h>

#include <stdlib.h>

static void note_error(hkt_zero_t *z, int rc)
{
    int none = HKT_OK;
    if (rc < 0)
        atomic_compare_exchange_strong(&z->error, &none, rc);
}

static int check_error(hkt_zero_t *z)
{
    const int rc = atomic_load(&z->error);
    return rc < 0 ? hkt_error_set(rc,
                                  "gathering weights failed on this rank (%s); see hkt_comm_error() for the state of "
                                  "the communicator",
                                  hkt_error_string(rc))
                  : HKT_OK;
}

/* On the stream's thread: the bucket's own runs of all ranks, side by side. */
static int gather(hkt_zero_t *z, int bucket, void *whole)
{
    const size_t piece = z->flat->cut[bucket].count / (size_t)z->ranks;
    const int rc = hkt_all_gather(hkt_zero_own_weight(z, bucket), whole, piece, z->config.weight, z->gather_comm, NULL);
    note_error(z, rc);
    return rc;
}

static int gather_bucket(void *arg)
{
    struct hkt_gather *g = arg;
    hkt_zero_t        *z = g->owner;
    return gather(z, g->bucket, (char *)z->weight + z->flat->cut[g->bucket].first * z->wsize);
}

static int gather_group(void *arg)
{
    struct hkt_slot *s = arg;
    hkt_zero_t      *z = s->owner;

    for (int k = 0; k < z->flat->buckets; k++)
        if (z->flat->cut[k].group == s->group && z->flat->cut[k].same < 0)
            TRY(gather(z, k, (char *)s->memory + z->place[k] * z->wsize));
    return HKT_OK;
}

static int add_slot(hkt_zero_t *z)
{
    struct hkt_slot *s       = &z->slot[z->slots];
    size_t           largest = 0;

    for (int g = 0; g < z->groups; g++)
        largest = z->group_size[g] > largest ? z->group_size[g] : largest;
    *s = (struct hkt_slot){.owner = z, .group = -1};
    TRY(hkt_event_create(&s->gathered));
    z->slots++;
    return hkt_ledger_take(&s->memory, largest * z->wsize, HKT_BYTES_PARAMETER, true, z->ledger);
}

/* A slot nobody uses: an empty one, else the one not used for longest; NULL when all are in use. */
static struct hkt_slot *find_slot(hkt_zero_t *z)
{
    struct hkt_slot *best = NULL;

    for (int i = 0; i < z->slots; i++) {
        struct hkt_slot *s = &z->slot[i];
        if (s->users == 0 && (!best || (s->group < 0 && best->group >= 0) ||
                              ((s->group < 0) == (best->group < 0) && s->used < best->used)))
            best = s;
    }
    return best;
}

static int launch_group(hkt_zero_t *z, struct hkt_slot *s, int group)
{
    if (s->group >= 0) {
        TRY(hkt_event_synchronize(s->gathered)); /* it may have been gathered ahead in vain */
        z->slot_of[s->group] = -1;
    }
    s->group          = group;
    s->fetched        = false;
    s->used           = ++z->clock;
    z->slot_of[group] = (int)(s - z->slot);
    z->gathered += z->group_size[group];
    TRY(hkt_stream_call(z->stream, gather_group, s));
    return hkt_event_record(s->gathered, z->stream);
}

static int prefetch(hkt_zero_t *z, int group)
{
    struct hkt_slot *s = group >= 0 && z->slot_of[group] < 0 ? find_slot(z) : NULL;
    return s ? launch_group(z, s, group) : HKT_OK;
}

static int fetch_group(hkt_zero_t *z, int group)
{
    struct hkt_slot *s;

    if (z->slot_of[group] < 0) {
        if (!find_slot(z))
            TRY(add_slot(z));
        TRY(launch_group(z, find_slot(z), group));
    } else if (z->slot[z->slot_of[group]].fetched && z->slot[z->slot_of[group]].users == 0) {
        z->reused += z->group_size[group];
    }
    s = &z->slot[z->slot_of[group]];
    s->users++;
    s->fetched = true;
    s->used    = ++z->clock;

    if (z->key >= 0)
        z->follows[z->key] = group;
    z->key  = 3 * group + (group == z->last ? 2 : group < z->last);
    z->last = group;
    if (z->first < 0)
        z->first = group;
    TRY(prefetch(z, z->follows[z->key]));
    TRY(hkt_event_synchronize(s->gathered));
    return check_error(z);
}

/* Stages 1 and 2: waits for the buckets in which the group has parameters. */
static int wait_group(hkt_zero_t *z, int group)
{
    for (int i = 0; i < z->flat->parameters; i++) {
        struct hkt_gather *g = &z->gather[z->flat->bucket[i]];
        if (z->group[i] != group || !g->pending)
            continue;
        TRY(hkt_event_synchronize(g->gathered));
        g->pending = false;
    }
    return check_error(z);
}

static int known(const hkt_zero_t *z, int group, const char *call)
{
    if (z && group >= 0 && group < z->groups)
        return HKT_OK;
    return hkt_error_set(HKT_ERR_ARGUMENT, "%s: group %d of %d", call, group, z ? z->groups : 0);
}

static int make_slots(hkt_zero_t *z)
{
    const size_t groups = (size_t)z->groups;

    z->place      = calloc((size_t)z->flat->buckets, sizeof *z->place);
    z->group_size = calloc(groups, sizeof *z->group_size);
    z->slot       = calloc(groups, sizeof *z->slot);
    z->slot_of    = calloc(groups, sizeof *z->slot_of);
    z->follows    = calloc(3 * groups, sizeof *z->follows);
    if (!z->place || !z->group_size || !z->slot || !z->slot_of || !z->follows)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for %d groups", z->groups);
    for (int g = 0; g < z->groups; g++)
        z->slot_of[g] = z->follows[3 * g] = z->follows[3 * g + 1] = z->follows[3 * g + 2] = -1;
    for (int k = 0; k < z->flat->buckets; k++) {
        const struct hkt_flat_bucket *cut = &z->flat->cut[k];
        if (cut->same >= 0)
            continue;
        z->place[k] = z->group_size[cut->group];
        z->group_size[cut->group] += cut->count;
    }
    for (int i = 0; i < z->config.live && i < z->groups; i++)
        TRY(add_slot(z));
    return HKT_OK;
}

int hkt_zero_make_gathers(hkt_zero_t *z)
{
    z->last = z->key = z->first = -1;
    if (z->ranks == 1)
        return HKT_OK;
    z->gather = calloc((size_t)z->flat->buckets, sizeof *z->gather);
    if (!z->gather)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for %d buckets", z->flat->buckets);
    TRY(hkt_comm_duplicate(&z->gather_comm, z->comm, NULL));
    TRY(hkt_comm_touch(z->gather_comm));
    TRY(hkt_stream_create(&z->stream));
    for (int k = 0; k < z->flat->buckets; k++) {
        z->gather[k] = (struct hkt_gather){.owner = z, .bucket = k};
        TRY(hkt_event_create(&z->gather[k].gathered));
    }
    return z->part ? make_slots(z) : HKT_OK;
}

int hkt_zero_free_gathers(hkt_zero_t *z)
{
    const int rc = hkt_stream_destroy(z->stream);

    for (int k = 0; z->gather && k < z->flat->buckets; k++)
        (void)hkt_event_destroy(z->gather[k].gathered);
    for (int i = 0; i < z->slots; i++) {
        (void)hkt_event_destroy(z->slot[i].gathered);
        (void)hkt_ledger_give(z->slot[i].memory, z->ledger);
    }
    (void)hkt_comm_destroy(z->gather_comm);
    free(z->gather);
    free(z->place);
    free(z->group_size);
    free(z->slot);
    free(z->slot_of);
    free(z->follows);
    return rc;
}

int hkt_zero_gather(hkt_zero_t *z, int bucket)
{
    struct hkt_gather *g = &z->gather[bucket];

    g->pending = true;
    TRY(hkt_stream_call(z->stream, gather_bucket, g));
    return hkt_event_record(g->gathered, z->stream);
}

int hkt_zero_forget(hkt_zero_t *z)
{
    for (int i = 0; i < z->slots; i++)
        if (z->slot[i].users)
            return hkt_error_set(HKT_ERR_USAGE,
                                 "weights of group %d are still fetched %d times; release them before the step",
                                 z->slot[i].group, z->slot[i].users);
    if (z->stream)
        TRY(hkt_stream_synchronize(z->stream));
    for (int i = 0; i < z->slots; i++) {
        if (z->slot[i].group >= 0)
            z->slot_of[z->slot[i].group] = -1;
        z->slot[i].group = -1;
    }
    return HKT_OK;
}

int hkt_zero_prefetch_first(hkt_zero_t *z)
{
    const int group = z->first;

    z->first = -1;
    return z->part ? prefetch(z, group) : HKT_OK;
}

int hkt_zero_fetch(hkt_zero_t *zero, int group)
{
    TRY(known(zero, group, "hkt_zero_fetch"));
    if (zero->ranks == 1)
        return HKT_OK;
    return zero->part ? fetch_group(zero, group) : wait_group(zero, group);
}

int hkt_zero_release(hkt_zero_t *zero, int group)
{
    TRY(known(zero, group, "hkt_zero_release"));
    if (!zero->part)
        return HKT_OK;
    struct hkt_slot *s = zero->slot_of[group] < 0 ? NULL : &zero->slot[zero->slot_of[group]];
    if (!s || s->users == 0)
        return hkt_error_set(HKT_ERR_USAGE, "hkt_zero_release: group %d is not fetched", group);
    s->users--;
    return HKT_OK;
}

int hkt_zero_weight(void **weight, int parameter, hkt_zero_t *z)
{
    if (!weight || !z || parameter < 0 || parameter >= z->flat->parameters)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_zero_weight: parameter %d of %d", parameter,
                             z ? z->flat->parameters : 0);
    int bucket = z->flat->bucket[parameter], owner = parameter;
    if (z->flat->cut[bucket].same >= 0) { /* a copy: the weights are those of the other */
        bucket = z->flat->cut[bucket].same;
        owner  = z->flat->order[z->flat->cut[bucket].position];
    }
    if (!z->part) {
        *weight = (char *)z->weight + z->flat->at[owner] * z->wsize;
        return HKT_OK;
    }
    const struct hkt_slot *s = z->slot_of[z->group[owner]] < 0 ? NULL : &z->slot[z->slot_of[z->group[owner]]];
    if (!s || s->users == 0)
        return hkt_error_set(HKT_ERR_USAGE, "hkt_zero_weight: group %d, in which \"%s\" is, is not fetched",
                             z->group[owner], z->buckets->parameters[owner].name);
    const size_t inside = z->flat->at[owner] - z->flat->cut[bucket].first;
    *weight             = (char *)s->memory + (z->place[bucket] + inside) * z->wsize;
    return HKT_OK;
}

int hkt_zero_synchronize(hkt_zero_t *z)
{
    if (!z)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_zero_synchronize: the handle is NULL");
    if (!z->stream)
        return HKT_OK;
    TRY(hkt_stream_synchronize(z->stream));
    for (int k = 0; k < z->flat->buckets; k++)
        z->gather[k].pending = false;
    return check_error(z);
}
