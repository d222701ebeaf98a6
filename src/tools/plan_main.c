/* plan_main.c -- hkt-plan: flags, the search, and what is shown of it. */
#include "plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Words that say "as it is" or "try all" stand first; see word(). */
#define ANY_WORDS(words) "any|" words

static struct {
    const char               *model, *json, *svg, *sweep;
    struct plan_machine_flags machine;
    long                      layers, hidden, heads, kv_heads, ffn, vocabulary, sequence, positions;
    int                       tied, gated, biased, embedding_norm, dropout, blocked, bytes; /* words */
    long                      world, batch, tp, cp, pp, dp, chunks, head_layers, zero, micro_batch, shown;
    int                       schedule, recompute, sequence_parallel, offload; /* words */
    bool                      tp_anywhere, zero_anywhere, no_overlap, all, list, write_machine, no_trial;
} asked = {.model       = "gpt2-124m",
           .machine     = {.name = "a100-80g-dgx"},
           .positions   = -1,
           .world       = 8,
           .batch       = 512,
           .zero        = -1,
           .head_layers = -1,
           .shown       = 10};

#define MODEL_WORDS(words) "model|" words

static const struct flag rows[] = {
    {'m', "model", FLAG_TEXT, &asked.model, 0, 0, "NAME", "A preset (--list has them); the flags below change it."},
    {'n', "world-size", FLAG_INTEGER, &asked.world, 1, 1 << 20, "N", "Devices."},
    {'b', "global-batch-size", FLAG_INTEGER, &asked.batch, 1, 1 << 24, "N", "Sequences of a step."},
    {0, "num-layers", FLAG_INTEGER, &asked.layers, 1, 1 << 16, "N", "Transformer layers."},
    {0, "hidden-size", FLAG_INTEGER, &asked.hidden, 1, 1 << 24, "N",
     "Width; the MLP becomes 4 times as wide unless it is given."},
    {0, "num-attention-heads", FLAG_INTEGER, &asked.heads, 1, 1 << 24, "N", "Heads, also of keys and values."},
    {0, "num-query-groups", FLAG_INTEGER, &asked.kv_heads, 1, 1 << 24, "N", "Heads of keys and values."},
    {0, "ffn-hidden-size", FLAG_INTEGER, &asked.ffn, 1, 1 << 24, "N", "Inner width of the MLP."},
    {0, "vocab-size", FLAG_INTEGER, &asked.vocabulary, 1, 1 << 24, "N", "Tokens."},
    {0, "seq-length", FLAG_INTEGER, &asked.sequence, 1, 1 << 24, "N", "Tokens of a sequence."},
    {0, "max-position-embeddings", FLAG_INTEGER, &asked.positions, 0, 1 << 24, "N",
     "Rows of learned positions; 0: rotary or ALiBi."},
    {0, "tied-embeddings", FLAG_WORD, &asked.tied, 0, 0, MODEL_WORDS("off|on"), "The head is the embedding."},
    {0, "swiglu", FLAG_WORD, &asked.gated, 0, 0, MODEL_WORDS("off|on"), "Three matrices in the MLP."},
    {0, "bias", FLAG_WORD, &asked.biased, 0, 0, MODEL_WORDS("off|on"), "Biases in linear layers and norms."},
    {0, "embed-layernorm", FLAG_WORD, &asked.embedding_norm, 0, 0, MODEL_WORDS("off|on"),
     "A norm behind the embedding."},
    {0, "dropout", FLAG_WORD, &asked.dropout, 0, 0, MODEL_WORDS("off|on"), "Masks are kept."},
    {0, "blocked-attention", FLAG_WORD, &asked.blocked, 0, 0, MODEL_WORDS("off|on"),
     "Attention in blocks (flash): nothing of sequence x sequence is kept."},
    {0, "precision", FLAG_WORD, &asked.bytes, 0, 0, "bf16|fp16|fp32",
     "bf16: 2 bytes a weight, 4 a gradient, 12 of state; fp16: 2, 2, 12; fp32: 4, 4, 8."},
    {'M', "machine", FLAG_TEXT, &asked.machine.name, 0, 0, "NAME",
     "A preset (--list), or cpu-this: this computer, measured."},
    {0, "no-trial", FLAG_ON, &asked.no_trial, 0, 0, NULL, "With cpu-this: tries no steps of the model, measures the parts only."},
    {0, "machine-file", FLAG_TEXT, &asked.machine.file, 0, 0, "FILE", "A machine as --write-machine prints it."},
    {0, "memory", FLAG_NUMBER, &asked.machine.memory, 0, 1e9, "GiB",
     "Of a device that a plan may use; 0: the machine's."},
    {0, "peak", FLAG_NUMBER, &asked.machine.peak, 0, 1e9, "TFLOP/S", "Advertised, for MFU; 0: the machine's."},
    {0, "achieved", FLAG_NUMBER, &asked.machine.achieved, 0, 1e9, "TFLOP/S",
     "Of large matrix products; 0: the machine's."},
    {0, "devices-per-node", FLAG_INTEGER, &asked.machine.node, 0, 1 << 20, "N",
     "Joined by the fastest link; 0: the machine's."},
    {0, "link", FLAG_LIST, &asked.machine.link, 0, 0, "NAME:SPAN:GB/s:us",
     "Instead of the machine's links, fastest first; span: devices joined, 0 for the last."},
    {0, "tensor-model-parallel-size", FLAG_INTEGER, &asked.tp, 1, 1 << 20, "N", "Only this TP."},
    {0, "context-parallel-size", FLAG_INTEGER, &asked.cp, 1, 1 << 20, "N", "Only this CP."},
    {0, "pipeline-model-parallel-size", FLAG_INTEGER, &asked.pp, 1, 1 << 20, "N", "Only this PP."},
    {0, "data-parallel-size", FLAG_INTEGER, &asked.dp, 1, 1 << 20, "N", "Only this DP."},
    {0, "schedule", FLAG_WORD, &asked.schedule, 0, 0, ANY_WORDS("gpipe|1f1b|interleaved|zero-bubble"),
     "Only this order of the pipeline; any leaves gpipe out."},
    {0, "virtual-chunks", FLAG_INTEGER, &asked.chunks, 1, 1 << 16, "N", "Only so many chunks of layers on a stage."},
    {0, "head-layers", FLAG_INTEGER, &asked.head_layers, 0, 1 << 16, "N",
     "Only with the head in the place of so many layers of the last stage."},
    {0, "zero", FLAG_INTEGER, &asked.zero, 0, 3, "STAGE", "Only this stage of ZeRO: 0, 1, 2 or 3."},
    {0, "micro-batch-size", FLAG_INTEGER, &asked.micro_batch, 1, 1 << 24, "N",
     "Only micro-batches of so many sequences."},
    {0, "recompute", FLAG_WORD, &asked.recompute, 0, 0, ANY_WORDS("none|selective|full"), "Only this recomputation."},
    {0, "sequence-parallel", FLAG_WORD, &asked.sequence_parallel, 0, 0, ANY_WORDS("off|on"), "Only with or without."},
    {0, "offload", FLAG_WORD, &asked.offload, 0, 0, ANY_WORDS("off|on"),
     "Optimizer state outside the device: only with or without."},
    {0, "force-tp", FLAG_ON, &asked.tp_anywhere, 0, 0, NULL, "Lets tensor parallelism cross slow links."},
    {0, "force-zero", FLAG_ON, &asked.zero_anywhere, 0, 0, NULL, "Lets ZeRO 2 and 3 run under a pipeline."},
    {0, "no-overlap", FLAG_ON, &asked.no_overlap, 0, 0, NULL, "Gradients travel after the computation."},
    {'k', "plans", FLAG_INTEGER, &asked.shown, 1, 1 << 20, "N", "So many plans and reasons are shown."},
    {'a', "all", FLAG_ON, &asked.all, 0, 0, NULL, "Shows every plan and every reason."},
    {0, "sweep-world", FLAG_TEXT, &asked.sweep, 0, 0, "LIST",
     "The best plan for each of these numbers of devices, at the same batch for each: how it scales."},
    {'J', "json", FLAG_TEXT, &asked.json, 0, 0, "FILE", "Writes everything as JSON; - instead of the table."},
    {0, "svg", FLAG_TEXT, &asked.svg, 0, 0, "FILE", "Draws memory by stage and where the time goes."},
    {0, "list", FLAG_ON, &asked.list, 0, 0, NULL, "Lists the presets."},
    {0, "write-machine", FLAG_ON, &asked.write_machine, 0, 0, NULL, "Prints the machine for --machine-file."},
};

