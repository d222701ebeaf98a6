/* communicator.c -- how a communicator dies and what it says: the poison word, the sentences, the report.
 *
 * The first rank that finds a reason claims the sentence, writes it, and sets the poison word; everybody else repeats it. Sleeping ranks look
 * at the word every HKT_SLEEP_NS, so nobody need be woken. Calls made later fail at once with the same sentence.
 */
#include "run/communicator.h"

#include "base/error.h"
#include "base/log.h"
#include "language/dtype.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- signatures -------------------------------------------------------------------------------------------------- */

static uint64_t hash_counts(const size_t *counts, int n)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a, 64 bits */

    for (int i = 0; i < n; i++)
        h = (h ^ counts[i]) * 1099511628211u;
    return h;
}

struct hkt_signature hkt_signature_make(const struct hkt_call *call, int size)
{
    struct hkt_signature s = {.count = call->count, .root = hkt_collective[call->coll].rooted ? call->root : 0};

    s.what = (uint32_t)call->coll | (uint32_t)call->type << 8 | (uint32_t)(call->op == HKT_PREMUL_SUM ? HKT_OPS : call->op) << 16;
    if (call->arrays) { /* the same arrays on every rank; but in all_to_all_v, where the table tells */
        s.what |= 1u << 24;
        s.count = call->coll == HKT_COLL_ALL_TO_ALL ? 0 : hash_counts(hkt_array(call, HKT_IN_COUNTS, size), size);
    }
    return s;
}

static void print_signature(const struct hkt_signature *s, char *text, size_t size)
{
    const uint32_t  op   = s->what >> 16 & 255;
    struct hkt_call call = {.coll = (enum hkt_coll)(s->what & 255), .type = (hkt_type_t)(s->what >> 8 & 255), .count = s->count,
                            .root = s->root, .op = op == HKT_OPS ? HKT_PREMUL_SUM : (hkt_op_t)op};

    if (s->what >> 24 & 1) /* the count is a hash */
        snprintf(text, size, "%s_v of %s, root %d, counts %016llx", hkt_coll_name[call.coll], hkt_type_name(call.type), s->root,
                 (unsigned long long)s->count);
    else
        hkt_call_print(&call, text, size);
}

/* ---- death ------------------------------------------------------------------------------------------------------- */

const char *hkt_communicator_who(const struct hkt_communicator *c, int rank, char *text, size_t size)
{
    const struct hkt_life *life = c->peer[rank].process->life;

    snprintf(text, size, "rank %d (host %s, pid %d)", rank, life->host, (int)life->pid);
    return text;
}

int hkt_communicator_state(const struct hkt_communicator *c)
{
    const uint64_t poison = hkt_load_acquire(&c->shared->poison); /* pairs with the release store in hkt_communicator_kill() */

    return poison ? -(int)(poison & 255) : HKT_OK;
}

int hkt_communicator_dead(const struct hkt_communicator *c)
{
    const int code = hkt_communicator_state(c);

    return code ? hkt_fail_quiet(code, c->shared->sentence) : HKT_OK;
}

int hkt_communicator_kill(struct hkt_communicator *c, int code, const char *format, ...)
{
    struct hkt_shared *s     = c->shared;
    uint32_t           first = 0;
    char               text[HKT_SENTENCE];
    va_list            args;

    va_start(args, format); /* the arguments may be the last error */
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (atomic_compare_exchange_strong(&s->claim, &first, 1)) {
        memcpy(s->sentence, text, sizeof(text));
        hkt_store_release(&s->poison, 1ULL << 63 | (uint64_t)c->rank << 8 | (uint64_t)-code); /* pairs with hkt_communicator_state() */
        return hkt_fail(code, "%s", text);
    }
    for (const uint64_t since = hkt_now_ns(); !hkt_load_acquire(&s->poison) && hkt_now_ns() - since < 10 * HKT_SLEEP_NS;)
        hkt_pause(); /* the claimant is writing; should it die meanwhile, our own sentence serves */
    if (!hkt_load_acquire(&s->poison)) {
        hkt_store_release(&s->poison, 1ULL << 63 | (uint64_t)c->rank << 8 | (uint64_t)-code);
        return hkt_fail(code, "%s", text);
    }
    return hkt_communicator_dead(c);
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

/* The operation a rank entered last; NULL when none. */
static const struct hkt_line *last_line(const struct hkt_communicator *c, int r)
{
    const struct hkt_line *last = NULL;

    for (int i = 0; i < HKT_LINES; i++) {
        const struct hkt_line *l = &c->peer[r].cell->line[i];

        if (hkt_load_acquire(&l->number) > (last ? hkt_load_relaxed(&last->number) : 0))
            last = l;
    }
    return last;
}

/* "rank 5 (host h, pid 7): operation 16, barrier, has died" into text; returns the number. */
static uint64_t describe(const struct hkt_communicator *c, int r, char *text, size_t size)
{
    const struct hkt_line *line   = last_line(c, r);
    const uint64_t         number = line ? hkt_load_acquire(&line->number) : 0;
    char                   who[128], what[160] = "no operation yet";

    if (line) {
        const int n = snprintf(what, sizeof(what), "operation %llu, ", (unsigned long long)number);

        print_signature(&line->signature, what + n, sizeof(what) - (size_t)n);
    }
    snprintf(text, size, "%s: %s%s", hkt_communicator_who(c, r, who, sizeof(who)), what,
             !hkt_process_alive(c->peer[r].process)                                       ? ", has died"
             : atomic_load_explicit(&c->peer[r].cell->left, memory_order_relaxed)         ? ", has destroyed its end"
             : hkt_process_stopped(c->peer[r].process)                                    ? ", is stopped"
                                                                                          : "");
    return number;
}

void hkt_communicator_report(const struct hkt_communicator *c, char *text, size_t size)
{
    uint64_t newest = 0, number;
    char     line[384];
    size_t   n;

    for (int r = 0; r < c->size; r++) {
        number = describe(c, r, line, sizeof(line));
        newest = number > newest ? number : newest;
    }
    n = (size_t)snprintf(text, size, "communicator %s: %d ranks, newest operation %llu\n", c->name, c->size, (unsigned long long)newest);
    for (int r = 0; r < c->size; r++) {
        size_t len;

        number = describe(c, r, line, sizeof(line) - 16);
        strcat(line, number < newest ? ", missing\n" : "\n");
        len = strlen(line);
        if (n + len >= size)
            break;
        memcpy(text + n, line, len + 1);
        n += len;
    }
}

/* Ranks that have not come to operation `number`, as "rank 5 (...): last ...; rank 6 ...". */
static void missing(const struct hkt_communicator *c, uint64_t number, char *text, size_t size)
{
    size_t n = 0;
    char   line[384];

    text[0] = 0;
    for (int r = 0; r < c->size && n < size; r++)
        if (describe(c, r, line, sizeof(line)) < number)
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? "; " : "", line);
}

