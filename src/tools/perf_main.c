/* perf_main.c -- hkt-perf: flags, ranks (processes, threads of them, or both), and the walk over what was asked for. */
#include "perf.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct perf_settings perf = {.type     = "float32",
                             .op       = "sum",
                             .root     = "0",
                             .begin    = 8,
                             .end      = 64 << 20,
                             .factor   = 4,
                             .timeout  = -1,
                             .threads  = 1,
                             .warmup   = 5,
                             .together = 1,
                             .cycles   = 1,
                             .check    = 1,
                             .average  = AVERAGE_MEAN,
                             .blocking = 1};

static const struct flag rows[] = {
    {'C', "collective", FLAG_TEXT, &perf.collective, 0, 0, "NAMES",
     "What to measure, or all; as the first words, too."},
    {'t', "nthreads", FLAG_INTEGER, &perf.threads, 1, 4096, "N", "Ranks in each process, as threads."},
    {'b', "minbytes", FLAG_BYTES, &perf.begin, 0, 0x1p62, "BYTES", "Smallest size."},
    {'e', "maxbytes", FLAG_BYTES, &perf.end, 0, 0x1p62, "BYTES", "Greatest size."},
    {'i', "stepbytes", FLAG_BYTES, &perf.step, 0, 0x1p62, "BYTES", "Step between sizes, instead of a factor; 0: none."},
    {'f', "stepfactor", FLAG_NUMBER, &perf.factor, 1.001, 1e9, "F", "Factor between sizes."},
    {'n', "iters", FLAG_INTEGER, &perf.iters, 0, 1e9, "N", "Operations that are timed; 0: as many as take 0.1 s."},
    {'w', "warmup_iters", FLAG_INTEGER, &perf.warmup, 0, 1e9, "N", "Operations before, not timed."},
    {'m', "agg_iters", FLAG_INTEGER, &perf.together, 1, 1e6, "N", "Operations that are started together, in a group."},
    {'N', "run_cycles", FLAG_INTEGER, &perf.cycles, 0, 1e9, "N", "Runs everything N times; 0: until stopped."},
    {'c', "check", FLAG_INTEGER, &perf.check, 0, 1e6, "N",
     "Checked operations before and after the timing; 0: no check."},
    {'o', "op", FLAG_TEXT, &perf.op, 0, 0, "NAMES",
     "sum, prod, min, max, avg, premul_sum, several with commas, or all."},
    {'d', "datatype", FLAG_TEXT, &perf.type, 0, 0, "NAMES", "Types, with commas, or all."},
    {'r', "root", FLAG_TEXT, &perf.root, 0, 0, "RANKS", "Roots, with commas, or all."},
    {'z', "blocking", FLAG_INTEGER, &perf.blocking, 0, 1, "0|1",
     "0: operations go on a stream, which is waited for at the end."},
    {'R', "local_register", FLAG_INTEGER, &perf.memory, 0, 2, "0|1|2",
     "Buffers: 0 malloc, 1 registered, 2 hkt_mem_alloc."},
    {'u', "misalign", FLAG_INTEGER, &perf.misalign, 0, 4096, "BYTES",
     "Buffers begin this far behind the start of a page."},
    {'a', "average", FLAG_INTEGER, &perf.average, 0, 3, "0|1|2|3",
     "Time shown: 0 of rank 0, 1 average, 2 minimum, 3 maximum over ranks."},
    {0, "stat", FLAG_WORD, &perf.statistic, 0, 0, "avg|median|min",
     "Of the operations, or of up to 25 batches of them."},
    {0, "shift", FLAG_BYTES, &perf.shift, 0, 0x1p62, "BYTES",
     "Moves through an area of this size, so that data is not in the cache."},
    {'T', "timeout", FLAG_NUMBER, &perf.timeout, 0, 1e9, "SECONDS",
     "How long a call waits for a silent rank (HKT_TIMEOUT by default)."},
    {'J', "json", FLAG_TEXT, &perf.json, 0, 0, "FILE", "Writes the results as JSON."},
    {0, "svg", FLAG_TEXT, &perf.svg, 0, 0, "FILE", "Draws time and bandwidth over size."},
    {'v', "verbose", FLAG_ON, &perf.verbose, 0, 0, NULL, "Adds processor time, page faults and context switches."},
};

static const struct flags flags = {"hkt-perf",
                                   "collective [flags]     (hkt-run -n 4 hkt-perf all_reduce -b 8 -e 64M)",
                                   "Measures collectives and proves their results.",
                                   rows,
                                   sizeof(rows) / sizeof(rows[0]),
                                   false};

/* ---- what was asked for ------------------------------------------------------------------------------------------ */

