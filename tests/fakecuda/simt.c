/* simt.c -- see simt.h.
 *
 * Under ThreadSanitizer each fiber is one of its fibers and barriers are told to it, so that a missing barrier or a relaxed flag between
 * ranks shows as a race; nothing in this file itself is watched. Switching is twenty instructions on x86-64, ucontext elsewhere.
 */
#include "simt.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__SANITIZE_THREAD__)
#define WATCHED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WATCHED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define POISONED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POISONED 1
#endif
#endif

#ifdef WATCHED
#include <sanitizer/tsan_interface.h>
#define UNWATCHED __attribute__((no_sanitize("thread"), noinline))
#define BEFORE(token) __tsan_release(token)
#define BEHIND(token) __tsan_acquire(token)
#else
#define UNWATCHED
#define BEFORE(token) ((void)(token))
#define BEHIND(token) ((void)(token))
#endif
#ifdef POISONED
#include <sanitizer/common_interface_defs.h>
#endif
#ifndef __x86_64__
#include <ucontext.h>
#endif

enum { STACK = 256 << 10, WARP = 32, MOST_SLOTS = 64, MOST_WARPS = 1024 / WARP };

enum state { READY, AT_BARRIER, AT_WARP, SPINNING, DONE };

struct simt_fiber {
    struct simt_thread thread;
    struct resident   *home;
    enum state         state;
    uint64_t           exchange;    /* what it shows to the others of its warp */
    unsigned           turn, wturn; /* barriers passed */
    char              *stack;
#ifdef __x86_64__
    void *sp;
#else
    ucontext_t context;
#endif
#ifdef WATCHED
    void *watched;
#endif
#ifdef POISONED
    void *fake_stack;
#endif
};

/* A block that runs. The tokens are what happens-before is told by. */
struct resident {
    struct simt_fiber *fiber;
    bool               active;
    unsigned           block, at_barrier, done, at_warp[MOST_WARPS];
    void              *shared;
    long               started, ended, barrier[2], warp[MOST_WARPS][2];
};

struct run {
    const struct simt_launch *launch;
    struct resident           slot[MOST_SLOTS];
    unsigned                  threads, slots, blocks, next, random;
    bool                      faulty;
#ifdef __x86_64__
    void *sp;
#else
    ucontext_t context;
#endif
#ifdef WATCHED
    void *watched;
#endif
#ifdef POISONED
    void       *fake_stack;
    const void *bottom;
    size_t      size;
#endif
};

__thread struct simt_thread *simt_current;
static __thread struct run  *current;

/* ---- switching --------------------------------------------------------------------------------------------------------------------------------- */

#ifdef __x86_64__
void fake_simt_switch(void **save, void *load);
__asm__(".text\n"
        ".globl fake_simt_switch\n"
        ".hidden fake_simt_switch\n"
        ".type fake_simt_switch,@function\n"
        "fake_simt_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n    ret\n"
        ".size fake_simt_switch, .-fake_simt_switch\n");
#endif

