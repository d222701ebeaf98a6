/* settings.h -- the flags of hkt-train. Names are Megatron-LM's where it has them. */
#ifndef TRAINER_SETTINGS_H
#define TRAINER_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

/* X(kind, C type, field, flag, default, min, max, unit, sentence): kinds as in flags.h. The default run is the one of
 * the quickstart. */
#define SETTINGS(X)                                                                                                    \
    X(TEXT, const char *, data_path, "data-path", NULL, 0, 0, "path",                                                  \
      "File or folder of text; without it, text that Debian machines have.")                                           \
    X(NUMBER, double, held_out, "held-out", 5, 0.1, 50, "percent",                                                     \
      "Last part of the text, never trained on, for evaluation.")                                                      \
    X(INTEGER, long, layers, "num-layers", 4, 1, 1000, "layers", "Transformer blocks.")                                \
    X(INTEGER, long, width, "hidden-size", 128, 1, 65536, "floats", "Width of the residual stream.")                   \
    X(INTEGER, long, mlp, "ffn-hidden-size", 0, 0, 262144, "floats",                                                   \
      "Width of the MLP; 0: four times the hidden size.")                                                              \
    X(INTEGER, long, heads, "num-attention-heads", 4, 1, 1024, "heads",                                                \
      "Attention heads; they divide the hidden size.")                                                                 \
    X(INTEGER, long, length, "seq-length", 128, 1, 65536, "bytes", "Length of a training sequence.")                   \
    X(NUMBER, double, deviation, "init-method-std", 0.02, 0, 10, "number",                                             \
      "Standard deviation of the initial weights.")                                                                    \
    X(INTEGER, long, micro_batch, "micro-batch-size", 0, 0, 65536, "sequences",                                        \
      "Sequences in one forward and backward pass; 0: 4, or what the ranks' shares allow.")                            \
    X(INTEGER, long, global_batch, "global-batch-size", 16, 1, 1 << 24, "sequences",                                   \
      "Sequences in one step, over all ranks.")                                                                        \
    X(INTEGER, long, iterations, "train-iters", 1500, 1, 1e9, "steps", "Steps to train.")                              \
    X(NUMBER, double, rate, "lr", 3e-3, 0, 10, "number", "Highest learning rate.")                                     \
    X(NUMBER, double, least_rate, "min-lr", 1e-4, 0, 10, "number", "Learning rate at the end of the cosine.")          \
    X(INTEGER, long, warmup, "lr-warmup-iters", 50, 0, 1e9, "steps", "Steps in which the rate rises to --lr.")         \
    X(NUMBER, double, decay, "weight-decay", 0.1, 0, 10, "number",                                                     \
      "AdamW's decay of matrices; vectors are not decayed.")                                                           \
    X(NUMBER, double, beta1, "adam-beta1", 0.9, 0, 0.999999, "number", "Decay of the first moment.")                   \
    X(NUMBER, double, beta2, "adam-beta2", 0.95, 0, 0.999999, "number", "Decay of the second moment.")                 \
    X(NUMBER, double, epsilon, "adam-eps", 1e-8, 0, 1, "number", "Added to the root of the second moment.")            \
    X(NUMBER, double, clip, "clip-grad", 1, 0, 1e9, "number", "Largest global norm of the gradient; 0: no clipping.")  \
    X(INTEGER, long, seed, "seed", 1234, 0, 1e15, "number", "Seed of weights, data order and sample.")                 \
    X(BYTES, size_t, bucket_bytes, "bucket-bytes", 1 << 20, 64, 1ULL << 40, "bytes",                                   \
      "Gradients all-reduced in one call.")                                                                            \
    X(WORD, int, overlap, "overlap-grad-reduce", 1, 0, 0, "off|on",                                                    \
      "All-reduce gradients while the backward pass goes on.")                                                         \
    X(INTEGER, long, log_interval, "log-interval", 50, 1, 1e9, "steps", "Steps between two lines of the log.")         \
    X(INTEGER, long, eval_interval, "eval-interval", 250, 0, 1e9, "steps", "Steps between two evaluations; 0: none.")  \
    X(INTEGER, long, eval_batches, "eval-iters", 10, 1, 1e6, "batches", "Global batches of one evaluation.")           \
    X(TEXT, const char *, plot, "plot", NULL, 0, 0, "file", "Writes the loss curve as SVG.")                           \
    X(TEXT, const char *, dump, "dump", NULL, 0, 0, "file",                                                            \
      "Writes weights, batches, losses and gradients of every step, for tests.")                                       \
    X(TEXT, const char *, prompt, "prompt", "And ", 0, 0, "text", "What the generated sample begins with.")            \
    X(INTEGER, long, sample, "sample-bytes", 400, 0, 1e6, "bytes", "Length of the sample at the end.")                 \
    X(NUMBER, double, temperature, "temperature", 0.8, 0.01, 100, "number",                                            \
      "Of the sample: lower is safer, higher is wilder.")

struct settings {
#define SETTINGS_FIELD(kind, type, field, ...) type field;
    SETTINGS(SETTINGS_FIELD)
#undef SETTINGS_FIELD
};

/* Reads the flags; does not return for --help and for values that cannot be. */
void settings_parse(struct settings *settings, int argc, char **argv);

/* Checks and completes what depends on the number of ranks; returns the micro-batches of a rank in one step. */
int settings_share(struct settings *settings, int ranks);

#endif
