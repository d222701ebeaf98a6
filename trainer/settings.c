/* settings.c -- see settings.h; parsing and --help are those of the tools. What depends on the number of ranks is
 * checked by the engine. */
#include "settings.h"

#include "stop.h"
#include "tools/flags.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 1024 }; /* of the command line and the file together */

struct words {
    char *word[WORDS];
    int   count;
};

static void add(struct words *w, char *word)
{
    if (w->count + 1 >= WORDS)
        stop("more than %d words of flags", WORDS);
    w->word[w->count++] = word;
}

/* One line: "--name value", "name = value", "name"; what follows a # is for people. */
static void add_line(struct words *w, const char *path, int number, const char *line)
{
    char  *copy = strdup(line), *name = copy, *value, *flag;
    size_t length;

    if (!copy)
        stop("out of memory for --config %s", path);
    copy[strcspn(copy, "#\r\n")] = 0;
    name += strspn(name, " \t");
    name += strncmp(name, "--", 2) == 0 ? 2 : 0;
    length = strcspn(name, " \t=");
    if (!*name)
        return free(copy);
    value = name + length;
    value += strspn(value, " \t=");
    for (size_t n = strlen(value); n > 0 && isspace((unsigned char)value[n - 1]); n--)
        value[n - 1] = 0;
    if (length == 0 || asprintf(&flag, "--%.*s%s%s", (int)length, name, *value ? "=" : "", value) < 0)
        stop("--config %s, line %d: \"name value\" is expected", path, number);
    free(copy);
    add(w, flag); /* lives as long as the settings that point into it */
}

static void add_file(struct words *w, const char *path)
{
    FILE  *file   = fopen(path, "r");
    char  *line   = NULL;
    size_t room   = 0;
    int    number = 0;

    if (!file)
        stop("--config %s: %s", path, strerror(errno));
    while (getline(&line, &room, file) > 0)
        add_line(w, path, ++number, line);
    free(line);
    fclose(file);
}

/* The file's flags before those of the command line. */
static void gather_words(struct words *w, int argc, char **argv)
{
    add(w, argv[0]);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--config=", 9) == 0)
            add_file(w, argv[i] + 9);
        else if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            add_file(w, argv[i + 1]);
    }
    for (int i = 1; i < argc; i++)
        add(w, argv[i]);
}

static void check(struct settings *s, const struct flags *flags)
{
    char rest;

    if (s->width % s->heads)
        flags_fail(flags, "--hidden-size %ld is not a multiple of --num-attention-heads %ld", s->width, s->heads);
    if (s->least_rate > s->rate)
        flags_fail(flags, "--min-lr %g is above --lr %g", s->least_rate, s->rate);
    if (!s->prompt[0])
        flags_fail(flags, "--prompt needs at least one byte");
    if (s->bf16 && s->fp16)
        flags_fail(flags, "--bf16 and --fp16 exclude each other");
    if (s->generate && !s->load)
        flags_fail(flags, "--generate needs --load");
    if (s->tier == 2 && !s->tier_path)
        flags_fail(flags, "--optimizer-tier file needs --optimizer-file");
    if (s->rampup && (sscanf(s->rampup, "%ld,%ld,%ld%c", &s->ramp_start, &s->ramp_step, &s->ramp_samples, &rest) != 3 ||
                      s->ramp_start < 1 || s->ramp_step < 1 || s->ramp_samples < 1 || s->ramp_start > s->global_batch ||
                      (s->global_batch - s->ramp_start) % s->ramp_step))
        flags_fail(
            flags,
            "--rampup-batch-size %s: three positive numbers as 4,4,1000 are expected; in steps of the second, the "
            "first must reach --global-batch-size %ld",
            s->rampup, s->global_batch);
    if (s->freeze && s->optimizer == 0)
        flags_fail(flags, "--freeze-step needs --optimizer onebit-adam");
    if (s->optimizer == 1 && !s->freeze)
        s->freeze = s->iterations >= 2 ? s->iterations / 2 : 1;
    if (s->optimizer == 1 && !s->codec)
        s->codec = "onebit:block=128";
    if (!s->mlp && s->gated) /* Megatron-LM's rule: as many weights as without gates */
        s->mlp = s->width < 24 ? 64 : 4 * s->width * 2 / 3 / 64 * 64;
    if (!s->mlp)
        s->mlp = 4 * s->width;
}

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
        .usage = "[--flag value ...]        on several ranks: hkt-run -n 8 hkt-train ...",
        .about =
            "Trains a GPT, laid out over the ranks by tensors, stages and data, and ends with a report and a sample.",
        .row   = rows,
        .count = sizeof(rows) / sizeof(rows[0]),
    };
    struct words words = {.count = 0};

    gather_words(&words, argc, argv);

    const int first = flags_parse(&flags, words.count, words.word);

    if (first < words.count)
        flags_fail(&flags, "%s: hkt-train takes flags only", words.word[first]);
    check(s, &flags);
}

double settings_rate(const struct settings *s, long step)
{
    const long end = s->decay_steps ? s->decay_steps : s->iterations;

    if (step <= s->warmup)
        return s->rate * (double)step / (double)s->warmup;

    const double done   = fmin((double)(step - s->warmup) / (double)(end > s->warmup ? end - s->warmup : 1), 1);
    const double left[] = {0.5 * (1 + cos(3.141592653589793 * done)), 1 - done, 1}; /* in the order of the words */

    return s->least_rate + (s->rate - s->least_rate) * left[s->decay_style];
}