static const struct flags flags = {"hkt-plan",
                                   "[flags]     (hkt-plan --model bloom-176b --machine a100-80g-dgx -n 384 -b 2048)",
                                   "Finds the fastest layout of a training run that fits into memory, and says why.",
                                   rows,
                                   sizeof(rows) / sizeof(rows[0]),
                                   false};

/* ---- the job ----------------------------------------------------------------------------------------------------- */

static void set(int *field, long value, long least)
{
    if (value >= least)
        *field = (int)value;
}

static void set_word(bool *field, int word)
{
    if (word > 0)
        *field = word == 2;
}

static void make_model(hkt_plan_model_t *m)
{
    if (hkt_plan_model(m, asked.model))
        flags_fail(&flags, "--model: %s", hkt_last_error());
    if (asked.hidden > 0)
        m->ffn = 4 * (int)asked.hidden;
    if (asked.heads > 0)
        m->kv_heads = (int)asked.heads;
    if (asked.sequence > 0 && m->positions > 0)
        m->positions = (int)asked.sequence;
    set(&m->layers, asked.layers, 1);
    set(&m->hidden, asked.hidden, 1);
    set(&m->heads, asked.heads, 1);
    set(&m->kv_heads, asked.kv_heads, 1);
    set(&m->ffn, asked.ffn, 1);
    set(&m->vocabulary, asked.vocabulary, 1);
    set(&m->sequence, asked.sequence, 1);
    set(&m->positions, asked.positions, 0);
    set_word(&m->tied, asked.tied);
    set_word(&m->gated, asked.gated);
    set_word(&m->biased, asked.biased);
    set_word(&m->embedding_norm, asked.embedding_norm);
    set_word(&m->dropout, asked.dropout);
    set_word(&m->blocked, asked.blocked);
}

