/* pipeline_run.c -- runs one stage's program.
 *
 * The calling thread goes through the list. A message is handed to its link's stream and the thread goes on; before a
 * computation it waits for the messages that this one reads, and for the one that last used the memory that it writes.
 * The list was laid out for sends that wait and a stage that does one thing at a time (pipeline_program.c); doing more
 * at once only takes waits away.
 *
 * A stage that fails aborts its links, so its neighbours fail and abort theirs, to the ends of the pipeline: nobody
 * waits for a timeout. */
#include <parallel/agree.h>
#include <parallel/pipeline_run.h>

#include <inttypes.h>
#include <string.h>
#include <time.h>

double hkt_pipeline_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int64_t hkt_shape_count(const int64_t shape[3], size_t most)
{
    uint64_t count = 1;

    for (int i = 0; i < 3; i++) {
        if (shape[i] < 0)
            return -1;
        if (shape[i] == 0)
            count = 0;
    }
    for (int i = 0; i < 3 && count; i++) {
        if ((uint64_t)shape[i] > most / count)
            return -1;
        count *= (uint64_t)shape[i];
    }
    return (int64_t)count;
}

/* ---- messages, on the streams ------------------------------------------------------------------------------------ */

/* The three numbers before a message of the forward direction. */
static int handshake(const struct hkt_transfer *t, bool sends)
{
    if (sends)
        return hkt_send(t->shape, 3, HKT_INT64, t->link->peer, t->link->comm, NULL);
    TRY(hkt_recv(t->shape, 3, HKT_INT64, t->link->peer, t->link->comm, NULL));
    if (hkt_shape_count(t->shape, t->pipeline->most) >= 0)
        return HKT_OK;
    return hkt_error_set(HKT_ERR_MISMATCH,
                         "a message of %" PRId64 " x %" PRId64 " x %" PRId64
                         " is announced, and at most %zu elements were agreed",
                         t->shape[0], t->shape[1], t->shape[2], t->pipeline->most);
}

static int transfer(const struct hkt_transfer *t)
{
    const hkt_action_t action = t->instruction->action;
    const bool         sends  = action == HKT_DO_SEND_FORWARD || action == HKT_DO_SEND_BACKWARD;
    const bool         shaped =
        t->pipeline->message.variable && (action == HKT_DO_SEND_FORWARD || action == HKT_DO_RECV_FORWARD);
    size_t count;

    if (shaped)
        TRY(handshake(t, sends));
    count = (size_t)hkt_shape_count(t->shape, t->pipeline->most);
    if (sends)
        return hkt_send(t->slot->memory, count, t->pipeline->message.type, t->link->peer, t->link->comm, NULL);
    return hkt_recv(t->slot->memory, count, t->pipeline->message.type, t->link->peer, t->link->comm, NULL);
}

static int do_transfer(void *arg)
{
    const struct hkt_transfer *t = arg;

    t->mark->begin = hkt_pipeline_now() - t->pipeline->origin;
    t->slot->rc    = transfer(t);
    t->mark->end   = hkt_pipeline_now() - t->pipeline->origin;
    return t->slot->rc;
}

static int post(struct hkt_transfer *t)
{
    TRY(hkt_stream_call(t->link->stream, do_transfer, t));
    return hkt_event_record(t->slot->event, t->link->stream);
}

/* ---- computations, on the caller's thread -------------------------------------------------------------------------
 */

static struct hkt_slot *slot_of(const struct hkt_pipeline *p, const struct hkt_placed *placed, int kind,
                                const hkt_instruction_t *in)
{
    const int at = placed->place[kind][hkt_pair(&p->shape, in)];

    return at < 0 ? NULL : &p->slots[kind].slot[at];
}

/* The slot's memory once its last message has ended; NULL without a slot. */
static int wait_for(void **memory, struct hkt_slot *slot)
{
    *memory = NULL;
    if (!slot)
        return HKT_OK;
    TRY(hkt_event_synchronize(slot->event));
    TRY(slot->rc);
    *memory = slot->memory;
    return HKT_OK;
}

