/* settings.h -- the flags of hkt-train. Names are Megatron-LM's where it has them. */
#ifndef TRAINER_SETTINGS_H
#define TRAINER_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

/* X(kind, C type, field, flag, default, min, max, unit, sentence): kinds as in flags.h. The default run is the one of
 * the quickstart. */
#define SETTINGS(X)                                                                                                    \
    X(TEXT, const char *, config, "config", NULL, 0, 0, "file",                                                        \
      "Reads flags from a file, one a line as \"name value\" or \"name = value\"; those of the command line win.")     \
    X(TEXT, const char *, data_path, "data-path", NULL, 0, 0, "path",                                                  \
      "Text: a file or folder; or tokens: the prefix of a .bin and .idx pair. Without it, text that Debian has.")      \
    X(TEXT, const char *, tokenizer, "tokenizer", "bytes", 0, 0, "bytes|bpe:DIR",                                      \
      "Bytes, or byte-level BPE with DIR/vocab.json and DIR/merges.txt, as hkt-data makes them.")                      \
    X(NUMBER, double, held_out, "held-out", 5, 0.1, 50, "percent",                                                     \
      "Last part of the text (of the documents), never trained on, for evaluation.")                                   \
    X(TEXT, const char *, data_cache, "data-cache-path", NULL, 0, 0, "folder",                                         \
      "Keeps the index of a .bin and .idx pair's samples.")                                                            \
    X(ON, bool, reset_position, "reset-position-ids", false, 0, 0, NULL,                                               \
      "Positions begin anew behind the end of each document.")                                                         \
    X(ON, bool, reset_attention, "reset-attention-mask", false, 0, 0, NULL, "Attention ends at a document's begin.")   \
    X(ON, bool, mask_end, "eod-mask-loss", false, 0, 0, NULL, "No loss where the end of a document is read.")          \
    X(INTEGER, long, layers, "num-layers", 4, 1, 1000, "layers", "Transformer blocks.")                                \
    X(INTEGER, long, width, "hidden-size", 128, 1, 65536, "floats", "Width of the residual stream.")                   \
    X(INTEGER, long, mlp, "ffn-hidden-size", 0, 0, 262144, "floats",                                                   \
      "Width of the MLP; 0: four times the hidden size; with --swiglu two thirds of that, a multiple of 64.")          \
    X(ON, bool, gated, "swiglu", false, 0, 0, NULL, "The MLP has gates: silu of one layer times another one.")         \
    X(WORD, int, normalization, "normalization", 0, 0, 0, "LayerNorm|RMSNorm", "What norms do.")                       \
    X(ON, bool, unbiased, "disable-bias-linear", false, 0, 0, NULL, "Linear layers have no biases.")                   \
    X(INTEGER, long, heads, "num-attention-heads", 4, 1, 1024, "heads",                                                \
      "Attention heads; they divide the hidden size.")                                                                 \
    X(ON, bool, grouped, "group-query-attention", false, 0, 0, NULL, "Groups of heads share keys and values.")         \
    X(INTEGER, long, groups, "num-query-groups", 1, 1, 1024, "groups", "With that: how many; they divide the heads.")  \
    X(INTEGER, long, length, "seq-length", 128, 1, 65536, "tokens", "Length of a training sequence.")                  \
    X(WORD, int, positions, "position-embedding-type", 0, 0, 0, "learned|rope|alibi", "How tokens know their place.")  \
    X(ON, bool, embedding_norm, "embedding-layernorm", false, 0, 0, NULL, "A layer norm behind the embedding.")        \
    X(ON, bool, untied, "untie-embeddings-and-output-weights", false, 0, 0, NULL, "The head has a table of its own.")  \
    X(NUMBER, double, dropout, "hidden-dropout", 0, 0, 0.99, "chance", "Dropout of the residual stream.")              \
    X(NUMBER, double, attention_dropout, "attention-dropout", 0, 0, 0.99, "chance", "Dropout of attention.")           \
    X(NUMBER, double, smoothing, "label-smoothing", 0, 0, 0.99, "number",                                              \
      "Share of the loss that goes to all tokens.")                                                                    \
    X(INTEGER, long, padding, "make-vocab-size-divisible-by", 128, 1, 65536, "tokens",                                 \
      "The vocabulary is padded to a multiple of this, the same on every layout.")                                     \
    X(NUMBER, double, deviation, "init-method-std", 0.02, 0, 10, "number",                                             \
      "Standard deviation of the initial weights.")                                                                    \
    X(INTEGER, long, tp, "tensor-model-parallel-size", 1, 1, 4096, "ranks", "Ranks that share every layer.")           \
    X(ON, bool, sequence, "sequence-parallel", false, 0, 0, NULL,                                                      \
      "They share what lies between the layers, too, by tokens.")                                                      \
    X(INTEGER, long, cp, "context-parallel-size", 1, 1, 4096, "ranks",                                                 \
      "Ranks that share every sequence, each two pieces of it.")                                                       \
    X(INTEGER, long, pp, "pipeline-model-parallel-size", 1, 1, 4096, "stages",                                         \
      "Ranks in a row that share the layers.")                                                                         \
    X(INTEGER, long, per_chunk, "num-layers-per-virtual-pipeline-stage", 0, 0, 1000, "layers",                         \
      "Interleaves the pipeline in chunks of so many layers; 0: does not.")                                            \
    X(WORD, int, schedule, "pipeline-schedule", 0, 0, 0, "1f1b|gpipe|zero-bubble", "Order of the stages' work.")       \
    X(TEXT, const char *, stage_layers, "pipeline-layout", NULL, 0, 0, "list",                                         \
      "Layers of every (virtual) stage, as 2,2,1,1; without it, even.")                                                \
    X(TEXT, const char *, order, "layout-order", "tp-cp-dp-pp", 0, 0, "axes",                                          \
      "How ranks are laid out, the fastest first.")                                                                    \
    X(INTEGER, long, zero, "zero-stage", 0, 0, 3, "stage",                                                             \
      "What data-parallel ranks share: 1 the optimizer, 2 and gradients, 3 and weights.")                              \
    X(WORD, int, reduce, "grad-reduce", 0, 0, 0, "once|each",                                                          \
      "Gradients are reduced once a step, or after each micro-batch: with several of them only so ZeRO 2 and 3 keep a share.")    \
    X(WORD, int, tier, "optimizer-tier", 0, 0, 0, "device|host|file", "Where moments and masters lie.")                \
    X(TEXT, const char *, tier_path, "optimizer-file", NULL, 0, 0, "prefix",                                           \
      "With --optimizer-tier file: rank R keeps its state in PREFIX.R.")                                               \
    X(WORD, int, recompute, "recompute-granularity", 0, 0, 0, "none|selective|full",                                   \
      "What backward computes again instead of keeping it.")                                                           \
    X(ON, bool, bitwise, "bitwise-layouts", false, 0, 0, NULL,                                                         \
      "Sums in fixed trees, so that tensor-parallel sizes and numbers of data-parallel ranks (powers of two) give "    \
      "the "                                                                                                           \
      "same bits.")                                                                                                    \
    X(INTEGER, long, threads, "threads", 0, 0, 64, "threads", "Of a rank; 0: its share of the processors.")            \
    X(ON, bool, bf16, "bf16", false, 0, 0, NULL, "Linear layers multiply in bf16 with fp32 sums; weights stay fp32.")  \
    X(ON, bool, fp16, "fp16", false, 0, 0, NULL,                                                                       \
      "Weights and gradients in fp16 with fp32 masters, and the loss scaled.")                                         \
    X(NUMBER, double, loss_scale, "loss-scale", 0, 0, 1e15, "number", "With --fp16: a fixed scale; 0: dynamic.")       \
    X(NUMBER, double, first_scale, "initial-loss-scale", 65536, 1, 1e15, "number", "Where the dynamic scale begins.")  \
    X(NUMBER, double, least_scale, "min-loss-scale", 1, 1e-6, 1e15, "number", "Where it ends.")                        \
    X(INTEGER, long, scale_window, "loss-scale-window", 1000, 1, 1e9, "steps",                                         \
      "Steps without overflow that double it.")                                                                        \
    X(INTEGER, long, hysteresis, "hysteresis", 2, 1, 1000, "overflows", "Overflows before it is halved.")              \
    X(INTEGER, long, micro_batch, "micro-batch-size", 0, 0, 65536, "sequences",                                        \
      "Sequences in one forward and backward pass; 0: 4, or what the ranks' shares allow.")                            \
    X(INTEGER, long, global_batch, "global-batch-size", 16, 1, 1 << 24, "sequences",                                   \
      "Sequences in one step, over all ranks.")                                                                        \
    X(TEXT, const char *, rampup, "rampup-batch-size", NULL, 0, 0, "a,b,n",                                            \
      "Begins with a sequences a step, b more at a time, until n sequences were seen.")                                \
    X(INTEGER, long, iterations, "train-iters", 1500, 1, 1e9, "steps", "Steps to train.")                              \
    X(INTEGER, long, exit_after, "exit-interval", 0, 0, 1e9, "steps",                                                  \
      "Ends when so many steps are done, saved; 0: never.")                                                            \
    X(NUMBER, double, rate, "lr", 3e-3, 0, 10, "number", "Highest learning rate.")                                     \
    X(NUMBER, double, least_rate, "min-lr", 1e-4, 0, 10, "number", "Learning rate at the end.")                        \
    X(WORD, int, decay_style, "lr-decay-style", 0, 0, 0, "cosine|linear|constant", "How it falls.")                    \
    X(INTEGER, long, decay_steps, "lr-decay-iters", 0, 0, 1e9, "steps", "Until when; 0: --train-iters.")               \
    X(INTEGER, long, warmup, "lr-warmup-iters", 50, 0, 1e9, "steps", "Steps in which the rate rises to --lr.")         \
    X(WORD, int, optimizer, "optimizer", 0, 0, 0, "adam|onebit-adam",                                                  \
      "AdamW; or 1-bit Adam, which sends gradients in the code onebit:block=128 (or --codec) once the second moment has settled.") \
    X(INTEGER, long, freeze, "freeze-step", 0, 0, 1e9, "steps",                                                        \
      "With onebit-adam: steps of AdamW before that; 0: half of --train-iters.")                                    \
    X(NUMBER, double, decay, "weight-decay", 0.1, 0, 10, "number",                                                     \
      "AdamW's decay of matrices; vectors are not decayed.")                                                           \
    X(NUMBER, double, beta1, "adam-beta1", 0.9, 0, 0.999999, "number", "Decay of the first moment.")                   \
    X(NUMBER, double, beta2, "adam-beta2", 0.95, 0, 0.999999, "number", "Decay of the second moment.")                 \
    X(NUMBER, double, epsilon, "adam-eps", 1e-8, 0, 1, "number", "Added to the root of the second moment.")            \
    X(NUMBER, double, clip, "clip-grad", 1, 0, 1e9, "number", "Largest global norm of the gradient; 0: no clipping.")  \
    X(INTEGER, long, seed, "seed", 1234, 0, 1e15, "number", "Seed of weights, data order, dropout and sample.")        \
    X(BYTES, size_t, bucket_bytes, "bucket-bytes", 1 << 20, 64, 1ULL << 40, "bytes", "Gradients reduced in one call.") \
    X(WORD, int, overlap, "overlap-grad-reduce", 1, 0, 0, "off|on", "Reduces gradients while backward goes on.")       \
    X(TEXT, const char *, codec, "codec", NULL, 0, 0, "name",                                                          \
      "Sends gradients in a smaller code: int8, int4, onebit, fp8, qsgd, topk, powersgd ..., with options.")           \
    X(TEXT, const char *, save, "save", NULL, 0, 0, "folder", "Writes checkpoints there, the last one at the end.")    \
    X(INTEGER, long, save_interval, "save-interval", 0, 0, 1e9, "steps",                                               \
      "Steps between two of them; 0: only the last.")                                                                  \
    X(INTEGER, long, keep, "keep-checkpoints", 2, 0, 1e6, "number", "How many stay there; 0: all.")                    \
    X(ON, bool, async, "async-save", false, 0, 0, NULL, "Writes them beside the training.")                            \
    X(TEXT, const char *, load, "load", NULL, 0, 0, "folder",                                                          \
      "Goes on from the newest checkpoint there, saved by any layout; from the begin where there is none.")            \
    X(INTEGER, long, load_step, "ckpt-step", -1, -1, 1e15, "step", "Goes on from that of this step; -1: the newest.")  \
    X(INTEGER, long, log_interval, "log-interval", 50, 1, 1e9, "steps", "Steps between two lines of the log.")         \
    X(INTEGER, long, eval_interval, "eval-interval", 250, 0, 1e9, "steps", "Steps between two evaluations; 0: none.")  \
    X(INTEGER, long, eval_batches, "eval-iters", 10, 1, 1e6, "batches", "Global batches of one evaluation.")           \
    X(TEXT, const char *, plot, "plot", NULL, 0, 0, "file", "Writes the loss curve as SVG.")                           \
    X(TEXT, const char *, losses, "loss-file", NULL, 0, 0, "file", "Writes each step's loss and norm in full digits.") \
    X(TEXT, const char *, timing, "timing-file", NULL, 0, 0, "file",                                                   \
      "Writes where each step's seconds went: step, all, forward, backward, optimizer, waiting, matrix products, and their GFLOP.") \
    X(TEXT, const char *, dump, "dump", NULL, 0, 0, "file",                                                            \
      "Writes weights, batches, losses and gradients of every step, for tests; one rank.")                             \
    X(ON, bool, generate, "generate", false, 0, 0, NULL, "Only writes a sample, with --load.")                         \
    X(TEXT, const char *, prompt, "prompt", "And ", 0, 0, "text", "What the sample begins with.")                      \
    X(INTEGER, long, sample, "sample-tokens", 400, 0, 1e6, "tokens", "Length of the sample at the end.")               \
    X(NUMBER, double, temperature, "temperature", 0.8, 0.01, 100, "number",                                            \
      "Of the sample: lower is safer, higher is wilder.")

struct settings {
#define SETTINGS_FIELD(kind, type, field, ...) type field;
    SETTINGS(SETTINGS_FIELD)
#undef SETTINGS_FIELD
    long ramp_start, ramp_step, ramp_samples; /* of --rampup-batch-size; start 0: none */
};

/* Reads the flags and the file that --config names; does not return for --help and for values that cannot be. */
void settings_parse(struct settings *settings, int argc, char **argv);

/* Learning rate of optimizer step `step` (from 1): linear from 0 to --lr in the warm-up, then down to --min-lr. */
double settings_rate(const struct settings *settings, long step);

#endif
