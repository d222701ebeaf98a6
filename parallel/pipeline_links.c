/* pipeline_links.c -- the wires of a pipeline: for every pair of neighbours and direction a communicator of two.
 *
 * Edge e goes from stage e to stage e + 1, and from the last to the first where there are chunks. Splits make many
 * pairs at once if no stage is in two of them: even edges, odd edges, and the edge back where the stages are odd in
 * number. With two stages edge 0 and edge 1 join the same two, in different communicators; so both directions never get
 * in each other's way. */
#include <parallel/pipeline_run.h>

enum { CLASSES = 3 };

static int edges(const hkt_pipeline_shape_t *s)
{
    return s->stages == 1 ? 0 : s->stages - 1 + (s->chunks > 1);
}

static int class_of(const hkt_pipeline_shape_t *s, int edge)
{
    return edge == s->stages - 1 && s->stages % 2 ? 2 : edge % 2;
}

/* The edge of a class that this stage is on, or -1; `tail`: it begins here. */
static int my_edge(const struct hkt_pipeline *p, int class, bool *tail)
{
    const int to = p->stage, from = (p->stage + p->shape.stages - 1) % p->shape.stages, n = edges(&p->shape);

    *tail = true;
    if (to < n && class_of(&p->shape, to) == class)
        return to;
    *tail = false;
    return from < n && class_of(&p->shape, from) == class ? from : -1;
}

static bool has_class(const hkt_pipeline_shape_t *s, int class)
{
    for (int e = 0; e < edges(s); e++)
        if (class_of(s, e) == class)
            return true;
    return false;
}

/* One split: this stage's communicator, if it is on an edge of the class. */
static int open_class(struct hkt_pipeline *p, int class, bool forward)
{
    bool                      tail;
    const int                 edge   = my_edge(p, class, &tail);
    const hkt_action_t        action = forward ? (tail ? HKT_DO_SEND_FORWARD : HKT_DO_RECV_FORWARD)
                                               : (tail ? HKT_DO_RECV_BACKWARD : HKT_DO_SEND_BACKWARD);
    struct hkt_pipeline_link *link   = &p->link[action - HKT_DO_SEND_FORWARD];
    hkt_comm_t               *made   = NULL;

    TRY(hkt_comm_split(&made, p->comm, edge, tail ? 0 : 1, NULL));
    if (edge < 0)
        return HKT_OK;
    link->comm = made;
    link->peer = tail ? 1 : 0;
    return hkt_stream_create(&link->stream);
}

int hkt_links_open(struct hkt_pipeline *p)
{
    for (int class = 0; class < CLASSES; class ++) {
        if (!has_class(&p->shape, class))
            continue;
        TRY(open_class(p, class, true));
        if (p->shape.kind != HKT_PIPELINE_FORWARD)
            TRY(open_class(p, class, false));
    }
    return HKT_OK;
}

void hkt_links_abort(struct hkt_pipeline *p)
{
    for (int k = 0; k < HKT_MESSAGES; k++)
        if (p->link[k].comm)
            (void)hkt_comm_abort(p->link[k].comm);
}

void hkt_links_close(struct hkt_pipeline *p)
{
    for (int k = 0; k < HKT_MESSAGES; k++) {
        (void)hkt_stream_destroy(p->link[k].stream);
        (void)hkt_comm_destroy(p->link[k].comm);
    }
}
