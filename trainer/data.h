/* data.h -- the text: bytes are tokens. Which bytes a step sees depends on the seed and the step only. */
#ifndef TRAINER_DATA_H
#define TRAINER_DATA_H

#include <stddef.h>
#include <stdint.h>

struct text {
    uint8_t *bytes;
    size_t   size, train; /* bytes; the first `train` are trained on, the rest is held out */
    size_t   files;
    char     origin[200]; /* for people: which path, which licence */
};

/* Reads a file, or every text file below a folder in the order of their names; NULL: text that Debian machines have.
 * Stops when there is too little for sequences of `length`. Free with text_free(). */
void text_load(struct text *text, const char *path, double held_out_percent, size_t length);
void text_free(struct text *text);

/* `length` + 1 bytes of the training part: sequence number `index` since the start. Every pass over the text (an epoch)
 * cuts it into windows at another offset and shuffles them. */
const uint8_t *text_sequence(const struct text *text, uint64_t seed, uint64_t index, size_t length);

/* `length` + 1 bytes of the held-out part: window `index` of `count`, spread evenly. */
const uint8_t *text_held_out(const struct text *text, uint64_t index, uint64_t count, size_t length);

#endif
