/* pipeline_slots.c -- where the messages of a stage are kept.
 *
 * A list of instructions says which messages are alive at a time; so every message gets its slot when the pipeline is
 * made, as many are taken as are alive at once, and a step allocates nothing. What comes in lives from its receive to
 * the last backward that reads it; what goes out until it is sent, in two slots by turns, so that the next computation
 * can write while the last one's result travels. */
#include <parallel/pipeline_run.h>

#include <string.h>

enum { TURNS = 2 };

/* A stack of free slots; new ones when it is empty. */
struct pool {
    int *free, n_free, made;
};

static int take(struct pool *pool)
{
    return pool->n_free ? pool->free[--pool->n_free] : pool->made++;
}

static void give(struct pool *pool, int slot)
{
    if (slot >= 0)
        pool->free[pool->n_free++] = slot;
}

/* Walks the list; what a message or its computation uses is written at its pair. */
static void assign(struct hkt_placed *placed, const struct hkt_pipeline *p, hkt_pipeline_kind_t kind,
                   struct pool pools[2])
{
    const hkt_action_t last    = kind == HKT_PIPELINE_FORWARD       ? HKT_DO_FORWARD
                                 : kind == HKT_PIPELINE_ZERO_BUBBLE ? HKT_DO_BACKWARD_WEIGHT
                                                                    : HKT_DO_BACKWARD;
    int                turn[2] = {0, 0};

    for (size_t i = 0; i < placed->n; i++) {
        const hkt_instruction_t *in = &placed->list[i];
        const size_t             at = hkt_pair(&p->shape, in);

        if (in->action == HKT_DO_RECV_FORWARD)
            placed->place[HKT_SLOT_INPUT][at] = take(&pools[0]);
        if (in->action == HKT_DO_RECV_BACKWARD)
            placed->place[HKT_SLOT_OUTPUT_GRADIENT][at] = take(&pools[1]);
        if (in->action == HKT_DO_SEND_FORWARD)
            placed->place[HKT_SLOT_OUTPUT][at] = turn[0]++ % TURNS;
        if (in->action == HKT_DO_SEND_BACKWARD)
            placed->place[HKT_SLOT_INPUT_GRADIENT][at] = turn[1]++ % TURNS;
        if (in->action == last) {
            give(&pools[0], placed->place[HKT_SLOT_INPUT][at]);
            give(&pools[1], placed->place[HKT_SLOT_OUTPUT_GRADIENT][at]);
        }
    }
    placed->needed[HKT_SLOT_INPUT]           = pools[0].made;
    placed->needed[HKT_SLOT_OUTPUT_GRADIENT] = pools[1].made;
    placed->needed[HKT_SLOT_OUTPUT]          = turn[0] < TURNS ? turn[0] : TURNS;
    placed->needed[HKT_SLOT_INPUT_GRADIENT]  = turn[1] < TURNS ? turn[1] : TURNS;
}

int hkt_placed_make(struct hkt_placed *placed, struct hkt_pipeline *p, hkt_pipeline_kind_t kind)
{
    const size_t         pairs    = hkt_pairs(&p->shape);
    hkt_pipeline_shape_t shape    = p->shape;
    struct pool          pools[2] = {{0}};
    void                *scratch  = NULL;

    shape.kind  = kind;
    shape.group = kind == p->shape.kind ? p->shape.group : 0;
    TRY(hkt_program_create(&placed->program, &shape));
    TRY(hkt_program_stage(&placed->list, &placed->n, placed->program, p->stage));
    TRY(hkt_ledger_take(&placed->memory,
                        placed->n * (sizeof(*placed->transfers) + sizeof(*placed->marks)) +
                            HKT_SLOT_KINDS * pairs * sizeof(int),
                        HKT_BYTES_OTHER, false, p->ledger));
    placed->transfers = placed->memory;
    placed->marks     = (hkt_pipeline_mark_t *)(void *)(placed->transfers + placed->n);
    for (int k = 0; k < HKT_SLOT_KINDS; k++) {
        placed->place[k] = (int *)(void *)(placed->marks + placed->n) + (size_t)k * pairs;
        memset(placed->place[k], 0xff, pairs * sizeof(int)); /* -1 */
    }
    TRY(hkt_ledger_take(&scratch, 2 * pairs * sizeof(int), HKT_BYTES_OTHER, false, NULL));
    pools[0].free = scratch;
    pools[1].free = pools[0].free + pairs;
    assign(placed, p, kind, pools);
    return hkt_ledger_give(scratch, NULL);
}

