/* communicator.c -- how a communicator dies and what it says: the poison word, the sentences, the report.
 *
 * The first rank that finds a reason claims the sentence, writes it, and sets the poison word; everybody else repeats it. Sleeping ranks look
 * at the word every HKT_SLEEP_NS, so nobody need be woken. Calls made later fail at once with the same sentence.
 */
#include "run/communicator.h"

#include "base/error.h"
#include "base/log.h"
#include "language/dtype.h"
#include "run/far.h"
#include "run/tune.h"

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

enum { TYPE = 8, OP = 12, VECTOR = 15, HISTORY = 16 }; /* bit positions in hkt_signature.what */

struct hkt_signature hkt_signature_of(const struct hkt_call *call)
{
    return (struct hkt_signature){.count = call->count,
                                  .what  = (uint32_t)call->coll | hkt_signature_type(call->type) |
                                          (uint32_t)(call->op == HKT_PREMUL_SUM ? HKT_OPS : call->op) << OP,
                                  .root = hkt_collective[call->coll].rooted ? call->root : 0};
}

struct hkt_signature hkt_signature_make(struct hkt_communicator *c, const struct hkt_call *call)
{
    struct hkt_signature s = hkt_signature_of(call);

    if (call->arrays) { /* the same arrays on every rank; but in all_to_all_v, where the table tells */
        s.what |= 1u << VECTOR;
        s.count = call->coll == HKT_COLL_ALL_TO_ALL ? 0 : hash_counts(hkt_array(call, HKT_IN_COUNTS, c->size), c->size);
    }
    s.what |= c->history & ~0u << HISTORY;
    c->history = (c->history ^ s.what ^ (uint32_t)s.count ^ (uint32_t)(s.count >> 32) ^ (uint32_t)s.root << 8) * 2654435761u;
    return s;
}

uint32_t hkt_signature_type(hkt_type_t type)
{
    return (uint32_t)type << TYPE;
}

static struct hkt_call call_of(const struct hkt_signature *s)
{
    const uint32_t   op   = s->what >> OP & 7;
    const hkt_type_t type = (hkt_type_t)(s->what >> TYPE & 15);

    return (struct hkt_call){.coll    = (enum hkt_coll)(s->what & 255),
                             .type    = type,
                             .count   = s->count,
                             .element = hkt_type_size(type),
                             .root    = s->root,
                             .op      = op == HKT_OPS ? HKT_PREMUL_SUM : (hkt_op_t)op};
}

