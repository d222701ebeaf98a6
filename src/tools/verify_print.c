/* verify_print.c -- schedules as text: a row a step, a column a rank. */
#include "verify.h"

#include "base/error.h"
#include "base/memory.h"
#include "language/verify.h"

#include <stdio.h>
#include <string.h>

enum { TEXT = 4096, WIDE = 120 };

static size_t print_operand(char *text, size_t size, struct hkt_operand o, char peer)
{
    static const char *const place[] = {"IN ", "OUT ", "TMP "};

    if (o.place == HKT_PEER)
        return (size_t)snprintf(text, size, "%c%u", peer, o.id);
    return (size_t)snprintf(text, size, "%s%u", place[o.place], o.id);
}

/* "<0 + IN 1 => OUT 1, >0"; cut to fit. */
static void print_step(char *text, const struct hkt_schedule *s, const struct hkt_step *st)
{
    size_t used = 0;

    text[0] = 0;
    for (uint32_t i = 0; i < (uint32_t)st->nsrc + st->ndst && used < TEXT - 32; i++) {
        const char *before = i < st->nsrc ? " + " : ", ";

        if (i == st->nsrc)
            before = st->flags & HKT_STEP_FINISH ? " => " : " -> ";
        used += (size_t)snprintf(text + used, TEXT - used, "%s", i ? before : "");
        used += print_operand(text + used, TEXT - used, s->operand[st->first + i], i < st->nsrc ? '<' : '>');
    }
}

/* One row of the table; steps of ranks that have no such step are left blank, blanks at the end left out. */
static void print_row(const struct hkt_schedule *s, int n, uint32_t row, const int *width)
{
    char text[TEXT];
    int  blank = 0;

    for (int r = 0; r < n; r++) {
        if (row >= s[r].nsteps) {
            blank += 2 + width[r];
            continue;
        }
        print_step(text, &s[r], &s[r].step[row]);
        printf("%*s  %s", blank, "", text);
        blank = width[r] - (int)strlen(text);
    }
    printf("\n");
}

static void print_columns(const struct hkt_schedule *s, int n, uint32_t rows, const int *width)
{
    int blank = 3;

    for (int r = 0; r < n; r++) {
        const int length = printf("%*s  rank %d", blank, "", r) - blank - 2;

        blank = width[r] - length;
    }
    printf("\n");
    for (uint32_t row = 0; row < rows; row++) {
        printf("%3u", row + 1);
        print_row(s, n, row, width);
    }
}

static void print_lists(const struct hkt_schedule *s, int n)
{
    char text[TEXT];

    for (int r = 0; r < n; r++) {
        printf("rank %d\n", r);
        for (uint32_t i = 0; i < s[r].nsteps; i++) {
            print_step(text, &s[r], &s[r].step[i]);
            printf("%5u  %s\n", i + 1, text);
        }
    }
}

static void print_all(const struct hkt_schedule *s, int n)
{
    char     text[TEXT];
    int      width[VERIFY_MAX_RANKS], wide = 3;
    uint32_t rows = 0;

    for (int r = 0; r < n; r++) {
        width[r] = 6;
        rows     = rows < s[r].nsteps ? s[r].nsteps : rows;
        for (uint32_t i = 0; i < s[r].nsteps; i++) {
            print_step(text, &s[r], &s[r].step[i]);
            width[r] = width[r] < (int)strlen(text) ? (int)strlen(text) : width[r];
        }
        wide += width[r] + 2;
    }
    if (wide <= WIDE)
        print_columns(s, n, rows, width);
    else
        print_lists(s, n);
}

static void print_proof(const struct hkt_verify_result *result, bool reducing)
{
    printf("Proven: %llu steps, %llu messages", (unsigned long long)result->steps,
           (unsigned long long)result->messages);
    if (reducing)
        printf(", %s", result->canonical ? "the canonical sum" : "a sum of another order");
    printf(".\n");
}

bool verify_print(const struct hkt_algorithm *a, const struct hkt_shape *shape)
{
    struct hkt_schedule     *s  = hkt_alloc((size_t)shape->size * sizeof(*s));
    struct hkt_shape         sh = *shape;
    struct hkt_verify_result result;
    const char              *why = "out of memory";

    for (sh.rank = 0; s && sh.rank < sh.size; sh.rank++)
        if (hkt_schedule_build(&s[sh.rank], a, &sh) < 0)
            break;
    if (s && sh.rank == sh.size) {
        print_all(s, sh.size);
        printf("\n<p: the next message from rank p, >p: a message to rank p, =>: finished.\n");
        printf("%u chunk%s, %u of scratch.\n", s[0].chunks, s[0].chunks == 1 ? "" : "s", s[0].tmp_chunks);
        why = hkt_verify(a, shape, HKT_FIFO_DEPTH, &result);
    }
    if (why)
        printf("WRONG: %s\n", why);
    else
        print_proof(&result, hkt_coll_in(shape->coll, HKT_COLLS_REDUCING));
    for (int r = 0; s && r < shape->size; r++)
        hkt_schedule_free(&s[r]);
    hkt_free(s);
    return why == NULL;
}
