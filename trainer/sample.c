/* sample.c -- see sample.h. Runs the whole window for every byte: a few seconds for the default, and no cache to keep
 * right. */
#include "sample.h"

#include "random.h"
#include "stop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Draws from softmax(logits / temperature) by walking up to a random share of the sum. */
static int draw(const float *logits, double temperature, double share)
{
    double most = logits[0], sum = 0, chance[VOCABULARY];
    int    token = 0;

    for (int i = 1; i < VOCABULARY; i++)
        most = fmax(most, (double)logits[i]);
    for (int i = 0; i < VOCABULARY; i++)
        sum += chance[i] = exp(((double)logits[i] - most) / temperature);
    for (share *= sum; token < VOCABULARY - 1 && share >= chance[token]; token++)
        share -= chance[token];
    return token;
}

/* Length of the UTF-8 sequence that `bytes` begins with; 0 when it is none, or cut. */
static size_t character(const uint8_t *bytes, size_t left)
{
    const size_t length = bytes[0] < 0x80   ? 1
                          : bytes[0] < 0xc2 ? 0
                          : bytes[0] < 0xe0 ? 2
                          : bytes[0] < 0xf0 ? 3
                          : bytes[0] < 0xf5 ? 4
                                            : 0;

    for (size_t i = 1; i < length; i++)
        if (i >= left || (bytes[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

static void print(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0, length; i < size; i += length ? length : 1) {
        length = character(bytes + i, size - i);
        if (length > 1 || bytes[i] == '\n' || (bytes[i] >= 32 && bytes[i] < 127))
            fwrite(bytes + i, 1, length, stdout);
        else
            putchar('?');
    }
    putchar('\n');
}

void sample_print(struct model *model, const struct settings *s)
{
    const size_t window = (size_t)model->shape.length, prompt = strlen(s->prompt), size = prompt + (size_t)s->sample;
    uint8_t     *bytes = malloc(size);

    if (!bytes)
        stop("out of memory for a sample of %ld bytes", s->sample);
    memcpy(bytes, s->prompt, prompt);
    for (size_t i = prompt; i < size; i++) {
        const size_t       seen  = i < window ? i : window;
        const struct batch batch = {1, (int)seen, bytes + i - seen, NULL};

        model_forward(model, batch);
        bytes[i] = (uint8_t)draw(model->logits + (seen - 1) * VOCABULARY, s->temperature,
                                 random_even((uint64_t)s->seed, random_stream("sample"), i));
    }
    print(bytes, size);
    free(bytes);
}
