/* buckets.c -- see buckets.h. */
#include "buckets.h"

#include "clock.h"
#include "stop.h"

#include <math.h>
#include <stdlib.h>

static void cut(struct buckets *b, const struct model *model, size_t floats)
{
    size_t end = model->parameters;

    for (int i = model->tensors - 1; i >= 0; i--) {
        const size_t first = model->tensor[i].offset;

        if (end - first < floats && i > 0)
            continue;
        b->bucket[b->count++] = (struct bucket){first, end - first, NULL};
        end                   = first;
    }
}

void buckets_begin(struct buckets *b, const struct model *model, hkt_comm_t *comm, size_t bytes, bool overlap)
{
    *b = (struct buckets){.comm = comm, .gradient = model->gradient, .overlap = overlap};
    need(hkt_comm_size(comm, &b->ranks), "reading the number of ranks");
    b->bucket = calloc((size_t)model->tensors, sizeof(*b->bucket));
    if (!b->bucket)
        stop("out of memory for %d buckets", model->tensors);
    cut(b, model, bytes / sizeof(float));
    if (b->ranks == 1)
        return; /* nothing will be launched */
    need(hkt_stream_create(&b->stream), "making the stream of the gradients");
    for (int i = 0; i < b->count; i++)
        need(hkt_event_create(&b->bucket[i].averaged), "making an event");
    watch_begin(&b->watch, b->count);
}

void buckets_end(struct buckets *b)
{
    if (b->ranks > 1) {
        watch_end(&b->watch);
        need(hkt_stream_destroy(b->stream), "ending the stream of the gradients");
        for (int i = 0; i < b->count; i++)
            need(hkt_event_destroy(b->bucket[i].averaged), "ending an event");
    }
    free(b->bucket);
}

static void launch(struct buckets *b)
{
    struct bucket *next  = &b->bucket[b->launched++];
    float         *run   = b->gradient + next->first;
    const double   start = clock_seconds();

    need(hkt_all_reduce(run, run, next->count, HKT_FLOAT32, HKT_AVG, b->comm, b->stream), "averaging the gradients");
    need(hkt_event_record(next->averaged, b->stream), "recording an event");
    watch_post(&b->watch, next->averaged, start);
}

void buckets_ready(void *arg, size_t offset)
{
    struct buckets *b = arg;

    if (b->ranks == 1 || (!b->overlap && offset > 0))
        return;
    while (b->launched < b->count && b->bucket[b->launched].first >= offset)
        launch(b);
}

double buckets_wait(struct buckets *b, double *loss)
{
    double squares = 0, start;

    for (int i = 0; i < b->count; i++) {
        const struct bucket *bucket = &b->bucket[i];

        start = clock_seconds();
        if (b->ranks > 1)
            need(hkt_event_synchronize(bucket->averaged), "waiting for the gradients");
        b->waited += clock_seconds() - start;
        squares += kernels->sum_of_squares(b->gradient + bucket->first, bucket->count);
    }
    if (b->ranks > 1) {
        start = clock_seconds();
        need(hkt_stream_synchronize(b->stream), "averaging the gradients"); /* reports an error of the all-reduces */
        need(hkt_all_reduce(loss, loss, 1, HKT_FLOAT64, HKT_AVG, b->comm, NULL), "averaging the loss");
        b->in_flight += watch_settle(&b->watch);
        b->in_flight += clock_seconds() - start; /* the loss is communication, too */
        b->waited += clock_seconds() - start;
    }
    b->launched = 0;
    return sqrt(squares);
}
