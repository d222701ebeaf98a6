/* roles.c -- see roles.h. Programs are found again by a hash of their content. */
#include "roles.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* Most messages of one run, and bytes of programs and of pairs: about ten seconds and 2 GiB. */
#define MOST_MESSAGES 60000000u
#define MOST_BYTES    ((uint64_t)1 << 31)

enum { BYTES_A_PAIR = 16, MOST_COMPARED = 200000 };

struct making {
    struct hkt_roles           *roles;
    const struct hkt_algorithm *a;
    struct hkt_shape            shape;
    const struct hkt_fabric    *fabric;
    uint32_t                   *table; /* program + 1 by hash; size a power of two */
    uint32_t                    slots;
    uint64_t                    bytes;
};

void hkt_roles_free(struct hkt_roles *roles)
{
    for (uint32_t i = 0; i < roles->programs; i++)
        hkt_program_free(&roles->program[i]);
    hkt_free(roles->program);
    hkt_free(roles->of);
    memset(roles, 0, sizeof(*roles));
}

static int program_of(struct making *m, uint32_t rank, struct hkt_program *p)
{
    m->shape.rank = (int)rank;
    return hkt_program_make(p, m->a, &m->shape, m->fabric->window > 1);
}

/* ---- may some stand for all? ------------------------------------------------------------------------------------- */

/* So many ranks see the fabric as the next so many do; what is shared is shared among them only. */
static uint32_t unit(const struct hkt_fabric *f)
{
    if (f->per_leaf)
        return (uint32_t)(f->per_leaf * f->per_host);
    if (f->hosts > 1 || f->bus > 0 || f->socket > 0)
        return (uint32_t)f->per_host;
    return f->per_cache ? (uint32_t)f->per_cache : 1;
}

/* The program of rank `rank` of the first unit against those at the same place in others. */
static int same_elsewhere(struct making *m, uint32_t rank, uint32_t width, bool *same)
{
    const uint32_t     units = m->roles->size / width, place[] = {1, 2, units / 2, units / 3, units - 1};
    struct hkt_program p, q;
    int                rc;

    HKT_TRY(program_of(m, rank, &p));
    rc = 0;
    for (size_t i = 0; i < sizeof(place) / sizeof(place[0]) && *same && !rc; i++) {
        if (!place[i] || place[i] >= units)
            continue;
        rc = program_of(m, place[i] * width + rank, &q);
        if (rc < 0)
            break;
        *same = hkt_program_equal(&p, &q);
        hkt_program_free(&q);
    }
    hkt_program_free(&p);
    return rc;
}

/* Every rank of the first unit where schedules are short, else at most four of them. */
static int compares(struct making *m, uint32_t width, bool *same)
{
    uint32_t step = 1;

    m->shape.rank = 0;
    if (width > 4 && hkt_algorithm_sent(m->a, &m->shape) * width > MOST_COMPARED)
        step = width / 4;
    *same = true;
    for (uint32_t r = 0; r < width && *same; r += step)
        HKT_TRY(same_elsewhere(m, r, width, same));
    return 0;
}

/* Sets roles->ranks. */
static int merge(struct making *m, bool all)
{
    struct hkt_roles *r     = m->roles;
    const uint32_t    width = unit(m->fabric);
    bool              same  = false;

    r->ranks = r->size;
    if (m->fabric->seat || hkt_coll_in(m->shape.coll, HKT_COLLS_ROOTED) || r->size % width || r->size / width < 2)
        return 0;
    HKT_TRY(compares(m, width, &same));
    if (same && !all)
        r->ranks = width;
    return 0;
}

/* ---- the programs of those that are run -------------------------------------------------------------------------- */

static int refuse(const struct making *m, const char *what)
{
    return hkt_fail(HKT_ERR_UNSUPPORTED,
                    "%s %s over %u ranks takes more %s than one simulation is given, since its ranks cannot stand for each other on this fabric; "
                    "take fewer ranks, or an algorithm with logarithmic steps (radix, tree)",
                    m->a->name, hkt_coll_name[m->shape.coll], m->roles->size, what);
}

/* Before the first schedule is built. */
static int check_length(struct making *m)
{
    const uint32_t sample[] = {0, m->roles->ranks / 2, m->roles->ranks - 1};
    uint64_t       most     = 0;

    for (size_t i = 0; i < sizeof(sample) / sizeof(sample[0]); i++) {
        uint64_t sent;

        m->shape.rank = (int)sample[i];
        sent          = hkt_algorithm_sent(m->a, &m->shape);
        most          = sent > most ? sent : most;
    }
    return most * m->roles->ranks > 4 * (uint64_t)MOST_MESSAGES ? refuse(m, "messages") : 0;
}

static int keep(struct making *m, struct hkt_program *p, uint32_t *index)
{
    struct hkt_roles *r    = m->roles;
    uint32_t          slot = (uint32_t)p->hash & (m->slots - 1);

    for (; m->table[slot]; slot = (slot + 1) & (m->slots - 1))
        if (hkt_program_equal(&r->program[m->table[slot] - 1], p)) {
            *index = m->table[slot] - 1;
            hkt_program_free(p);
            return 0;
        }
    if (r->programs == r->cap) {
        void *more = hkt_realloc(r->program, (r->cap ? 2 * (size_t)r->cap : 16) * sizeof(*r->program));

        if (!more)
            return HKT_ERR_MEMORY;
        r->program = more;
        r->cap     = r->cap ? 2 * r->cap : 16;
    }
    m->table[slot]            = r->programs + 1;
    *index                    = r->programs;
    r->program[r->programs++] = *p;
    m->bytes += p->nsteps * sizeof(*p->step) + p->nat * sizeof(*p->at) + p->npeers * sizeof(*p->peer);
    return 0;
}

static int make_all(struct making *m)
{
    struct hkt_roles *r = m->roles;

    for (uint32_t rank = 0; rank < r->ranks; rank++) {
        struct hkt_program p;

        HKT_TRY(program_of(m, rank, &p));
        r->messages += p.messages;
        r->peers += p.npeers;
        if (keep(m, &p, &r->of[rank]) < 0) {
            hkt_program_free(&p);
            return HKT_ERR_MEMORY;
        }
        if (r->messages > MOST_MESSAGES)
            return refuse(m, "messages");
        if (m->bytes + r->peers * BYTES_A_PAIR > MOST_BYTES)
            return refuse(m, "memory");
    }
    return 0;
}

int hkt_roles_make(struct hkt_roles *roles, const struct hkt_algorithm *a, const struct hkt_shape *shape, const struct hkt_fabric *f, bool all)
{
    struct making m = {.roles = roles, .a = a, .shape = *shape, .fabric = f, .slots = 64};
    int           rc;

    memset(roles, 0, sizeof(*roles));
    roles->size = (uint32_t)shape->size;
    rc          = merge(&m, all);
    if (rc == 0)
        rc = check_length(&m);
    while (m.slots < 2 * roles->ranks)
        m.slots *= 2;
    if (rc == 0) {
        m.table   = hkt_alloc(m.slots * sizeof(*m.table));
        roles->of = hkt_alloc(roles->ranks * sizeof(*roles->of));
        rc        = m.table && roles->of ? make_all(&m) : HKT_ERR_MEMORY;
    }
    hkt_free(m.table);
    if (rc < 0)
        hkt_roles_free(roles);
    return rc;
}
