/* stream.h -- what the rest of the face asks of streams, and what the two kinds of stream share: the items that a stream's thread runs. */
#ifndef HKT_STREAM_H
#define HKT_STREAM_H

#include "face/submit.h"

/* Puts n calls, which run together, at the end of the stream. Takes over their arrays. */
int hkt_stream_calls(hkt_stream_t *stream, const struct hkt_pending *calls, size_t n);

/* Takes the call's ticket; none when the stream's GPUs will run it. */
void hkt_stream_ticket(struct hkt_pending *p);

/* Calls that cannot be: their turns pass, their arrays are freed. */
void hkt_stream_skip(const struct hkt_pending *calls, size_t n);

/* ---- between stream.c and stream_cuda.c ---- */

enum hkt_stream_kind { HKT_STREAM_CALL, HKT_STREAM_BUNDLE, HKT_STREAM_FUNCTION, HKT_STREAM_RECORD, HKT_STREAM_WAIT, HKT_STREAM_STOP };

struct hkt_stream_item {
    enum hkt_stream_kind kind;
    struct hkt_pending   call;
    struct hkt_pending  *bundle;
    size_t               n;
    int (*function)(void *arg);
    void               *arg;
    hkt_event_t        *event;
    uint64_t            value;
    bool                kept;  /* the bundle is somebody else's */
    void (*after)(void *arg);  /* called when it has run; NULL: nobody */
    void *after_arg;
};

/* Gives the stream's thread an item. Any thread; waits while 256 are ahead. */
void hkt_stream_hand(hkt_stream_t *stream, const struct hkt_stream_item *item);

struct hkt_cuda_line;

/* A CUDA stream on which items take their turn: each waits for what is before it there, and what comes after waits for it. `cuda` is a CUstream. */
int  hkt_cuda_line_open(struct hkt_cuda_line **line, hkt_stream_t *stream, void *cuda);
int  hkt_cuda_line_close(struct hkt_cuda_line *line); /* finishes its work first; where it cannot, all stays and this says why */
int  hkt_cuda_line_put(struct hkt_cuda_line *line, const struct hkt_stream_item *item);
int  hkt_cuda_line_calls(struct hkt_cuda_line *line, const struct hkt_pending *calls, size_t n);
int  hkt_cuda_line_synchronize(struct hkt_cuda_line *line);
int  hkt_cuda_line_query(struct hkt_cuda_line *line); /* HKT_OK, HKT_IN_PROGRESS or an error */

#endif