enum { MOST_ROOTS = 4096 };

static struct {
    const struct perf_case *what[64];
    int                     whats, types, ops, roots;
    int                     type[HKT_TYPES], op[HKT_OPS + 1], root[MOST_ROOTS];
    size_t                  room; /* of an area */
} plan;

static const struct {
    const char *word, *name;
} aliases[] = {
    {"float", "float32"},      {"double", "float64"},       {"half", "float16"},         {"fp32", "float32"},
    {"fp64", "float64"},       {"fp16", "float16"},         {"bf16", "bfloat16"},        {"f8e4m3", "float8_e4m3"},
    {"f8e5m2", "float8_e5m2"}, {"fp8_e4m3", "float8_e4m3"}, {"fp8_e5m2", "float8_e5m2"}, {"mulsum", "premul_sum"},
};

static const char *canonical(const char *word)
{
    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
        if (strcmp(word, aliases[i].word) == 0)
            return aliases[i].name;
    return word;
}

static const char *op_name(int i)
{
    return i == HKT_OPS ? "premul_sum" : hkt_op_name((hkt_op_t)i);
}

static const char *type_name(int i)
{
    return hkt_type_name((hkt_type_t)i);
}

/* The words of `list`, or everything for "all", as indices of names. */
static int choose(const char *what, const char *list, const char *(*name)(int), int names, int *chosen)
{
    char *words = strdup(list), *rest = words, *word;
    int   n = 0;

    while ((word = strsep(&rest, ",")) != NULL) {
        const bool all   = strcmp(word, "all") == 0;
        bool       known = all;

        for (int i = 0; i < names; i++)
            if ((all || strcmp(canonical(word), name(i)) == 0) && n < names) {
                chosen[n++] = i;
                known       = true;
            }
        if (!known)
            flags_fail(&flags, "%s is no %s", word, what);
    }
    free(words);
    return n;
}

static void choose_roots(int size)
{
    char *words = strdup(perf.root), *rest = words, *word;

    if (strcmp(perf.root, "all") == 0)
        for (int r = 0; r < size && r < MOST_ROOTS; r++)
            plan.root[plan.roots++] = r;
    else
        while ((word = strsep(&rest, ",")) != NULL && plan.roots < MOST_ROOTS) {
            char      *end;
            const long root = strtol(word, &end, 10);

            if (end == word || *end || root < 0 || root >= size)
                flags_fail(&flags, "root %s: a rank from 0 to %d is expected", word, size - 1);
            plan.root[plan.roots++] = (int)root;
        }
    free(words);
}

static void add_case(const char *word)
{
    const struct perf_case *found = perf_case_find(word);

    if (!found && strcmp(word, "all"))
        flags_fail(&flags,
                   "%s is nothing that can be measured (all_reduce, reduce_scatter, ..., pingpong, barrier, all)",
                   word);
    for (size_t i = 0; i < perf_case_count; i++)
        if ((!found || found == &perf_cases[i]) && plan.whats < 64)
            plan.what[plan.whats++] = &perf_cases[i];
}