UNWATCHED static void to_scheduler(struct simt_fiber *f)
{
    struct run *r = current;

#ifdef POISONED
    __sanitizer_start_switch_fiber(f->state == DONE ? NULL : &f->fake_stack, r->bottom, r->size);
#endif
#ifdef WATCHED
    __tsan_switch_to_fiber(r->watched, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef __x86_64__
    fake_simt_switch(&f->sp, r->sp);
#else
    swapcontext(&f->context, &r->context);
#endif
#ifdef POISONED
    __sanitizer_finish_switch_fiber(f->fake_stack, NULL, NULL);
#endif
}

UNWATCHED static void to_fiber(struct simt_fiber *f)
{
    struct run *r = current;

    simt_current = &f->thread;
#ifdef POISONED
    __sanitizer_start_switch_fiber(&r->fake_stack, f->stack, STACK);
#endif
#ifdef WATCHED
    __tsan_switch_to_fiber(f->watched, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef __x86_64__
    fake_simt_switch(&r->sp, f->sp);
#else
    swapcontext(&r->context, &f->context);
#endif
#ifdef POISONED
    __sanitizer_finish_switch_fiber(r->fake_stack, NULL, NULL);
#endif
}

UNWATCHED static void begin(void)
{
    struct simt_fiber *f = simt_current->fiber;

#ifdef POISONED
    __sanitizer_finish_switch_fiber(NULL, &current->bottom, &current->size);
#endif
    BEHIND(&f->home->started);
    current->launch->kernel->function(current->launch->parameters);
    BEFORE(&f->home->ended);
    f->state = DONE;
    to_scheduler(f);
    abort();
}

/* ---- what kernels call ---------------------------------------------------------------------------------------------------------------------------- */

UNWATCHED static unsigned warp_of(const struct simt_fiber *f)
{
    return (unsigned)(f - f->home->fiber) / WARP;
}

UNWATCHED void simt_barrier(void)
{
    struct simt_fiber *f     = simt_current->fiber;
    long              *token = &f->home->barrier[f->turn++ & 1];

    f->state = AT_BARRIER;
    f->home->at_barrier++;
    BEFORE(token);
    to_scheduler(f);
    BEHIND(token);
}

UNWATCHED void simt_warp(void)
{
    struct simt_fiber *f     = simt_current->fiber;
    long              *token = &f->home->warp[warp_of(f)][f->wturn++ & 1];

    f->state = AT_WARP;
    f->home->at_warp[warp_of(f)]++;
    BEFORE(token);
    to_scheduler(f);
    BEHIND(token);
}

UNWATCHED uint64_t simt_shuffle(uint64_t value, unsigned lane)
{
    struct simt_fiber *f = simt_current->fiber, *first = f->home->fiber + warp_of(f) * WARP;
    uint64_t           other = value;

    f->exchange = value;
    simt_warp();
    if (first + lane % WARP < f->home->fiber + current->threads)
        other = first[lane % WARP].exchange;
    simt_warp();
    return other;
}

UNWATCHED unsigned simt_ballot(int predicate)
{
    struct simt_fiber *f = simt_current->fiber, *first = f->home->fiber + warp_of(f) * WARP;
    unsigned           bits = 0;

    f->exchange = predicate != 0;
    simt_warp();
    for (unsigned i = 0; i < WARP && first + i < f->home->fiber + current->threads; i++)
        bits |= (unsigned)first[i].exchange << i;
    simt_warp();
    return bits;
}

UNWATCHED static unsigned random_number(void)
{
    current->random = current->random * 1664525u + 1013904223u;
    return current->random >> 8;
}

UNWATCHED void simt_tear(void)
{
    const unsigned x = current->launch->seed ? random_number() : 1;

    if (x % 16)
        return;
    if (x & 256)
        sched_yield();
    to_scheduler(simt_current->fiber); /* still ready */
}

UNWATCHED void simt_pause(void)
{
    simt_current->fiber->state = SPINNING;
    to_scheduler(simt_current->fiber);
}

UNWATCHED void simt_misaligned(uint64_t address, unsigned size)
{
    if (!current->faulty)
        fprintf(stderr, "simt: %s: %#llx is no address for %u bytes at once\n", current->launch->kernel->name, (unsigned long long)address, size);
    current->faulty = true;
}

/* ---- blocks -------------------------------------------------------------------------------------------------------------------------------------------- */

UNWATCHED static void prepare_fiber(struct simt_fiber *f)
{
#ifdef __x86_64__
    void **sp = (void **)(void *)(f->stack + STACK - 64 - 256 * (f->thread.thread.x % 8)); /* not all in the same sets of the cache */

    *--sp = NULL; /* where begin() would return to */
    *--sp = (void *)begin;
    for (int k = 0; k < 6; k++)
        *--sp = NULL;
    f->sp = sp;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp   = f->stack;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link          = NULL;
    makecontext(&f->context, begin, 0);
#endif
#ifdef WATCHED
    if (!f->watched)
        f->watched = __tsan_create_fiber(0);
#endif
}

UNWATCHED static void start_block(struct run *r, struct resident *b)
{
    const simt_dim3 grid = r->launch->grid, block = r->launch->block;

    b->block  = r->next++;
    b->active = true;
    b->done = b->at_barrier = 0;
    memset(b->at_warp, 0, sizeof(b->at_warp));
    b->shared = r->launch->shared ? calloc(1, r->launch->shared) : NULL;
    for (unsigned i = 0; i < r->threads; i++) {
        struct simt_fiber *f = &b->fiber[i];

        f->thread = (struct simt_thread){
            .thread  = {i % block.x, i / block.x % block.y, i / block.x / block.y},
            .block   = {b->block % grid.x, b->block / grid.x % grid.y, b->block / grid.x / grid.y},
            .threads = block,
            .blocks  = grid,
            .shared  = b->shared,
            .fiber   = f,
        };
        f->home  = b;
        f->state = READY;
        f->turn = f->wturn = 0;
        prepare_fiber(f);
    }
    BEFORE(&b->started);
}

/* Lets those go on that have all arrived; true when somebody may. */
UNWATCHED static bool release(struct run *r, struct resident *b)
{
    bool any = false;

    for (unsigned w = 0; w * WARP < r->threads; w++) {
        const unsigned first = w * WARP, end = first + WARP < r->threads ? first + WARP : r->threads;
        unsigned       gone  = 0;

        if (!b->at_warp[w])
            continue;
        for (unsigned i = first; i < end; i++)
            gone += b->fiber[i].state == DONE;
        if (b->at_warp[w] + gone < end - first)
            continue;
        for (unsigned i = first; i < end; i++)
            if (b->fiber[i].state == AT_WARP)
                b->fiber[i].state = READY;
        b->at_warp[w] = 0;
        any           = true;
    }
    if (b->at_barrier && b->at_barrier + b->done == r->threads) {
        for (unsigned i = 0; i < r->threads; i++)
            if (b->fiber[i].state == AT_BARRIER)
                b->fiber[i].state = READY;
        b->at_barrier = 0;
        any           = true;
    }
    return any;
}

struct progress {
    bool ran, spun;
};

/* Each fiber of the block that can run, once. */
UNWATCHED static void pass(struct run *r, struct resident *b, struct progress *p)
{
    unsigned start = 0, step = 1;

    if (r->launch->seed) {
        start = random_number() % r->threads;
        step  = random_number() & 1 ? 1 : r->threads - 1;
    }
    for (unsigned k = 0, i = start; k < r->threads; k++, i = (i + step) % r->threads) {
        struct simt_fiber *f = &b->fiber[i];

        if (f->state == SPINNING) {
            p->spun  = true;
            f->state = READY;
        } else if (f->state == READY) {
            p->ran = true;
        } else {
            continue;
        }
        to_fiber(f);
        b->done += f->state == DONE;
    }
    p->ran |= release(r, b);
}

UNWATCHED static int stuck(const struct run *r)
{
    for (unsigned s = 0; s < r->slots; s++)
        if (r->slot[s].active)
            fprintf(stderr, "simt: %s: block %u: %u of %u threads are at a barrier, %u have ended, the others never come\n",
                    r->launch->kernel->name, r->slot[s].block, r->slot[s].at_barrier, r->threads, r->slot[s].done);
    return -1;
}

static void rest(const struct run *r, unsigned idle)
{
    const struct timespec pause = {0, idle < 1024 ? 20000 : 200000};

    if (r->launch->idle)
        r->launch->idle(r->launch->argument);
    if (idle < 64)
        sched_yield();
    else
        nanosleep(&pause, NULL);
}

UNWATCHED static int run_blocks(struct run *r)
{
    unsigned ended = 0, idle = 0;

    for (unsigned s = 0; s < r->slots; s++)
        start_block(r, &r->slot[s]);
    while (ended < r->blocks) {
        struct progress p     = {false, false};
        const unsigned  first = r->launch->seed ? random_number() % r->slots : 0;

        for (unsigned k = 0; k < r->slots; k++) {
            struct resident *b = &r->slot[(first + k) % r->slots];

            if (!b->active)
                continue;
            pass(r, b, &p);
            if (b->done < r->threads)
                continue;
            BEHIND(&b->ended);
            free(b->shared);
            b->active = false;
            ended++;
            if (r->next < r->blocks)
                start_block(r, b);
        }
        if (!p.ran && !p.spun)
            return stuck(r);
        idle = p.ran ? 0 : idle + 1;
        if (idle)
            rest(r, idle);
    }
    return 0;
}

/* ---- launches ------------------------------------------------------------------------------------------------------------------------------------------- */

void simt_pool_free(struct simt_pool *pool)
{
#ifdef WATCHED
    for (size_t i = 0; i < pool->count; i++)
        if (pool->fiber[i].watched)
            __tsan_destroy_fiber(pool->fiber[i].watched);
#endif
    if (pool->stacks)
        munmap(pool->stacks, pool->count * STACK);
    free(pool->fiber);
    pool->fiber  = NULL;
    pool->stacks = NULL;
    pool->count  = 0;
}

static int grow_pool(struct simt_pool *pool, size_t count)
{
    if (pool->count >= count)
        return 0;
    simt_pool_free(pool);
    pool->fiber  = calloc(count, sizeof(*pool->fiber));
    pool->stacks = mmap(NULL, count * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!pool->fiber || pool->stacks == MAP_FAILED) {
        fprintf(stderr, "simt: no memory for %zu fibers\n", count);
        return -1;
    }
    pool->count = count;
    for (size_t i = 0; i < count; i++)
        pool->fiber[i].stack = pool->stacks + i * STACK;
    return 0;
}

UNWATCHED int simt_run(const struct simt_launch *launch)
{
    struct run *r = calloc(1, sizeof(*r));
    int         error;

    if (!r)
        return -1;
    r->launch  = launch;
    r->threads = launch->block.x * launch->block.y * launch->block.z;
    r->blocks  = launch->grid.x * launch->grid.y * launch->grid.z;
    r->slots   = launch->slots && launch->slots < MOST_SLOTS ? launch->slots : MOST_SLOTS;
    r->slots   = r->slots < r->blocks ? r->slots : r->blocks;
    r->random  = launch->seed * 2654435761u + launch->pool->launches++;
    error      = grow_pool(launch->pool, (size_t)r->slots * r->threads);
    for (unsigned s = 0; s < r->slots; s++)
        r->slot[s].fiber = launch->pool->fiber + (size_t)s * r->threads;
#ifdef WATCHED
    r->watched = __tsan_get_current_fiber();
#endif
    current = r;
    if (!error)
        error = run_blocks(r) || r->faulty ? -1 : 0;
    current      = NULL;
    simt_current = NULL;
    free(r);
    return error;
}