void hkt_placed_free(struct hkt_placed *placed, hkt_ledger_t *ledger)
{
    (void)hkt_ledger_give(placed->memory, ledger);
    (void)hkt_program_destroy(placed->program);
}

/* ---- the memory -------------------------------------------------------------------------------------------------- */

/* One block for all slots of a kind: shared segments are few in number. A slot is aligned to 64 bytes where the
 * messages' size is a multiple of that, else to an element. */
static int take_kind(struct hkt_pipeline *p, int kind, int n)
{
    const size_t bytes      = p->most * hkt_type_size(p->message.type);
    const hkt_bytes_t class = kind == HKT_SLOT_INPUT ? HKT_BYTES_ACTIVATION : HKT_BYTES_COMMUNICATION;
    struct hkt_slots *slots = &p->slots[kind];
    void             *memory;

    if (n == 0)
        return HKT_OK;
    if (bytes && (size_t)n > SIZE_MAX / bytes)
        return hkt_error_set(HKT_ERR_MEMORY, "hkt_pipeline_create: %d messages of %zu bytes are more than there can be",
                             n, bytes);
    TRY(hkt_ledger_take(&memory, (size_t)n * sizeof(*slots->slot), HKT_BYTES_OTHER, false, p->ledger));
    slots->slot = memory;
    slots->n    = n;
    TRY(hkt_ledger_take(&slots->memory, (size_t)n * bytes, class, true, p->ledger));
    memset(slots->memory, 0, (size_t)n * bytes); /* touched now: which step needs a slot first depends on timing */
    for (int i = 0; i < n; i++) {
        slots->slot[i].memory = (char *)slots->memory + (size_t)i * bytes;
        TRY(hkt_event_create(&slots->slot[i].event));
    }
    return HKT_OK;
}

/* Which kind of slot a message uses. */
static int kind_of(hkt_action_t action)
{
    switch (action) {
    case HKT_DO_SEND_FORWARD:
        return HKT_SLOT_OUTPUT;
    case HKT_DO_RECV_FORWARD:
        return HKT_SLOT_INPUT;
    case HKT_DO_SEND_BACKWARD:
        return HKT_SLOT_INPUT_GRADIENT;
    default:
        return HKT_SLOT_OUTPUT_GRADIENT;
    }
}

static void connect_transfers(struct hkt_placed *placed, struct hkt_pipeline *p)
{
    for (size_t i = 0; i < placed->n; i++) {
        const hkt_instruction_t *in   = &placed->list[i];
        const int                kind = kind_of(in->action);

        placed->marks[i].instruction = *in;
        if (in->action < HKT_DO_SEND_FORWARD)
            continue;
        placed->transfers[i] = (struct hkt_transfer){
            .pipeline    = p,
            .instruction = in,
            .link        = &p->link[in->action - HKT_DO_SEND_FORWARD],
            .slot        = &p->slots[kind].slot[placed->place[kind][hkt_pair(&p->shape, in)]],
            .shape       = hkt_shape_of(p, kind == HKT_SLOT_OUTPUT || kind == HKT_SLOT_OUTPUT_GRADIENT, in),
            .mark        = &placed->marks[i],
        };
    }
}

int hkt_slots_take(struct hkt_pipeline *p)
{
    for (int k = 0; k < HKT_SLOT_KINDS; k++) {
        const int a = p->training.needed[k], b = p->evaluation.needed[k];

        TRY(take_kind(p, k, a > b ? a : b));
    }
    connect_transfers(&p->training, p);
    connect_transfers(&p->evaluation, p);
    return HKT_OK;
}

void hkt_slots_give(struct hkt_pipeline *p)
{
    for (int k = 0; k < HKT_SLOT_KINDS; k++) {
        for (int i = 0; i < p->slots[k].n; i++)
            (void)hkt_event_destroy(p->slots[k].slot[i].event);
        (void)hkt_ledger_give(p->slots[k].memory, p->ledger);
        (void)hkt_ledger_give(p->slots[k].slot, p->ledger);
    }
}
