/* topology_text.c -- a machine from one line of text, for tests, plans and simulations. See topology.h; the grammar, also for users, is in
 * docs/topology.md:
 *
 *   text   = clause { ";" clause }
 *   clause = count kind { word }
 *   kind   = hosts | sockets | numa | caches | cores | switches | gpus | nics      (or without the s)
 *
 * in this order. Each count is that of every object around it: "2 sockets; 4 gpus" are 8 GPUs. Hosts hold sockets, these memory nodes, these
 * caches, these cores; switches stand in the innermost of hosts, sockets and memory nodes; GPUs and NICs in the switches, or where those
 * would be. A level that is not named is not there; there is one host unless said otherwise. `cores` may come twice (fast, then slow ones).
 */
#include "topology.h"

#include "base/error.h"
#include "hocket.h"
#include "setup/topology_value.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { CLAUSES = 12, WORDS = 8, WORD = 40 };

/* What joins the GPUs of a host. */
enum joint { APART, EVERY_PAIR, BY_FABRIC };

struct clause {
    enum hkt_object_kind kind;
    int                  count, threads, per_leaf;
    struct hkt_object    like; /* what the words say of each */
    enum joint           joint;
    struct hkt_gpu_link      wire;
};

struct parser {
    const char    *text, *at;
    struct clause  clause[CLAUSES];
    int            clauses;
};

static const struct {
    const char          *name;
    enum hkt_object_kind kind;
    int                  most; /* of one parent */
} kinds[] = {{"host", HKT_OBJECT_HOST, 1 << 17}, {"socket", HKT_OBJECT_SOCKET, 64}, {"numa", HKT_OBJECT_NUMA, 64},
             {"cache", HKT_OBJECT_CACHE, 256},   {"core", HKT_OBJECT_CORE, 1024},   {"switche", HKT_OBJECT_SWITCH, 64},
             {"gpu", HKT_OBJECT_GPU, 256},       {"nic", HKT_OBJECT_NIC, 256}};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static int complain(const struct parser *p, const char *word, const char *what)
{
    return hkt_fail(HKT_ERR_ARGUMENT, "the machine \"%.200s\": \"%.60s\": %s", p->text, word, what);
}

