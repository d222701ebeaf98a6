/* sample.c -- see sample.h. Runs the whole window for every byte: a few seconds for the default, and no cache to keep
 * right. */
#include "sample.h"

#include "stop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Draws from softmax(logits / temperature) by walking up to a random share of the sum. */
static int32_t draw(const float *logits, int vocabulary, double temperature, double share)
{
    double  most = (double)logits[0], sum = 0;
    int32_t token = 0;

    for (int i = 1; i < vocabulary; i++)
        most = fmax(most, (double)logits[i]);
    for (int i = 0; i < vocabulary; i++)
        sum += exp(((double)logits[i] - most) / temperature);
    share *= sum;
    while (token < vocabulary - 1) {
        const double chance = exp(((double)logits[token] - most) / temperature);

        if (share < chance)
            break;
        share -= chance;
        token++;
    }
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

void sample_print(struct engine *e, const struct data *d)
{
    const struct settings *s      = e->settings;
    const hkt_random_t     random = hkt_random_named((uint64_t)s->seed, "sample");
    const size_t           window = (size_t)s->length;
    size_t                 count, size;
    int32_t               *token, *more;
    char                  *text;

    need(tokenizer_encode(&token, &count, d->tokenizer, s->prompt, strlen(s->prompt)), "reading --prompt");
    more = realloc(token, (count + (size_t)s->sample) * sizeof(*token));
    if (!more)
        stop("out of memory for a sample of %ld tokens", s->sample);
    token = more;
    for (long i = 0; i < s->sample; i++, count++) {
        const size_t seen   = count < window ? count : window;
        const float *logits = engine_logits(e, token + count - seen, seen);

        token[count] = draw(logits, e->shape.vocabulary, s->temperature, (double)hkt_random_uniform(random, count));
    }
    need(tokenizer_decode(&text, &size, d->tokenizer, token, count), "writing the sample");
    if (engine_speaks(e)) {
        printf("sample    ");
        print((const uint8_t *)text, size);
    }
    free(text);
    free(token);
}