void hkt_signature_print(const struct hkt_signature *s, char *text, size_t size)
{
    const struct hkt_call call = call_of(s);

    if (s->what >> VECTOR & 1) /* the count is a hash */
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

/* The first to come writes the sentence and sets the poison word. False: somebody else has. */
static bool claim(struct hkt_communicator *c, int code, const char *text)
{
    struct hkt_shared *s     = c->shared;
    uint32_t           first = 0;

    if (!atomic_compare_exchange_strong(&s->claim, &first, 1))
        return false;
    snprintf(s->sentence, sizeof(s->sentence), "%s", text);
    hkt_store_release(&s->poison, 1ULL << 63 | (uint64_t)c->rank << 8 | (uint64_t)-code); /* pairs with hkt_communicator_state() */
    return true;
}

void hkt_communicator_hear(struct hkt_communicator *c, int code, const char *sentence)
{
    if (claim(c, code, sentence))
        hkt_log(HKT_LOG_INFO, "another host: %s", sentence);
}

int hkt_communicator_kill(struct hkt_communicator *c, int code, const char *format, ...)
{
    struct hkt_shared *s = c->shared;
    char               text[HKT_SENTENCE];
    va_list            args;

    va_start(args, format); /* the arguments may be the last error */
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (claim(c, code, text)) {
        if (c->far)
            hkt_wire_poison(c->far->wire, code, text);
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

    for (int i = 0; i < HKT_LINES && hkt_near(c, r); i++) {
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
    char                   who[128], what[160];

    snprintf(what, sizeof(what), hkt_near(c, r) ? "no operation yet" : "on another host");
    if (line) {
        const int n = snprintf(what, sizeof(what), "operation %llu, ", (unsigned long long)number);

        hkt_signature_print(&line->signature, what + n, sizeof(what) - (size_t)n);
    }
    snprintf(text, size, "%s: %s%s", hkt_communicator_who(c, r, who, sizeof(who)), what,
             !hkt_process_alive(c->peer[r].process)                                       ? ", has died"
             : hkt_peer_left(c, r)                                                        ? ", has destroyed its end"
             : hkt_near(c, r) && hkt_process_stopped(c->peer[r].process)                  ? ", is stopped"
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
        strcat(line, number < newest && hkt_near(c, r) ? ", missing\n" : "\n");
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
        if (describe(c, r, line, sizeof(line)) < number && hkt_near(c, r))
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
                                     late[0]             ? late
                                     : hkt_near(c, rank) ? "it has entered but not gone on"
                                                         : "what it should have sent from its host");
    }
}

int hkt_communicator_blame(struct hkt_communicator *c, int code, const char *what, uint64_t number)
{
    char sentence[HKT_SENTENCE];

    if (hkt_communicator_state(c))
        return hkt_communicator_dead(c);
    for (int r = 0; r < c->size; r++)
        if (!hkt_process_alive(c->peer[r].process))
            return hkt_communicator_lost(c, HKT_WAIT_DEAD, r, what, number);
    snprintf(sentence, sizeof(sentence), "%s", hkt_last_error());
    return hkt_communicator_kill(c, code, "communicator %s: rank %d failed in %s, number %llu: %s", c->name, c->rank, what,
                                 (unsigned long long)number, sentence);
}

/* ---- mismatch ---------------------------------------------------------------------------------------------------- */

/* Would rank r, having made the call in its line, have seen the lines of all others? In the flat algorithm some only show. */
static bool sees_all(const struct hkt_communicator *c, int r, uint64_t number)
{
    const struct hkt_signature *s    = &hkt_line_of(c, r, number)->signature;
    const struct hkt_call       call = call_of(s);

    if (hkt_load_acquire(&hkt_line_of(c, r, number)->number) != number)
        return false;
    if (!hkt_collective[call.coll].rooted || s->what >> VECTOR & 1 || !hkt_tune_flat(c, &call))
        return true;
    return (call.coll == HKT_COLL_REDUCE || call.coll == HKT_COLL_GATHER) && r == s->root;
}

/* The first operation, of those whose lines still stand, in which rank `other` made another call than this one. */
static uint64_t first_difference(const struct hkt_communicator *c, uint64_t number, int other)
{
    uint64_t k = number > HKT_LINES ? number - HKT_LINES + 1 : 1;

    for (k = k > c->settled ? k : c->settled + 1; k < number; k++) {
        const struct hkt_line *mine = hkt_line_of(c, c->rank, k), *theirs = hkt_line_of(c, other, k);

        if (hkt_load_acquire(&theirs->number) == k && !hkt_signature_equal(&mine->signature, &theirs->signature))
            break;
    }
    return k;
}

int hkt_communicator_mismatch(struct hkt_communicator *c, uint64_t number, int other)
{
    const uint64_t first     = first_difference(c, number, other);
    bool           everybody = first == number;
    char           here[160], there[160], who[128], self[128];

    hkt_signature_print(&hkt_line_of(c, c->rank, first)->signature, here, sizeof(here));
    hkt_signature_print(&hkt_line_of(c, other, first)->signature, there, sizeof(there));
    for (int r = 0; r < c->size && everybody; r++)
        everybody = !c->far && sees_all(c, r, number); /* other hosts hear of it only by its end */
    hkt_communicator_who(c, c->rank, self, sizeof(self));
    hkt_communicator_who(c, other, who, sizeof(who));
    if (everybody) {
        c->settled = number; /* everybody knows */
        c->history = 0;
        return hkt_fail(HKT_ERR_MISMATCH,
                        "communicator %s, operation %llu: %s called %s, but %s called %s; nothing was done; make both ranks call the same",
                        c->name, (unsigned long long)first, self, here, who, there);
    }
    return hkt_communicator_kill(c, HKT_ERR_MISMATCH,
                                 "communicator %s, operation %llu: %s called %s, but %s called %s; the communicator cannot go on; make both "
                                 "ranks call the same",
                                 c->name, (unsigned long long)first, self, here, who, there);
}