/* The next word of the clause; "": its end. -1: too long. */
static int next_word(struct parser *p, char word[WORD])
{
    size_t n;

    p->at += strspn(p->at, " \t\n");
    n = strcspn(p->at, " \t\n;");
    memcpy(word, p->at, n < WORD ? n : WORD - 1);
    word[n < WORD ? n : WORD - 1] = 0;
    if (n >= WORD)
        return complain(p, word, "no word is that long");
    p->at += n;
    return (int)n;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* "2 threads", "16 per leaf": words behind a number. */
static int take_counted(struct parser *p, struct clause *c, const char *number)
{
    char word[WORD];

    HKT_TRY(next_word(p, word));
    if (c->kind == HKT_OBJECT_CORE && (strcmp(word, "threads") == 0 || strcmp(word, "thread") == 0)) {
        if (!hkt_value_integer(number, 1, HKT_OBJECT_CPUS, &c->threads))
            return complain(p, number, "a core has 1 to 8 threads");
        return HKT_OK;
    }
    if (c->kind == HKT_OBJECT_HOST && strcmp(word, "per") == 0) {
        HKT_TRY(next_word(p, word));
        if (strcmp(word, "leaf") || !hkt_value_integer(number, 1, 1 << 17, &c->per_leaf))
            return complain(p, number, "hosts may be so many \"per leaf\", 1 to 131072");
        return HKT_OK;
    }
    return complain(p, word, "a number is followed by \"threads\" (cores) or \"per leaf\" (hosts)");
}

static bool take_joint(struct clause *c, const char *word)
{
    const bool nvlink = strcmp(word, "nvlink") == 0, fabric = strcmp(word, "nvswitch") == 0;

    if (c->kind != HKT_OBJECT_GPU || (!nvlink && !fabric && strcmp(word, "xgmi")))
        return false;
    c->joint      = fabric ? BY_FABRIC : EVERY_PAIR;
    c->wire.class = nvlink || fabric ? HKT_CLASS_NVLINK : HKT_CLASS_XGMI;
    return true;
}

static int take_word(struct parser *p, struct clause *c, const char *word)
{
    double rate;

    if (c->joint != APART && c->wire.bandwidth <= 0 && hkt_value_rate(word, &rate)) { /* behind "nvlink": of the link */
        c->wire.bandwidth = rate;
        return HKT_OK;
    }
    if (word[strspn(word, "0123456789")] == 0)
        return take_counted(p, c, word);
    if (take_joint(c, word))
        return HKT_OK;
    if (strcmp(word, "slow") == 0 && c->kind == HKT_OBJECT_CORE) {
        c->like.slow = true;
        return HKT_OK;
    }
    if (isdigit((unsigned char)word[0]))
        return !hkt_attribute_set(&c->like, "rate", word) || !hkt_attribute_set(&c->like, "memory", word) ||
                       !hkt_attribute_set(&c->like, "size", word)
                   ? HKT_OK
                   : complain(p, word, "is no size (80GiB) or bandwidth (400Gb/s) that such an object has");
    if (c->like.name[0] || hkt_attribute_set(&c->like, "name", word))
        return complain(p, word, "is no word for such an object");
    return HKT_OK;
}

static int take_kind(const char *word)
{
    const size_t n = strlen(word);

    for (int k = 0; k < KINDS; k++) {
        const size_t full = strlen(kinds[k].name);

        if (strncmp(word, kinds[k].name, full) == 0 && (n == full || (n == full + 1 && word[full] == 's')))
            return k;
    }
    return strcmp(word, "switch") == 0 ? 5 : -1;
}

static int take_clause(struct parser *p)
{
    struct clause *c = &p->clause[p->clauses];
    char           number[WORD], word[WORD];
    int            k, n;

    HKT_TRY(next_word(p, number));
    HKT_TRY(next_word(p, word));
    if (p->clauses == CLAUSES)
        return complain(p, number, "there are too many clauses");
    k = take_kind(word);
    if (k < 0)
        return complain(p, word, "a number and hosts, sockets, numa, caches, cores, switches, gpus or nics are expected");
    *c = (struct clause){.kind = kinds[k].kind, .threads = 1, .like = {.kind = kinds[k].kind, .leaf = HKT_LEAF_UNKNOWN}};
    if (!hkt_value_integer(number, 1, kinds[k].most, &c->count))
        return complain(p, number, "is not the number of such objects around one another: from 1 to a limit (docs/topology.md)");
    if (p->clauses && (c[-1].kind > c->kind || (c[-1].kind == c->kind && c->kind != HKT_OBJECT_CORE)))
        return complain(p, word, "hosts, sockets, numa, caches, cores, switches, gpus and nics come in this order, each once");
    if (c->kind == HKT_OBJECT_CACHE)
        c->like.level = 3;
    while ((n = next_word(p, word)) > 0)
        HKT_TRY(take_word(p, c, word));
    p->clauses++;
    return n;
}

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

/* What the i-th clause's objects stand in. */
static enum hkt_object_kind holder(const struct parser *p, int i)
{
    const enum hkt_object_kind kind = p->clause[i].kind;
    enum hkt_object_kind       in   = HKT_OBJECT_MACHINE;

    for (int c = 0; c < i; c++)
        if (p->clause[c].kind <= HKT_OBJECT_NUMA || (kind < HKT_OBJECT_SWITCH && p->clause[c].kind == HKT_OBJECT_CACHE) ||
            (kind > HKT_OBJECT_SWITCH && p->clause[c].kind == HKT_OBJECT_SWITCH))
            in = p->clause[c].kind == kind ? in : p->clause[c].kind;
    return in;
}

/* Threads get the numbers that Linux gives: the first of every core of the host, then the second. */
static void number_threads(struct hkt_topology *t, int host)
{
    int next = 0;

    for (int thread = 0; thread < HKT_OBJECT_CPUS; thread++)
        for (int o = host; o < t->object[host].end; o++)
            if (t->object[o].kind == HKT_OBJECT_CORE && thread < t->object[o].cpus)
                t->object[o].cpu[thread] = (int16_t)(next++ & INT16_MAX);
}

static int join(struct hkt_topology *t, const struct clause *c, int host)
{
    const int fabric = c->joint == BY_FABRIC ? hkt_object_open(t, HKT_OBJECT_FABRIC) : 0;

    if (fabric < 0)
        return fabric;
    if (fabric) {
        snprintf(t->object[fabric].name, HKT_NAME_BYTES, "NVSwitch");
        hkt_object_close(t);
    }
    for (int a = host; a < t->objects; a++) {
        if (t->object[a].kind != HKT_OBJECT_GPU)
            continue;
        if (fabric)
            HKT_TRY(hkt_gpu_link_add(t, a, fabric, c->wire));
        for (int b = a + 1; !fabric && b < t->objects; b++)
            if (t->object[b].kind == HKT_OBJECT_GPU)
                HKT_TRY(hkt_gpu_link_add(t, a, b, c->wire));
    }
    return HKT_OK;
}

/* So many hosts have a leaf switch for each of their rails. */
static void plug(struct hkt_topology *t, const struct clause *c, int host)
{
    const int rails = t->counted[HKT_OBJECT_NIC];

    for (int o = host; o < t->objects && c->per_leaf; o++)
        if (t->object[o].kind == HKT_OBJECT_NIC)
            t->object[o].leaf = t->object[host].number / c->per_leaf * rails + t->object[o].number;
}

static int finish_host(const struct parser *p, struct hkt_topology *t, const struct clause *c, int host)
{
    for (int i = 0; i < p->clauses; i++)
        if (p->clause[i].joint != APART)
            HKT_TRY(join(t, &p->clause[i], host));
    plug(t, c, host);
    t->object[host].end = t->objects;
    number_threads(t, host);
    return HKT_OK;
}

/* The objects of all clauses that stand in one of `in`, which is open, and what they hold. As deep as there are kinds. */
static int fill(const struct parser *p, struct hkt_topology *t, enum hkt_object_kind in)
{
    for (int i = 0; i < p->clauses; i++) {
        const struct clause *c = &p->clause[i];

        for (int n = 0; n < c->count && holder(p, i) == in; n++) {
            const int         o = hkt_object_open(t, c->kind);
            struct hkt_object like = c->like;

            if (o < 0)
                return o;
            like.parent  = t->object[o].parent;
            like.number  = t->object[o].number;
            like.cpus    = c->kind == HKT_OBJECT_CORE ? c->threads : 0;
            t->object[o] = like;
            if (like.name[0] && strchr("_-", like.name[strlen(like.name) - 1])) /* "node-": node-0, node-1 */
                snprintf(t->object[o].name, HKT_NAME_BYTES, "%.20s%d", like.name, like.number);
            HKT_TRY(fill(p, t, c->kind));
            if (c->kind == HKT_OBJECT_HOST)
                HKT_TRY(finish_host(p, t, c, o));
            hkt_object_close(t);
        }
    }
    return HKT_OK;
}

static int make(struct parser *p, struct hkt_topology *t)
{
    int rc = hkt_topology_begin(t);

    if (rc >= 0)
        rc = fill(p, t, HKT_OBJECT_MACHINE);
    if (rc >= 0)
        rc = hkt_topology_finish(t);
    if (rc)
        hkt_topology_free(t);
    return rc;
}

int hkt_topology_text(struct hkt_topology *t, const char *text)
{
    struct parser p = {.text = text, .at = text};

    memset(t, 0, sizeof(*t));
    for (;;) {
        HKT_TRY(take_clause(&p));
        if (p.clause[0].kind != HKT_OBJECT_HOST) { /* not named: one */
            p.clause[1] = p.clause[0];
            p.clause[0] = (struct clause){.kind = HKT_OBJECT_HOST, .count = 1, .like = {.kind = HKT_OBJECT_HOST, .leaf = HKT_LEAF_UNKNOWN}};
            p.clauses++;
        }
        if (*p.at != ';')
            break;
        p.at++;
        p.at += strspn(p.at, " \t\n");
        if (!*p.at)
            break;
    }
    return make(&p, t);
}
