/* stream.h -- what the rest of the face asks of streams. */
#ifndef HKT_STREAM_H
#define HKT_STREAM_H

#include "face/submit.h"

/* Puts n calls, which run together, at the end of the stream. Takes over their arrays. */
int hkt_stream_calls(hkt_stream_t *stream, const struct hkt_pending *calls, size_t n);

#endif
