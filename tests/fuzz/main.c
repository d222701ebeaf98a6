/* main.c -- the table of what is fuzzed; and, unless libFuzzer is the main program (FUZZ_TARGET names its function), one that runs the corpus: each file
 * as it is, cut short, and with bits turned, so that a compiler without libFuzzer fuzzes a little, too: the same twists
 * each time, as many of them as a fifth of a second allows.
 *
 *     tests/test_fuzz [TARGET [FILE...]]       no target: all, on their corpora below $srcdir/tests/fuzz/corpus
 */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef FUZZ_TARGET

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FUZZ_TARGET(data, size);
    return 0;
}

#else

#define TARGET(name) {#name, fuzz_##name}

const struct fuzz_target fuzz_targets[] = {
    TARGET(tuning), TARGET(xml),  TARGET(machine), TARGET(tree), TARGET(address),  TARGET(id),     TARGET(proof),
    TARGET(hub),    TARGET(join), TARGET(helper),  TARGET(pmi),  TARGET(greeting), TARGET(frames),
};
const int fuzz_target_count = (int)(sizeof(fuzz_targets) / sizeof(fuzz_targets[0]));

enum { MOST = 1 << 16, VARIANTS = 400 };

static const double SECONDS_OF_A_FILE = 0.2;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The bytes in memory of exactly their size, so that a sanitizer sees who reads on. */
static void run_exactly(const struct fuzz_target *t, const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);

    if (!copy)
        abort();
    memcpy(copy, data, size);
    t->run(copy, size);
    free(copy);
}

static uint64_t random_of(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return (*state ^ *state >> 31) * 0xbf58476d1ce4e5b9u >> 16;
}

/* As it is, and as it is not. */
static int run_variants(const struct fuzz_target *t, const uint8_t *data, size_t size, double until)
{
    static uint8_t twisted[MOST];
    uint64_t       state = size;
    int            runs  = 1;

    run_exactly(t, data, size);
    for (; runs < VARIANTS && size && now() < until; runs++) {
        const size_t length = runs % 4 ? size : random_of(&state) % size;

        memcpy(twisted, data, size);
        for (uint64_t k = random_of(&state) % 4; runs % 4 && k < 4; k++) {
            uint8_t *at = &twisted[random_of(&state) % size];

            *at = random_of(&state) % 2 ? (uint8_t)(*at ^ 1u << random_of(&state) % 8) : (uint8_t)random_of(&state);
        }
        run_exactly(t, twisted, length);
    }
    return runs;
}

static int run_file(const struct fuzz_target *t, const char *path, double until)
{
    static uint8_t data[MOST];
    FILE          *f = fopen(path, "rb");
    size_t         size;

    if (!f) {
        perror(path);
        exit(1);
    }
    size = fread(data, 1, sizeof(data), f);
    fclose(f);
    return run_variants(t, data, size, until);
}

static int run_corpus(const struct fuzz_target *t, const char *root)
{
    char           folder[512], path[800];
    DIR           *d;
    struct dirent *e;
    int            files = 0, runs = 0;

    snprintf(folder, sizeof(folder), "%s/tests/fuzz/corpus/%s", root, t->name);
    d = opendir(folder);
    if (!d) {
        perror(folder);
        return 1;
    }
    while ((e = readdir(d)))
        if (e->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
            runs += run_file(t, path, now() + SECONDS_OF_A_FILE);
            files++;
        }
    closedir(d);
    printf("%-9s %3d files, %6d runs\n", t->name, files, runs);
    fflush(stdout);
    return !files;
}

int main(int argc, char **argv)
{
    const char *root = getenv("srcdir") ? getenv("srcdir") : ".";
    int         bad = 0, found = 0;

    alarm(300); /* a hang is a failure */
    for (int i = 0; i < fuzz_target_count; i++) {
        if (argc > 1 && strcmp(argv[1], fuzz_targets[i].name) != 0)
            continue;
        found++;
        for (int k = 2; k < argc; k++)
            run_file(&fuzz_targets[i], argv[k], 0);
        if (argc < 3)
            bad |= run_corpus(&fuzz_targets[i], root);
    }
    return bad || !found;
}

#endif
