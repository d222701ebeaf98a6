/* state.c -- see state.h. Optimizer state is read and written in place where it lies in memory, else through a copy. */
#include "state.h"

#include "stop.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const hkt_piece_kind_t kind_of[HKT_ZERO_KINDS] = {HKT_PIECE_MASTER, HKT_PIECE_MOMENT1, HKT_PIECE_MOMENT2};

static const struct gpt_tensor *tensor_of(const struct engine *e, int parameter)
{
    int i = 0;

    while (parameter >= e->part[i].first + e->part[i].count)
        i++;
    return &e->part[i].tensor[parameter - e->part[i].first];
}

/* Elements first .. first + count of what this rank has of a tensor, in the tensor's own coordinates. */
static hkt_piece_t piece_of(const struct gpt_tensor *t, const hkt_zero_piece_t *held, int kind)
{
    hkt_piece_t p = {.name  = t->name,
                     .kind  = kind_of[kind],
                     .type  = HKT_FLOAT32,
                     .dims  = t->rows == 1 ? 1 : 2,
                     .shape = {(size_t)t->rows, (size_t)t->cols},
                     .first = held->first,
                     .count = held->count,
                     .data  = held->data[kind]};

    if (t->rows == 1)
        p.shape[0] = (size_t)t->cols, p.shape[1] = 0;
    if (t->own_cols < t->cols) {
        p.begin  = (size_t)t->first_col;
        p.run    = (size_t)(t->own_cols / t->blocks);
        p.stride = (size_t)(t->cols / t->blocks);
    } else {
        p.begin = (size_t)t->first_row * (size_t)t->cols;
        if (t->blocks > 1 && t->own_rows < t->rows) {
            p.run    = (size_t)(t->own_rows / t->blocks) * (size_t)t->cols;
            p.stride = (size_t)(t->rows / t->blocks) * (size_t)t->cols;
        }
    }
    if (t->rows == 1 && t->blocks == 1) /* a run of a vector */
        p.run = p.stride = 0;
    return p;
}

void state_begin(struct state *s, struct engine *e)
{
    hkt_zero_piece_t held;
    int              n = 0;

    *s = (struct state){.engine = e};
    while (hkt_zero_piece(&held, n, e->zero) == HKT_OK)
        n++;
    s->piece = calloc((size_t)n * HKT_ZERO_KINDS + 1, sizeof(*s->piece));
    if (!s->piece)
        stop("out of memory for the list of %d pieces", n);
    for (int i = 0; i < n; i++) {
        need(hkt_zero_piece(&held, i, e->zero), "listing what is to be saved");
        for (int kind = 0; kind < HKT_ZERO_KINDS; kind++)
            s->piece[s->count++] = piece_of(tensor_of(e, held.parameter), &held, kind);
    }
    state_codec_begin(s);
    if (e->settings->save && e->settings->async)
        need(hkt_saver_create(&s->saver, e->world, e->settings->save, (int)e->settings->keep, e->ledger),
             "--async-save");
}

void state_end(struct state *s)
{
    need(hkt_saver_destroy(s->saver), "saving the last checkpoint");
    free(s->piece);
}

/* ---- pieces that lie elsewhere */

static bool elsewhere(const struct engine *e)
{
    return e->settings->tier == 2;
}

/* Gives every piece memory with what it stands for, or takes it back into the optimizer, or only frees it. */
enum { FETCH, STORE, DROP };
static void move(struct state *s, int how)
{
    struct engine   *e = s->engine;
    hkt_zero_piece_t held;
    void            *memory;

    for (size_t i = 0; elsewhere(e) && i < s->count; i++) {
        hkt_piece_t          *p    = &s->piece[i];
        const hkt_zero_kind_t kind = (hkt_zero_kind_t)(i % HKT_ZERO_KINDS);

        need(hkt_zero_piece(&held, (int)(i / HKT_ZERO_KINDS), e->zero), "moving state");
        if (how == FETCH) {
            need(hkt_ledger_take(&memory, held.count * sizeof(float), HKT_BYTES_OTHER, false, e->ledger),
                 "a checkpoint");
            p->data = memory;
            need(hkt_zero_get(p->data, held.parameter, kind, held.first, held.count, e->zero), "reading the state");
            continue;
        }
        if (how == STORE)
            need(hkt_zero_put(e->zero, held.parameter, kind, held.first, held.count, p->data), "storing the state");
        need(hkt_ledger_give(p->data, e->ledger), "a checkpoint");
        p->data = NULL;
    }
}

