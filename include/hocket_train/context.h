/* context.h -- attention over sequences that are split over ranks. A part of hocket_train.h, whose conventions hold. */
#ifndef HOCKET_TRAIN_CONTEXT_H
#define HOCKET_TRAIN_CONTEXT_H

#include <hocket.h>
#include <hocket_train/ledger.h>

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sequences of length T, split by position over the n ranks of a group. A sequence is cut in 2 n chunks, of which rank r has r
 * and 2 n - 1 - r, in this order: under a causal mask all ranks then have the same work (one rank: the whole, uncut). Everything
 * but attention sees one position at a time and runs on own rows as it is. In attention queries stay, and keys and values go
 * round the ring of ranks, beside the attention to those at hand (Liu et al. 2023, Ring Attention; the cut is Megatron-LM's).
 *
 * The attention of a block of queries to a block of keys is the caller's; what it gives for several blocks of keys is merged
 * here, in fp32 and in one order: own keys first, then those of rank r - 1, r - 2 and so on. So results depend on n, but not on
 * timing. Nothing of T x T is ever kept. */

/* The place in the sequence of row `row` of the T / n that rank `rank` has. Pure. */
HKT_API size_t hkt_context_place(size_t row, size_t length, int rank, int n);

/* Rows of B sequences, with heads of D floats each. Queries and all that is theirs come in groups that share a head of keys:
 * float d of head h in row i of sequence b is data[b * sequence + i * row + h / m * group + h % m * head + d], m = heads /
 * key_heads; dense heads have group = m * head. Keys and values: data[b * sequence + i * row + h * group + d]. */
typedef struct { float *data; size_t sequence, row, group, head; } hkt_heads_t;

/* Queries and the keys that they look at. Views are the caller's memory. */
typedef struct {
    size_t batch, size;            /* B, D */
    size_t heads, key_heads;       /* of queries; of keys and values: query head h looks at key head h / (heads / key_heads) */
    size_t queries, keys;          /* rows of a sequence */
    size_t first_query, first_key; /* place of the first one in the whole sequence; the others follow it */
    size_t own_query;              /* number of the first query among the rows that this rank has of a sequence */
    hkt_heads_t query, key, value;
    hkt_heads_t out;               /* of the queries: softmax(scores) values, 0 where a query sees none of the keys */
    hkt_heads_t log_sum;           /* of the queries, a number each (D = 1, row = 1): log of the sum of e^score; or -INFINITY */
} hkt_attention_t;

/* What comes back: the gradient of out, and where those of queries, keys and values are to be added. */
typedef struct { hkt_heads_t dout, dquery, dkey, dvalue; } hkt_attention_gradient_t;

/* The same queries' out and log_sum from keys that `into` has not seen, joined to it: what both together would have given.
 * Shapes are those of `into`. Pure, any thread. */
HKT_API void hkt_attention_merge(const hkt_attention_t *into, const hkt_heads_t *out, const hkt_heads_t *log_sum);

typedef struct hkt_context hkt_context_t;

typedef struct {
    size_t      size;    /* sizeof(hkt_context_config_t), set by HKT_CONTEXT_CONFIG_INIT */
    hkt_comm_t *comm;    /* NULL: one rank. The handle's alone while one of its calls is under way */
    bool        causal;  /* blocks of keys that lie behind all the queries are left out */
    bool        overlap; /* keys and values travel on a stream, beside the callbacks */

    /* One block: writes out and log_sum. A query sees keys up to its own place (if causal), and fewer if the caller's own mask
     * says so. Returns HKT_OK or an error, which is passed on. `arg` is that of the call. */
    int (*forward)(const hkt_attention_t *block, void *arg);
    /* out and log_sum are now those of all keys, not of the block's: a chance is e^(score - log_sum). Adds to the gradients. */
    int (*backward)(const hkt_attention_gradient_t *gradient, const hkt_attention_t *block, void *arg);
    hkt_ledger_t *ledger; /* HKT_BYTES_COMMUNICATION; NULL: uncounted */
} hkt_context_config_t;
#define HKT_CONTEXT_CONFIG_INIT { sizeof(hkt_context_config_t), NULL, true, true, NULL, NULL, NULL }

/* Not collective. Memory is taken by the first call that needs it, and more by a larger one; with n > 1 and
 * K = 2 B (T / n) key_heads D floats, forward takes 2 K + B (T / 2n) heads (D + 1), backward 3 K beside that. */
HKT_API int hkt_context_create(hkt_context_t **context, const hkt_context_config_t *config);
HKT_API int hkt_context_destroy(hkt_context_t *context); /* NULL is allowed */

/* Attention of own rows to the whole sequence. `own` describes own rows (queries = keys = T / n, even if n > 1; first_* and
 * own_query are not read): query, key, value are read, out and log_sum written. Collective, with the same shapes on all ranks. A
 * rank sends (n - 1) K floats. After an error the communicator is of no more use. */
HKT_API int hkt_context_forward(const hkt_attention_t *own, void *arg, hkt_context_t *context);

/* The gradients of own queries, keys and values, added to what stands there, from dout and what forward left in `own`.
 * Collective. A rank sends 2 (n - 1) K floats. */
HKT_API int hkt_context_backward(const hkt_attention_gradient_t *gradient, const hkt_attention_t *own, void *arg,
                                 hkt_context_t *context);

#ifdef __cplusplus
}
#endif
#endif /* HOCKET_TRAIN_CONTEXT_H */