/* Waits for what the computation reads and writes, and says so to the callback. */
static int prepare(hkt_pipeline_work_t *work, const struct hkt_pipeline *p, const struct hkt_placed *placed,
                   const hkt_instruction_t *in)
{
    const bool forward = in->action == HKT_DO_FORWARD, weight = in->action == HKT_DO_BACKWARD_WEIGHT;
    void      *memory;

    *work = (hkt_pipeline_work_t){.chunk = in->chunk, .micro = in->micro};
    TRY(wait_for(&memory, slot_of(p, placed, HKT_SLOT_INPUT, in)));
    work->input = memory;
    memcpy(work->input_shape, hkt_shape_of(p, false, in), sizeof(work->input_shape));
    if (forward) {
        TRY(wait_for(&work->output, slot_of(p, placed, HKT_SLOT_OUTPUT, in)));
        memcpy(work->output_shape, work->input_shape, sizeof(work->output_shape));
        return HKT_OK;
    }
    TRY(wait_for(&memory, slot_of(p, placed, HKT_SLOT_OUTPUT_GRADIENT, in)));
    work->output_gradient = memory;
    memcpy(work->output_shape, hkt_shape_of(p, true, in), sizeof(work->output_shape));
    return weight ? HKT_OK : wait_for(&work->input_gradient, slot_of(p, placed, HKT_SLOT_INPUT_GRADIENT, in));
}

static int failed(const struct hkt_pipeline *p, const hkt_instruction_t *in, int rc, const char *why)
{
    char what[64], because[640]; /* a copy: `why` may be the sentence that is about to be replaced */

    (void)hkt_instruction_text(what, sizeof(what), in);
    snprintf(because, sizeof(because), "%s", why);
    return hkt_error_set(rc, "pipeline stage %d, %s: %s", p->stage, what, because);
}

static int call_back(struct hkt_pipeline *p, const hkt_pipeline_calls_t *calls, const hkt_instruction_t *in,
                     hkt_pipeline_work_t *work)
{
    switch (in->action) {
    case HKT_DO_FORWARD:
        return calls->forward(work, calls->arg);
    case HKT_DO_BACKWARD:
        return calls->backward(work, calls->arg);
    case HKT_DO_BACKWARD_INPUT:
        return calls->backward_input(work, calls->arg);
    case HKT_DO_BACKWARD_WEIGHT:
        return calls->backward_weight(work, calls->arg);
    default:
        return failed(p, in, HKT_ERR_INTERNAL, "no computation");
    }
}

/* Keeps the shape of an output that will travel. */
static int keep_shape(struct hkt_pipeline *p, const hkt_instruction_t *in, const hkt_pipeline_work_t *work)
{
    if (!p->message.variable || !work->output)
        return HKT_OK;
    if (hkt_shape_count(work->output_shape, p->most) < 0)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "the callback leaves the output shape %" PRId64 " x %" PRId64 " x %" PRId64
                             "; it sets three numbers of 0 or more with at most %zu elements",
                             work->output_shape[0], work->output_shape[1], work->output_shape[2], p->most);
    memcpy(hkt_shape_of(p, true, in), work->output_shape, sizeof(work->output_shape));
    return HKT_OK;
}

