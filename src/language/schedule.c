/* schedule.c -- writing steps. Operands of all steps share one array: a schedule is two blocks of memory, whatever its length. */
#include "schedule.h"

#include "base/error.h"
#include "base/memory.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

void hkt_schedule_free(struct hkt_schedule *s)
{
    hkt_free(s->step);
    hkt_free(s->operand);
    memset(s, 0, sizeof(*s));
}

/* Makes room for one more element; true when there is room. */
static bool grow(struct hkt_schedule *s, void **array, uint32_t used, uint32_t *cap, size_t each)
{
    if (s->error)
        return false;
    if (used == *cap) {
        const uint32_t more = *cap ? *cap * 2 : 32;
        void          *p    = more > *cap ? hkt_realloc(*array, more * each) : NULL;

        if (!p) {
            s->error = HKT_ERR_MEMORY;
            return false;
        }
        *array = p;
        *cap   = more;
    }
    return true;
}

void hkt_step(struct hkt_schedule *s, unsigned flags)
{
    void *steps = s->step;

    if (grow(s, &steps, s->nsteps, &s->step_cap, sizeof(*s->step))) {
        s->step              = steps;
        s->step[s->nsteps++] = (struct hkt_step){.first = s->noperands, .flags = (uint16_t)flags};
    }
}

/* Adds an operand to the step being written and counts it in *count. */
static void add(struct hkt_schedule *s, enum hkt_place place, int id, uint16_t *count)
{
    void *operands = s->operand;

    assert(id >= 0);
    if (*count == UINT16_MAX) {
        s->error = hkt_fail(HKT_ERR_UNSUPPORTED, "a schedule step with more than %d operands of one kind", UINT16_MAX);
        return;
    }
    if (!grow(s, &operands, s->noperands, &s->operand_cap, sizeof(*s->operand)))
        return;
    s->operand                 = operands;
    s->operand[s->noperands++] = (struct hkt_operand){.place = (uint8_t)place, .id = (uint32_t)id};
    if (place == HKT_TMP && s->tmp_chunks <= (uint32_t)id)
        s->tmp_chunks = (uint32_t)id + 1;
    ++*count;
}

void hkt_from(struct hkt_schedule *s, enum hkt_place place, int id)
{
    if (s->error)
        return;
    assert(s->nsteps && s->step[s->nsteps - 1].ndst == 0); /* sources come before destinations */
    add(s, place, id, &s->step[s->nsteps - 1].nsrc);
}

void hkt_to(struct hkt_schedule *s, enum hkt_place place, int id)
{
    if (s->error)
        return;
    assert(s->nsteps && place != HKT_IN);
    add(s, place, id, &s->step[s->nsteps - 1].ndst);
}

void hkt_copy(struct hkt_schedule *s, enum hkt_place from, int from_id, enum hkt_place to, int to_id)
{
    hkt_step(s, 0);
    hkt_from(s, from, from_id);
    hkt_to(s, to, to_id);
}

int hkt_schedule_end(struct hkt_schedule *s)
{
    return s->error;
}
