/* hkt-verify.c -- proves every algorithm of the library, or shows the steps of one. */
#include "flags.h"
#include "verify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *algorithm, *collective, *groups, *labels, *inner, *outer;
    long        max, root, radix, pieces;
    bool        quick, print;
} set = {.max = 64};

static const struct flag rows[] = {
    {'a', "algorithm", FLAG_TEXT, &set.algorithm, 0, 0, "NAME", "Only this algorithm."},
    {'c', "collective", FLAG_TEXT, &set.collective, 0, 0, "NAME", "Only this collective."},
    {'m', "max", FLAG_INTEGER, &set.max, 1, VERIFY_MAX_RANKS, "N",
     "Every number of ranks up to N, each with every root and variant; then some of 65 to 1024."},
    {'q', "quick", FLAG_ON, &set.quick, 0, 0, NULL, "Every number of ranks up to 17 only."},
    {'p', "print", FLAG_ON, &set.print, 0, 0, NULL,
     "Shows the steps instead; the words are ALGORITHM COLLECTIVE RANKS, the flags below complete the shape."},
    {'r', "root", FLAG_INTEGER, &set.root, 0, VERIFY_MAX_RANKS - 1, "R", "Root, where the collective has one."},
    {0, "radix", FLAG_INTEGER, &set.radix, 0, 65535, "K", "Radix of radix and bruck; 0: their own."},
    {0, "pieces", FLAG_INTEGER, &set.pieces, 0, 4096, "N", "Pieces of the pipelined algorithms; 0: their own."},
    {0, "groups", FLAG_TEXT, &set.groups, 0, 0, "N,N,..", "Sizes of the groups of ranks, for hierarchical."},
    {0, "labels", FLAG_TEXT, &set.labels, 0, 0, "R,R,..", "Which rank takes each place, where ranks are not in a row."},
    {0, "inner", FLAG_TEXT, &set.inner, 0, 0, "NAME", "What hierarchical runs inside groups."},
    {0, "outer", FLAG_TEXT, &set.outer, 0, 0, "NAME", "What hierarchical runs across groups."},
};

static const struct flags flags = {"hkt-verify",
                                   "[flags] | --print ALGORITHM COLLECTIVE RANKS [flags]",
                                   "Proves the algorithms by running their schedules symbolically, or shows them.",
                                   rows,
                                   sizeof(rows) / sizeof(rows[0]),
                                   false};

static const struct hkt_algorithm *algorithm(const char *name)
{
    const struct hkt_algorithm *a = hkt_algorithm_find(name);

    if (!a)
        flags_fail(&flags, "there is no algorithm %s", name);
    return a;
}

static enum hkt_coll collective(const char *name)
{
    for (int coll = 0; coll < HKT_COLL_SCHEDULED; coll++)
        if (strcmp(hkt_coll_name[coll], name) == 0)
            return (enum hkt_coll)coll;
    flags_fail(&flags, "no algorithm does a collective %s", name);
}

static long number(const char *text, long least, long most)
{
    char *end;
    long  n;

    errno = 0;
    n     = strtol(text, &end, 10);
    if (end == text || *end || errno || n < least || n > most)
        flags_fail(&flags, "%s: a whole number from %ld to %ld is expected", text, least, most);
    return n;
}

/* Sizes "2,2,3" to starts; they must add up. */
static int parse_groups(const char *text, int size, int *start)
{
    int groups = 0;

    for (start[0] = 0; *text; groups++) {
        char word[16];
        int  length = (int)strcspn(text, ",");

        snprintf(word, sizeof(word), "%.*s", length, text);
        start[groups + 1] = start[groups] + (int)number(word, 1, size - start[groups]);
        text += length + (text[length] == ',');
    }
    if (start[groups] != size)
        flags_fail(&flags, "--groups add up to %d, not to %d", start[groups], size);
    return groups;
}

/* Ranks "0,2,1,3", each once. */
static void parse_labels(const char *text, int size, int *label)
{
    static bool taken[VERIFY_MAX_RANKS];
    int         n = 0;

    for (; *text; n++) {
        char word[16];
        int  length = (int)strcspn(text, ",");

        if (n == size)
            break;
        snprintf(word, sizeof(word), "%.*s", length, text);
        label[n] = (int)number(word, 0, size - 1);
        if (taken[label[n]])
            flags_fail(&flags, "--labels name rank %d twice", label[n]);
        taken[label[n]] = true;
        text += length + (text[length] == ',');
    }
    if (n != size || *text)
        flags_fail(&flags, "--labels name other than %d ranks", size);
}

static int print(char **word, int words)
{
    static int       start[VERIFY_MAX_RANKS + 1], label[VERIFY_MAX_RANKS];
    struct hkt_shape sh = {.radix = (int)set.radix, .pieces = (int)set.pieces, .inner = set.inner, .outer = set.outer};
    const char      *why;

    if (words != 3)
        flags_fail(&flags, "--print takes ALGORITHM COLLECTIVE RANKS");
    sh.coll = collective(word[1]);
    sh.size = (int)number(word[2], 1, VERIFY_MAX_RANKS);
    sh.root = (int)set.root;
    if (sh.root >= sh.size || (sh.root && !hkt_coll_in(sh.coll, HKT_COLLS_ROOTED)))
        flags_fail(&flags, "%s of %d ranks has no root %d", word[1], sh.size, sh.root);
    if (set.groups) {
        sh.group_start = start;
        sh.ngroups     = parse_groups(set.groups, sh.size, start);
    }
    if (set.labels) {
        parse_labels(set.labels, sh.size, label);
        sh.label = label;
    }
    why = hkt_algorithm_refuses(algorithm(word[0]), &sh);
    if (why)
        flags_fail(&flags, "%s refuses: %s", word[0], why);
    return verify_print(algorithm(word[0]), &sh) ? 0 : 1;
}

static int sweep(void)
{
    const struct verify_range   range = {set.quick ? 17 : (int)set.max, !set.quick};
    const struct hkt_algorithm *only  = set.algorithm ? algorithm(set.algorithm) : NULL;
    const int                   coll  = set.collective ? (int)collective(set.collective) : -1;
    long                        wrong = 0, proven = 0;

    for (const struct hkt_algorithm *const *a = hkt_algorithms; *a; a++)
        for (int c = 0; c < HKT_COLL_SCHEDULED; c++)
            if (hkt_coll_in((enum hkt_coll)c, (*a)->colls) && (!only || only == *a) && (coll < 0 || coll == c))
                wrong += verify_sweep(*a, (enum hkt_coll)c, &range, &proven);
    if (wrong)
        printf("%ld proven, %ld WRONG\n", proven, wrong);
    else
        printf("%ld proven\n", proven);
    return wrong || !proven;
}

int main(int argc, char **argv)
{
    const int first = flags_parse(&flags, argc, argv);

    if (set.print)
        return print(argv + first, argc - first);
    if (first < argc)
        flags_fail(&flags, "%s is not expected", argv[first]);
    return sweep();
}