/* `own`: the error is this thread's, and not that of a message. */
static int compute(struct hkt_pipeline *p, const struct hkt_placed *placed, size_t i, const hkt_pipeline_calls_t *calls,
                   bool *own)
{
    const hkt_instruction_t *in   = &placed->list[i];
    hkt_pipeline_mark_t     *mark = &placed->marks[i];
    hkt_pipeline_work_t      work;
    int                      rc;

    *own = false;
    TRY(prepare(&work, p, placed, in));
    *own        = true;
    mark->begin = hkt_pipeline_now() - p->origin;
    (void)hkt_error_set(HKT_OK, "the callback returned an error"); /* what is said if it says nothing itself */
    rc        = call_back(p, calls, in, &work);
    mark->end = hkt_pipeline_now() - p->origin;
    p->busy += mark->end - mark->begin;
    if (rc >= 0 && in->action == HKT_DO_FORWARD)
        rc = keep_shape(p, in, &work);
    return rc < 0 ? failed(p, in, rc, hkt_last_error()) : HKT_OK;
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static int missing(const hkt_pipeline_calls_t *calls, hkt_pipeline_kind_t kind)
{
    const bool  split = kind == HKT_PIPELINE_ZERO_BUBBLE, back = !split && kind != HKT_PIPELINE_FORWARD;
    const char *what = !calls || !calls->forward          ? "forward"
                       : back && !calls->backward         ? "backward"
                       : split && !calls->backward_input  ? "backward_input"
                       : split && !calls->backward_weight ? "backward_weight"
                                                          : NULL;

    return what ? hkt_error_set(HKT_ERR_ARGUMENT, "the pipeline's callback %s is NULL, and schedule %s needs it", what,
                                hkt_pipeline_name(kind))
                : HKT_OK;
}

/* The first error of the links' streams, with its sentence; after it, or an abort, all of them are idle. The failure
 * that began it is no abort, so one of those is preferred. */
static int drain(struct hkt_pipeline *p)
{
    char sentence[1024] = "";
    int  first          = HKT_OK;

    for (int k = 0; k < HKT_MESSAGES; k++) {
        const int rc = p->link[k].stream ? hkt_stream_synchronize(p->link[k].stream) : HKT_OK;

        if (rc < 0 && (!first || (first == HKT_ERR_ABORTED && rc != HKT_ERR_ABORTED))) {
            first = rc;
            snprintf(sentence, sizeof(sentence), "%s", hkt_last_error());
        }
    }
    return first ? hkt_error_set(first, "pipeline stage %d: %s", p->stage, sentence) : HKT_OK;
}

/* Ends the pipeline with an error: this thread's own, or that of a message, whose sentence its stream has. */
static int give_up(struct hkt_pipeline *p, int rc, bool own)
{
    char sentence[1024];
    int  code;

    snprintf(sentence, sizeof(sentence), "%s", hkt_last_error());
    hkt_links_abort(p);
    code    = drain(p);
    p->dead = own || !code ? rc : code;
    return own || !code ? hkt_error_set(rc, "%s", sentence) : code;
}

static int run(struct hkt_pipeline *p, const struct hkt_placed *placed, const hkt_pipeline_calls_t *calls)
{
    bool own = true;
    int  rc  = HKT_OK;

    p->origin = hkt_pipeline_now();
    p->busy   = 0;
    p->last   = placed;
    for (size_t i = 0; i < placed->n && !rc; i++)
        rc = placed->list[i].action >= HKT_DO_SEND_FORWARD ? post(&placed->transfers[i])
                                                           : compute(p, placed, i, calls, &own);
    if (rc)
        return give_up(p, rc, own);
    rc = drain(p);
    if (rc)
        return give_up(p, rc, true);
    p->total = hkt_pipeline_now() - p->origin;
    return HKT_OK;
}

static int start(struct hkt_pipeline *p, const struct hkt_placed *placed, const hkt_pipeline_calls_t *calls,
                 hkt_pipeline_kind_t kind)
{
    if (!p)
        return hkt_error_set(HKT_ERR_ARGUMENT, "the pipeline is NULL");
    if (p->dead)
        return hkt_error_set(HKT_ERR_USAGE, "the pipeline has ended with an error before (%s); destroy it",
                             hkt_error_string(p->dead));
    TRY(missing(calls, kind));
    return run(p, placed, calls);
}

int hkt_pipeline_run(hkt_pipeline_t *p, const hkt_pipeline_calls_t *calls)
{
    return start(p, p ? &p->training : NULL, calls, p ? p->shape.kind : HKT_PIPELINE_FORWARD);
}

int hkt_pipeline_evaluate(hkt_pipeline_t *p, const hkt_pipeline_calls_t *calls)
{
    return start(p, p ? &p->evaluation : NULL, calls, HKT_PIPELINE_FORWARD);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static int check(const hkt_pipeline_shape_t *shape, const hkt_pipeline_message_t *message, int size)
{
    TRY(hkt_pipeline_validate(shape));
    if (shape->stages != size)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_pipeline_create: %d stages on a communicator of %d ranks; they are one rank each",
                             shape->stages, size);
    if (!message || !hkt_type_size(message->type))
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_pipeline_create: %s",
                             message ? "message.type is no type" : "message is NULL");
    if (hkt_shape_count(message->shape, SIZE_MAX / 64) < 0)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_pipeline_create: a message of %" PRId64 " x %" PRId64 " x %" PRId64
                             "; three numbers of 0 or more, and no more bytes than there can be",
                             message->shape[0], message->shape[1], message->shape[2]);
    return HKT_OK;
}

static void print_request(char *text, size_t size, const hkt_pipeline_shape_t *s, const hkt_pipeline_message_t *m)
{
    snprintf(text, size,
             "%s, %d stages, %d chunks, %d micro-batches, groups of %d, %s of %" PRId64 " x %" PRId64 " x %" PRId64
             " %s",
             hkt_pipeline_name(s->kind), s->stages, s->chunks, s->micros, s->group,
             m->variable ? "at most" : "messages", m->shape[0], m->shape[1], m->shape[2], hkt_type_name(m->type));
}

/* Inputs and outputs have the message's shape; where shapes vary, an output that was not given one must not look like
 * one. */