/* ---- what is no tensor */

enum { TEXTS = 24, TEXT = 48 };

struct facts {
    hkt_metadata_t datum[TEXTS];
    char           text[TEXTS][TEXT];
    size_t         count;
};

__attribute__((format(printf, 3, 4))) static void fact(struct facts *f, const char *key, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(f->text[f->count], TEXT, format, arguments);
    va_end(arguments);
    f->datum[f->count] = (hkt_metadata_t){key, f->text[f->count]};
    f->count++;
}

static void gather_facts(struct facts *f, const struct engine *e, const struct progress *p)
{
    const struct settings *s = e->settings;
    hkt_zero_info_t        info;
    hkt_scaler_state_t     scale = {0};

    need(hkt_zero_info(&info, e->zero), "reading the optimizer");
    if (e->scaler)
        need(hkt_scaler_get(&scale, e->scaler), "reading the loss scaler");
    f->count = 0;
    fact(f, "num-attention-heads", "%ld", s->heads);
    fact(f, "vocab-size", "%d", e->shape.vocabulary);
    fact(f, "position-embedding-type", "%d", s->positions);
    fact(f, "num-query-groups", "%d", e->shape.groups);
    fact(f, "swiglu", "%d", e->shape.gated);
    fact(f, "normalization", "%d", e->shape.rms);
    fact(f, "disable-bias-linear", "%d", e->shape.unbiased);
    fact(f, "seed", "%ld", s->seed);
    fact(f, "iteration", "%ld", p->step);
    fact(f, "consumed-samples", "%" PRIu64, p->consumed);
    fact(f, "optimizer-steps", "%" PRIu64, info.steps);
    if (e->scaler) {
        fact(f, "loss-scale", "%a", scale.scale);
        fact(f, "scaler", "%d %d %d %" PRIu64, scale.growth, scale.hysteresis, scale.stuck, scale.skipped);
    }
}

void state_save(struct state *s, const struct progress *p)
{
    struct engine *e     = s->engine;
    const size_t   count = s->count + 1;
    struct facts   facts;

    gather_facts(&facts, e, p);
    need(hkt_zero_synchronize(e->zero), "waiting for the weights");
    move(s, FETCH);
    state_codec_fetch(s);
    s->piece[s->count] = s->codec;
    if (s->saver)
        need(hkt_saver_begin(s->saver, p->step, s->piece, count, facts.datum, facts.count), "saving a checkpoint");
    else
        need(hkt_checkpoint_save(e->world, e->settings->save, p->step, (int)e->settings->keep, s->piece, count,
                                 facts.datum, facts.count),
             "saving a checkpoint");
    state_codec_drop(s);
    move(s, DROP);
}

/* ---- loading */

static uint64_t number(const hkt_checkpoint_t *c, const char *key, uint64_t otherwise)
{
    const char *value = hkt_checkpoint_value(c, key);

    return value ? strtoull(value, NULL, 10) : otherwise;
}

/* A token table has its true rows only in a model that was imported; the padding keeps its zeros. */
static hkt_piece_t without_padding(const hkt_piece_t *piece, const struct engine *e)
{
    const size_t words = (size_t)e->shape.vocabulary, end = words * piece->shape[1], from = piece->begin + piece->first;
    hkt_piece_t  p = *piece;

    if (strcmp(p.name, "wte.weight") != 0 && strcmp(p.name, "lm_head.weight") != 0)
        return p;
    p.shape[0] = words;
    p.count    = from >= end ? 0 : p.count < end - from ? p.count : end - from;
    return p;
}

