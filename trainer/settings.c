/* settings.c -- see settings.h; parsing and --help are those of the tools. */
#include "settings.h"

#include "stop.h"
#include "tools/flags.h"

enum {
    MICRO_BATCH = 4, /* sequences that are enough for matrix products to run at speed */
    TOKENS_MAX  = 1 << 24
};

void settings_parse(struct settings *s, int argc, char **argv)
{
    *s = (struct settings){
#define SETTINGS_DEFAULT(kind, type, field, flag, initial, ...) .field = initial,
        SETTINGS(SETTINGS_DEFAULT)
#undef SETTINGS_DEFAULT
    };
    const struct flag rows[] = {
#define SETTINGS_ROW(kind, type, field, flag, initial, min, max, unit, doc)                                            \
    {0, flag, FLAG_##kind, &s->field, min, max, unit, doc},
        SETTINGS(SETTINGS_ROW)
#undef SETTINGS_ROW
    };
    const struct flags flags = {
        .tool  = "hkt-train",
        .usage = "[--flag value ...]        on several ranks: hkt-run -n 2 hkt-train ...",
        .about = "Trains a byte-level GPT on text, data-parallel over the ranks, and ends with a report and a sample.",
        .row   = rows,
        .count = sizeof(rows) / sizeof(rows[0]),
    };
    const int first = flags_parse(&flags, argc, argv);

    if (first < argc)
        flags_fail(&flags, "%s: hkt-train takes flags only", argv[first]);
    if (s->width % s->heads)
        flags_fail(&flags, "--hidden-size %ld is not a multiple of --num-attention-heads %ld", s->width, s->heads);
    if (s->least_rate > s->rate)
        flags_fail(&flags, "--min-lr %g is above --lr %g", s->least_rate, s->rate);
    if (!s->prompt[0])
        flags_fail(&flags, "--prompt needs at least one byte");
    if (!s->mlp)
        s->mlp = 4 * s->width;
}

int settings_share(struct settings *s, int ranks)
{
    const long share = s->global_batch / ranks, wanted = s->micro_batch ? s->micro_batch : 1;

    if (s->global_batch % (wanted * ranks))
        stop("--global-batch-size %ld cannot be shared by %d ranks in micro-batches of %ld: it must be a multiple of "
             "%ld, such as %ld",
             s->global_batch, ranks, wanted, wanted * ranks, (share / wanted + 1) * wanted * ranks);
    for (long size = MICRO_BATCH; !s->micro_batch; size--)
        if (share % size == 0)
            s->micro_batch = size;
    if (s->micro_batch * s->length > TOKENS_MAX)
        stop("--micro-batch-size %ld times --seq-length %ld is more than %d tokens in one pass", s->micro_batch,
             s->length, TOKENS_MAX);
    return (int)(share / s->micro_batch);
}