static int make_shapes(struct hkt_pipeline *p)
{
    const size_t pairs = hkt_pairs(&p->shape);
    void        *memory;

    TRY(hkt_ledger_take(&memory, 2 * pairs * sizeof(*p->shapes), HKT_BYTES_OTHER, false, p->ledger));
    p->shapes = memory;
    for (size_t i = 0; i < 2 * pairs; i++)
        for (int k = 0; k < 3; k++)
            p->shapes[i][k] = p->message.variable ? -1 : p->message.shape[k];
    return HKT_OK;
}

static int prepare_all(struct hkt_pipeline *p)
{
    TRY(hkt_comm_rank(p->comm, &p->stage));
    TRY(make_shapes(p));
    TRY(hkt_placed_make(&p->training, p, p->shape.kind));
    TRY(hkt_placed_make(&p->evaluation, p, HKT_PIPELINE_FORWARD));
    return hkt_slots_take(p);
}

int hkt_pipeline_destroy(hkt_pipeline_t *p)
{
    if (!p)
        return HKT_OK;
    hkt_links_close(p); /* before the memory: the streams finish what they have */
    hkt_slots_give(p);
    hkt_placed_free(&p->evaluation, p->ledger);
    hkt_placed_free(&p->training, p->ledger);
    (void)hkt_ledger_give(p->shapes, p->ledger);
    return hkt_ledger_give(p, p->ledger);
}

static int fill_in(struct hkt_pipeline *p, const hkt_pipeline_shape_t *shape, const hkt_pipeline_message_t *message)
{
    p->shape   = *shape;
    p->message = *message;
    p->most    = (size_t)hkt_shape_count(message->shape, SIZE_MAX / 64);
    return prepare_all(p);
}

int hkt_pipeline_create(hkt_pipeline_t **pipeline, hkt_comm_t *comm, const hkt_pipeline_shape_t *shape,
                        const hkt_pipeline_message_t *message, hkt_ledger_t *ledger)
{
    struct hkt_pipeline *p            = NULL;
    char                 request[256] = "nothing that can be";
    void                *memory       = NULL;
    int                  size, rc;

    if (!pipeline)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_pipeline_create: pipeline is NULL");
    TRY(hkt_comm_size(comm, &size));
    rc = check(shape, message, size);
    if (!rc)
        rc = hkt_ledger_take(&memory, sizeof(*p), HKT_BYTES_OTHER, false, ledger);
    if (!rc) {
        p         = memory;
        p->comm   = comm;
        p->ledger = ledger;
        print_request(request, sizeof(request), shape, message);
        rc = fill_in(p, shape, message);
    }
    rc = hkt_agree(comm, rc, "hkt_pipeline_create", request);
    if (!rc)
        rc = hkt_links_open(p);
    if (rc) {
        (void)hkt_pipeline_destroy(p);
        return rc;
    }
    *pipeline = p;
    return HKT_OK;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

int hkt_pipeline_share(double *values, size_t count, hkt_pipeline_t *p)
{
    if (!p)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_pipeline_share: pipeline is NULL");
    return hkt_broadcast(values, values, count, HKT_FLOAT64, p->shape.stages - 1, p->comm, NULL);
}

static int sent(hkt_traffic_t *traffic, const struct hkt_pipeline *p, hkt_action_t action)
{
    const struct hkt_pipeline_link *link = &p->link[action - HKT_DO_SEND_FORWARD];

    *traffic = (hkt_traffic_t){0};
    return link->comm ? hkt_comm_traffic(link->comm, "send", traffic) : HKT_OK;
}

int hkt_pipeline_traffic(hkt_traffic_t *forward, hkt_traffic_t *backward, const hkt_pipeline_t *p)
{
    hkt_traffic_t f, b;

    if (!forward || !backward || !p)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_pipeline_traffic: %s is NULL",
                             !forward ? "forward"
                             : p      ? "backward"
                                      : "pipeline");
    TRY(sent(&f, p, HKT_DO_SEND_FORWARD));
    TRY(sent(&b, p, HKT_DO_SEND_BACKWARD));
    *forward  = f;
    *backward = b;
    return HKT_OK;
}

int hkt_pipeline_trace(hkt_pipeline_trace_t *trace, const hkt_pipeline_t *p)
{
    if (!trace || !p)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_pipeline_trace: %s is NULL", trace ? "pipeline" : "trace");
    *trace = (hkt_pipeline_trace_t){.busy = p->busy, .total = p->total};
    if (p->last) {
        trace->marks = p->last->marks;
        trace->n     = p->last->n;
    }
    return HKT_OK;
}