/* Such a model has weights only; moments stay zero. */
static void read_weights(struct state *s, hkt_checkpoint_t *c)
{
    for (size_t i = 0; i < s->count; i += HKT_ZERO_KINDS) {
        hkt_piece_t p = without_padding(&s->piece[i], s->engine);

        p.kind = HKT_PIECE_WEIGHT;
        if (p.count > 0)
            need(hkt_checkpoint_read(&p, 1, c), "loading weights");
    }
}

static void load_scaler(struct engine *e, const hkt_checkpoint_t *c)
{
    const char        *scale = hkt_checkpoint_value(c, "loss-scale"), *rest = hkt_checkpoint_value(c, "scaler");
    hkt_scaler_state_t state = {0};

    if (!e->scaler || !scale || !rest)
        return;
    state.scale = strtod(scale, NULL);
    if (sscanf(rest, "%d %d %d %" SCNu64, &state.growth, &state.hysteresis, &state.stuck, &state.skipped) != 4)
        stop("the checkpoint's loss scaler is \"%s\"; four numbers are expected", rest);
    need(hkt_scaler_set(e->scaler, &state), "loading the loss scaler");
}

/* What makes other numbers of the same tensors. A checkpoint that does not say has what GPT-2 has. */
static void check_model(const struct engine *e, const hkt_checkpoint_t *c)
{
    const struct gpt_shape *m = &e->shape;
    const struct {
        const char *key;
        int         here, otherwise;
    } fact[] = {{"num-attention-heads", m->heads, m->heads},
                {"num-query-groups", m->groups, m->heads},
                {"vocab-size", m->vocabulary, m->vocabulary},
                {"swiglu", m->gated, 0},
                {"normalization", m->rms, 0},
                {"disable-bias-linear", m->unbiased, 0}};

    for (size_t i = 0; i < sizeof(fact) / sizeof(fact[0]); i++) {
        const uint64_t saved = number(c, fact[i].key, (uint64_t)fact[i].otherwise);

        if (saved != (uint64_t)fact[i].here)
            stop("the checkpoint's %s is %" PRIu64 ", that of this run %d", fact[i].key, saved, fact[i].here);
    }
}

/* Whether anything was ever saved there. */
static bool anything_in(const char *folder)
{
    DIR           *directory = opendir(folder);
    struct dirent *entry;
    bool           found = false;

    while (directory && !found && (entry = readdir(directory)))
        found = strncmp(entry->d_name, "step-", 5) == 0;
    if (directory)
        closedir(directory);
    return found;
}

bool state_load(struct progress *p, struct state *s)
{
    struct engine         *e = s->engine;
    const struct settings *o = e->settings;
    hkt_checkpoint_t      *c;
    hkt_checkpoint_info_t  info;
    const char            *codec;

    if (!o->load || (!o->generate && o->load_step < 0 && !anything_in(o->load)))
        return false;
    need(hkt_checkpoint_open(&c, o->load, o->load_step, e->world), "--load");
    need(hkt_checkpoint_info(&info, c), "--load");
    check_model(e, c);
    move(s, FETCH);
    if (hkt_checkpoint_value(c, "optimizer-steps"))
        need(hkt_checkpoint_read(s->piece, s->count, c), "--load");
    else
        read_weights(s, c);
    move(s, STORE);
    need(hkt_zero_set_steps(e->zero, number(c, "optimizer-steps", 0)), "--load");
    need(hkt_zero_loaded(e->zero), "--load");
    memset(e->fresh, 0, (size_t)e->parameters * sizeof(*e->fresh));
    load_scaler(e, c);
    codec = state_codec_load(s, c);
    *p    = (struct progress){(long)number(c, "iteration", 0), number(c, "consumed-samples", 0)};
    if (engine_speaks(e))
        printf("loaded    %s: step %" PRId64 ", saved by %d ranks%s%s\n", info.path, info.step, info.ranks,
               info.note[0] ? "; " : "", info.note);
    if (engine_speaks(e) && codec)
        printf("codec     %s\n", codec);
    need(hkt_checkpoint_close(c), "--load");
    return true;
}
