/* state_codec.c -- the part of a checkpoint that belongs to ranks and not to the model: what the codec of the gradients
 * keeps (--codec). One piece a rank, named after it. The same layout goes on with the same bits; another one has no use
 * for it and begins without errors, as a run does: that costs the few steps in which they settle, and is said.
 */
#include "state.h"

#include "stop.h"

#include <stdio.h>
#include <string.h>

void state_codec_begin(struct state *s)
{
    const struct engine *e = s->engine;
    size_t               bytes;

    need(hkt_buckets_state_size(&bytes, hkt_zero_buckets(e->zero)), "listing what is to be saved");
    snprintf(s->codec_name, sizeof(s->codec_name), "codec.rank-%05d", e->rank);
    s->codec = (hkt_piece_t){.name  = s->codec_name,
                             .kind  = HKT_PIECE_EXTRA,
                             .type  = HKT_UINT8,
                             .dims  = 1,
                             .shape = {bytes ? bytes : 1},
                             .count = bytes};
}

static void take(struct state *s)
{
    need(hkt_ledger_take(&s->codec.data, s->codec.count, HKT_BYTES_OTHER, false, s->engine->ledger), "a checkpoint");
}

void state_codec_fetch(struct state *s)
{
    if (!s->codec.count)
        return;
    take(s);
    need(hkt_buckets_save(s->codec.data, hkt_zero_buckets(s->engine->zero)), "saving the codec's errors");
}

void state_codec_drop(struct state *s)
{
    need(hkt_ledger_give(s->codec.data, s->engine->ledger), "a checkpoint");
    s->codec.data = NULL;
}

/* Whether the checkpoint has the state of this rank, in the size that it has here. */
static bool is_there(const struct state *s, const hkt_checkpoint_t *c)
{
    hkt_checkpoint_info_t info;
    hkt_piece_t           piece;

    need(hkt_checkpoint_info(&info, c), "--load");
    for (size_t i = 0; i < info.pieces; i++) {
        need(hkt_checkpoint_piece(&piece, i, c), "--load");
        if (piece.kind == HKT_PIECE_EXTRA && strcmp(piece.name, s->codec.name) == 0)
            return piece.type == s->codec.type && piece.dims == 1 && piece.shape[0] == s->codec.shape[0];
    }
    return false;
}

const char *state_codec_load(struct state *s, hkt_checkpoint_t *c)
{
    struct engine *e    = s->engine;
    hkt_buckets_t *b    = hkt_zero_buckets(e->zero);
    int32_t        fits = is_there(s, c);

    if (!e->settings->codec || !e->dp_cp)
        return NULL;
    if (fits) {
        take(s);
        need(hkt_checkpoint_read(&s->codec, 1, c), "--load");
        fits = hkt_buckets_load(b, s->codec.data, s->codec.count) == HKT_OK;
        state_codec_drop(s);
    }
    need(hkt_all_reduce(&fits, &fits, 1, HKT_INT32, HKT_MIN, e->world, NULL), "comparing the ranks");
    if (fits)
        return NULL;
    need(hkt_buckets_reset(b), "--load"); /* of some ranks only they would be no sum's errors */
    return "the checkpoint has no errors of this codec in this layout: they begin at zero";
}