static void choose_cases(int argc, char **argv, int first)
{
    char *words = strdup(perf.collective ? perf.collective : ""), *rest = words, *word;

    while ((word = strsep(&rest, ",")) != NULL)
        if (*word)
            add_case(word);
    for (; first < argc; first++)
        add_case(argv[first]);
    if (plan.whats == 0)
        flags_fail(&flags, "which collective? (hkt-perf all_reduce, or all)");
    free(words);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

/* Elements of a block for a row that is to have `bytes` in all; 0 only for no bytes. */
static size_t count_for(const struct perf_case *what, size_t bytes, hkt_type_t type, int size)
{
    const size_t each = perf_case_volume(what, size) * hkt_type_size(type);

    return each == 0 || bytes == 0 ? 0 : bytes < each ? 1 : bytes / each;
}

static size_t next_size(size_t bytes)
{
    const double next = perf.step ? (double)bytes + (double)perf.step : ceil(fmax((double)bytes * perf.factor, 1));

    return next > (double)perf.end ? perf.end + 1 : (size_t)next;
}

static size_t room_needed(int size)
{
    size_t most = 0;

    for (int w = 0; w < plan.whats; w++)
        for (int t = 0; t < plan.types; t++) {
            const hkt_type_t type = (hkt_type_t)plan.type[t];
            const size_t bytes = count_for(plan.what[w], perf.end, type, size) * perf_case_volume(plan.what[w], size) *
                                 hkt_type_size(type);

            most = bytes > most ? bytes : most;
        }
    most = most > perf.shift ? most : perf.shift;
    return most + PERF_LEAD + (size_t)perf.misalign + PERF_LEAD;
}

/* ---- one rank ---------------------------------------------------------------------------------------------------- */

static _Atomic bool failed;

static int complain(const char *doing, int rank, int rc)
{
    if (rc) {
        fprintf(stderr, "hkt-perf: rank %d, %s: %s\n", rank, doing,
                *hkt_last_error() ? hkt_last_error() : hkt_error_string(rc));
        atomic_store(&failed, true); /* read after the threads have been joined */
    }
    return rc;
}

static int rank_open(struct perf_rank *rank)
{
    const size_t n = (size_t)rank->size;

    rank->room   = plan.room;
    rank->counts = calloc(n, sizeof(*rank->counts));
    rank->displs = calloc(n, sizeof(*rank->displs));
    if (!rank->counts || !rank->displs)
        return HKT_ERR_MEMORY;
    for (int i = 0; i < 2; i++) {
        int rc = 0;

        if (perf.memory == MEMORY_HOCKET)
            rc = hkt_mem_alloc((void **)&rank->area[i], rank->room);
        else
            rc =
                posix_memalign((void **)&rank->area[i], PERF_LEAD, (rank->room + PERF_LEAD - 1) / PERF_LEAD * PERF_LEAD)
                    ? HKT_ERR_MEMORY
                    : 0;
        if (rc)
            return rc;
        memset(rank->area[i], 0, rank->room);
        if (perf.memory == MEMORY_REGISTERED)
            rc = hkt_comm_register(&rank->handle[i], rank->comm, rank->area[i], rank->room);
        if (rc)
            return rc;
    }
    return perf.blocking ? 0 : hkt_stream_create(&rank->stream);
}

static void rank_close(struct perf_rank *rank)
{
    hkt_stream_destroy(rank->stream);
    for (int i = 0; i < 2; i++) {
        if (rank->handle[i])
            hkt_comm_deregister(rank->handle[i], rank->comm);
        if (perf.memory == MEMORY_HOCKET)
            hkt_mem_free(rank->area[i]);
        else
            free(rank->area[i]);
    }
    free(rank->counts);
    free(rank->displs);
}

static int measure_row(struct perf_rank *rank, struct perf_call *call)
{
    struct perf_row row = {.what  = call->what,
                           .count = call->count,
                           .bytes = call->count * perf_case_volume(call->what, rank->size) * hkt_type_size(call->type),
                           .type  = call->type,
                           .op_index = call->op_index,
                           .root     = call->root};
    int             rc  = 0;

    for (int k = 0; k < 2 && !rc; k++)
        rc = perf_measure(rank, call, k, &row.cell[k]);
    if (!rc && rank->prints)
        perf_output_row(&row);
    return rc;
}

static int measure_sizes(struct perf_rank *rank, struct perf_call *call)
{
    size_t before = SIZE_MAX;
    int    rc     = 0;

    call->op = (hkt_op_t)call->op_index;
    if (call->op_index == HKT_OPS && (rc = hkt_op_create_premul_sum(&call->op, perf_scalar(rank->rank), rank->comm)))
        return rc;
    for (size_t bytes = perf.begin; bytes <= perf.end && !rc; bytes = next_size(bytes)) {
        call->count = count_for(call->what, bytes, call->type, rank->size);
        if (call->count != before)
            rc = measure_row(rank, call);
        before = call->count;
    }
    if (call->op_index == HKT_OPS && !rc)
        rc = hkt_op_destroy(call->op, rank->comm);
    return rc;
}

static int measure_case(struct perf_rank *rank, const struct perf_case *what)
{
    const bool rooted = what->send_root || what->recv_root;
    const int  types = what->send == SIDE_NONE ? 1 : plan.types, ops = what->reduces ? plan.ops : 1,
              roots = rooted ? plan.roots : 1;
    int rc          = 0;

    if (what->source == SOURCE_PARTNER && rank->size < 2) {
        printf("# %s needs two ranks\n", what->name);
        return 0;
    }
    if (rank->prints)
        perf_output_table(what);
    for (int t = 0; t < types; t++)
        for (int o = 0; o < ops; o++)
            for (int r = 0; r < roots && !rc; r++) {
                struct perf_call call = {.what     = what,
                                         .type     = (hkt_type_t)plan.type[t],
                                         .op_index = what->reduces ? plan.op[o] : 0,
                                         .root     = rooted ? plan.root[r] : 0};

                rc = measure_sizes(rank, &call);
            }
    return rc;
}

static int meet(struct perf_rank *rank, struct perf_place *all)
{
    struct perf_place mine = {.pid = (int)getpid(), .thread = rank->rank % (int)perf.threads, .cpu = sched_getcpu()};

    gethostname(mine.host, sizeof(mine.host) - 1);
    return hkt_all_gather(&mine, all, sizeof(mine), HKT_UINT8, rank->comm, NULL);
}

static int rank_run(struct perf_rank *rank)
{
    struct perf_place *places = calloc((size_t)rank->size, sizeof(*places));
    int                rc     = places ? 0 : HKT_ERR_MEMORY;

    rank->prints = rank->rank == 0;
    if (complain("allocating the buffers", rank->rank, rc ? rc : rank_open(rank)))
        goto done;
    rc = meet(rank, places);
    if (!rc && rank->prints && perf_output_begin(places, rank->size)) {
        atomic_store(&failed, true);
        goto done;
    }
    for (long cycle = 0; !rc && (perf.cycles == 0 || cycle < perf.cycles); cycle++)
        for (int w = 0; w < plan.whats && !rc; w++)
            rc = measure_case(rank, plan.what[w]);
    complain("measuring", rank->rank, rc);
    if (!rc && rank->prints && perf_output_end())
        atomic_store(&failed, true);
done:
    if (atomic_load(&failed))
        hkt_comm_abort(rank->comm); /* the others wait no longer than for our death */
    rank_close(rank);
    free(places);
    return rc;
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

struct member {
    pthread_t              thread;
    struct perf_rank       rank;
    const hkt_unique_id_t *id;
    const hkt_config_t    *config;
};

static void *member_run(void *arg)
{
    struct member *m = arg;

    if (complain("joining", m->rank.rank, hkt_comm_init(&m->rank.comm, m->rank.size, m->id, m->rank.rank, m->config)))
        return NULL;
    rank_run(&m->rank);
    hkt_comm_destroy(m->rank.comm);
    return NULL;
}

/* Several ranks a process: the processes agree on an id for all their threads. */
static void run_threads(hkt_comm_t *processes, int process, int size, const hkt_config_t *config)
{
    struct member  *members = calloc((size_t)perf.threads, sizeof(*members));
    hkt_unique_id_t id      = {{0}};
    int             rc      = members ? 0 : HKT_ERR_MEMORY;

    rc = rc || process != 0 ? rc : hkt_unique_id(&id);
    rc = rc ? rc : hkt_broadcast(&id, &id, sizeof(id), HKT_UINT8, 0, processes, NULL);
    if (complain("bringing the threads together", process * (int)perf.threads, rc))
        return;
    for (long t = 0; t < perf.threads; t++) {
        members[t]           = (struct member){.id = &id, .config = config};
        members[t].rank.size = size;
        members[t].rank.rank = process * (int)perf.threads + (int)t;
        if (pthread_create(&members[t].thread, NULL, member_run, &members[t])) {
            perror("hkt-perf: cannot start a thread");
            exit(1);
        }
    }
    for (long t = 0; t < perf.threads; t++)
        pthread_join(members[t].thread, NULL);
    free(members);
}

static char *join_words(int argc, char **argv)
{
    size_t length = 1;
    char  *text;

    for (int i = 0; i < argc; i++)
        length += strlen(argv[i]) + 1;
    text = calloc(1, length);
    for (int i = 0; text && i < argc; i++) {
        const char *word = i ? argv[i] : "hkt-perf";

        strcat(strcat(text, i ? " " : ""), word);
    }
    return text;
}

int main(int argc, char **argv)
{
    hkt_config_t     config  = HKT_CONFIG_INIT;
    char            *command = join_words(argc, argv);
    const int        first   = flags_parse(&flags, argc, argv);
    struct perf_rank alone   = {0};
    hkt_comm_t      *comm;
    int              process = 0, processes = 1, size;

    perf.command     = command ? command : "hkt-perf";
    config.timeout_s = perf.timeout;
    choose_cases(argc, argv, first);
    plan.types = choose("type", perf.type, type_name, HKT_TYPES, plan.type);
    plan.ops   = choose("operator", perf.op, op_name, HKT_OPS + 1, plan.op);
    if (complain("joining", 0, hkt_comm_init_env(&comm, &config)))
        return 1;
    hkt_comm_rank(comm, &process);
    hkt_comm_size(comm, &processes);
    size = processes * (int)perf.threads;
    choose_roots(size);
    plan.room = room_needed(size);
    if (perf.threads > 1) {
        run_threads(comm, process, size, &config);
    } else {
        alone = (struct perf_rank){.comm = comm, .rank = process, .size = size};
        rank_run(&alone);
    }
    hkt_comm_destroy(comm);
    free(command);
    return atomic_load(&failed);
}
