/* data.h -- where sequences of tokens come from: text, cut into windows here, or a .bin and .idx pair (samples.h).
 * Which tokens a step sees depends on the seed and on how many sequences were seen before, on nothing else.
 */
#ifndef TRAINER_DATA_H
#define TRAINER_DATA_H

#include "samples.h"
#include "settings.h"
#include "tokenizer.h"

/* Tokens in a row; the first `train` are trained on, the rest is held out. */
struct text {
    int32_t *token;
    size_t   size, train;
};

struct data {
    struct tokenizer *tokenizer;
    int               vocabulary;
    int32_t           end; /* of a document; -1: there is none */
    size_t            length;
    uint64_t          seed;
    struct text       text;
    struct indexed   *indexed; /* NULL: text */
    struct samples   *training, *held_out;
    size_t            bytes, files; /* of text */
    char              origin[200];  /* for people: which path, which licence */
};

/* Reads what --data-path names, every text file below a folder in the order of their names. Stops when there is too
 * little. Collective: the ranks must have the same. */
void data_open(struct data *data, const struct settings *settings, hkt_comm_t *comm);
void data_close(struct data *data);

/* tokens[length + 1] of the training part: sequence number `index` since the start. */
void data_sequence(int32_t *tokens, const struct data *data, uint64_t index);
/* Of the held-out part: number `index` of `count`, spread evenly. */
void data_held_out(int32_t *tokens, const struct data *data, uint64_t index, uint64_t count);

/* Every pass over the text (an epoch) cuts it into windows at another offset and shuffles them. */
const int32_t *text_sequence(const struct text *text, uint64_t seed, uint64_t index, size_t length);

#endif