int hkt_communicator_lost(struct hkt_communicator *c, int why, int rank, const char *what, uint64_t number)
{
    char who[128], late[512], report[2048];

    hkt_communicator_who(c, rank, who, sizeof(who));
    switch (why) {
    case HKT_WAIT_POISON:
        return hkt_communicator_dead(c);
    case HKT_WAIT_DEAD:
        return hkt_communicator_kill(c, HKT_ERR_PEER, "communicator %s: %s %s while rank %d waited for it in %s, number %llu", c->name, who,
                                     hkt_process_alive(c->peer[rank].process) ? "destroyed its end" : "died", c->rank, what,
                                     (unsigned long long)number);
    default:
        missing(c, number, late, sizeof(late));
        hkt_communicator_report(c, report, sizeof(report));
        hkt_log(HKT_LOG_ERROR, "deadline passed; who is where:\n%s", report);
        return hkt_communicator_kill(c, HKT_ERR_TIMEOUT,
                                     "communicator %s: rank %d waited %g s in %s, number %llu, for %s; not there yet: %s; is it busy, stopped "
                                     "or in another call? the limit is HKT_TIMEOUT or hkt_config_t.timeout_s",
                                     c->name, c->rank, (double)c->waiter.timeout_ns * 1e-9, what, (unsigned long long)number, who,
                                     late[0] ? late : "it has entered but not gone on");
    }
}

/* ---- mismatch ---------------------------------------------------------------------------------------------------- */

/* Would rank r, having made the call in its line, have seen the lines of all others? In the flat algorithm some only show. */
static bool sees_all(const struct hkt_signature *s, int r)
{
    const enum hkt_coll coll = (enum hkt_coll)(s->what & 255);

    if (!hkt_collective[coll].rooted)
        return true;
    return (coll == HKT_COLL_REDUCE || coll == HKT_COLL_GATHER) && r == s->root;
}

int hkt_communicator_mismatch(struct hkt_communicator *c, const struct hkt_call *call, uint64_t number, int other)
{
    const struct hkt_signature mine = hkt_signature_make(call, c->size);
    char                       here[160], there[160], who[128], self[128];
    bool                       everybody = sees_all(&mine, c->rank);

    print_signature(&mine, here, sizeof(here));
    print_signature(&hkt_line_of(c, other, number)->signature, there, sizeof(there));
    for (int r = 0; r < c->size && everybody; r++)
        everybody = hkt_load_acquire(&hkt_line_of(c, r, number)->number) == number && sees_all(&hkt_line_of(c, r, number)->signature, r);
    hkt_communicator_who(c, c->rank, self, sizeof(self));
    hkt_communicator_who(c, other, who, sizeof(who));
    if (everybody)
        return hkt_fail(HKT_ERR_MISMATCH, "communicator %s, operation %llu: %s called %s, but %s called %s; nothing was done; make both ranks "
                                          "call the same", c->name, (unsigned long long)number, self, here, who, there);
    return hkt_communicator_kill(c, HKT_ERR_MISMATCH, "communicator %s, operation %llu: %s called %s, but %s called %s; the communicator cannot "
                                                      "go on; make both ranks call the same", c->name, (unsigned long long)number, self,
                                 here, who, there);
}