static void make_job(hkt_plan_job_t *job)
{
    static const hkt_plan_bytes_t bytes[] = {HKT_PLAN_BF16, HKT_PLAN_FP16, HKT_PLAN_FP32};

    make_model(&job->model);
    plan_machine(&job->machine, &asked.machine, &flags);
    job->bytes        = bytes[asked.bytes];
    job->world        = (int)asked.world;
    job->global_batch = (int)asked.batch;
    job->options = (asked.tp_anywhere ? HKT_PLAN_TP_ANYWHERE : 0) | (asked.zero_anywhere ? HKT_PLAN_ZERO_ANYWHERE : 0) |
                   (asked.no_overlap ? HKT_PLAN_NO_OVERLAP : 0);
    if (!asked.machine.file && !asked.no_trial && strcmp(asked.machine.name, "cpu-this") == 0)
        plan_try(job);
}

static int limit(long value, long least)
{
    return value >= least ? (int)value : HKT_PLAN_ANY;
}

static void make_limits(hkt_plan_layout_t *l)
{
    static const int schedules[] = {HKT_PLAN_ANY, HKT_PIPELINE_GPIPE, HKT_PIPELINE_1F1B, HKT_PIPELINE_INTERLEAVED,
                                    HKT_PIPELINE_ZERO_BUBBLE};

    l->tp                = limit(asked.tp, 1);
    l->cp                = limit(asked.cp, 1);
    l->pp                = limit(asked.pp, 1);
    l->dp                = limit(asked.dp, 1);
    l->schedule          = schedules[asked.schedule];
    l->chunks            = limit(asked.chunks, 1);
    l->head_layers       = limit(asked.head_layers, 0);
    l->zero              = limit(asked.zero, 0);
    l->micro_batch       = limit(asked.micro_batch, 1);
    l->recompute         = asked.recompute - 1; /* the words stand in the order of the values, behind any = -1 */
    l->sequence_parallel = asked.sequence_parallel - 1;
    l->offload           = asked.offload - 1;
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static void list_presets(void)
{
    char text[PLAN_TEXT];

    printf("models\n");
    for (int i = 0; hkt_plan_model_name(i); i++) {
        hkt_plan_model_t m;

        if (hkt_plan_model(&m, hkt_plan_model_name(i)) == 0)
            printf("  %-14s %7s  %3d layers x %5d, %3d heads, sequence %d%s\n", m.name,
                   plan_count(text, hkt_plan_parameters(&m)), m.layers, m.hidden, m.heads, m.sequence,
                   m.blocked ? ", blocked attention" : "");
    }
    printf("machines\n");
    for (int i = 0; hkt_plan_machine_name(i); i++) {
        hkt_plan_machine_t m;

        if (hkt_plan_machine(&m, hkt_plan_machine_name(i)))
            continue;
        printf("  %-14s %9s, %.3g TFLOP/s of %.3g", m.name, plan_bytes(text, m.memory), m.achieved / 1e12,
               m.peak / 1e12);
        for (int k = 0; k < m.links; k++)
            printf(", %s %.3g GB/s", m.link[k].name, m.link[k].bandwidth / 1e9);
        printf("\n");
    }
    printf("  %-14s this computer, measured: a core is a device\n", "cpu-this");
}

/* Writes a file by `print`; "-" is the standard output. */
static void write_file(const char *path, void (*print)(FILE *, const struct plan_view *), const struct plan_view *view)
{
    FILE *file = strcmp(path, "-") ? fopen(path, "we") : stdout;

    if (!file)
        flags_fail(&flags, "%s: %s", path, strerror(errno));
    print(file, view);
    if (file == stdout ? fflush(file) : fclose(file))
        flags_fail(&flags, "%s: %s", path, strerror(errno));
}

static char *join(int argc, char **argv)
{
    char  *text = NULL;
    size_t size;
    FILE  *out = open_memstream(&text, &size);

    for (int i = 0; out && i < argc; i++)
        fprintf(out, "%s%s", i ? " " : "", i ? argv[i] : "hkt-plan");
    if (out)
        fclose(out);
    return text;
}

static int show(struct plan_view *view)
{
    if (hkt_plan_search(&view->family, &view->families, &view->job, &view->limits)) {
        fprintf(stderr, "hkt-plan: %s\n", hkt_last_error());
        return 2;
    }
    while (view->plans < view->families && view->family[view->plans].found)
        view->plans++;
    if (asked.json)
        write_file(asked.json, plan_json, view);
    if (!asked.json || strcmp(asked.json, "-")) {
        plan_print(stdout, view);
        if (view->plans)
            plan_why(stdout, view);
    }
    if (asked.svg && view->plans)
        write_file(asked.svg, plan_svg, view);
    hkt_plan_search_free(view->family);
    return view->plans ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct plan_view view = {.limits = HKT_PLAN_LAYOUT_ANY};
    char            *command;
    int              status = 0, word;

    command = join(argc, argv);
    word    = flags_parse(&flags, argc, argv);
    if (word < argc)
        flags_fail(&flags, "%s is no flag", argv[word]);
    make_job(&view.job);
    make_limits(&view.limits);
    view.shown   = asked.all ? (size_t)-1 : (size_t)asked.shown;
    view.command = command ? command : "hkt-plan";
    if (asked.list)
        list_presets();
    else if (asked.write_machine)
        plan_machine_write(stdout, &view.job.machine);
    else if (asked.sweep)
        plan_sweep(stdout, &view, asked.sweep, &flags);
    else
        status = show(&view);
    free(command);
    return status;
}
