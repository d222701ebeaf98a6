/* plan_try.c -- steps of the model by hkt-train on this computer, which tell by how much the formulas are wrong here:
 * what caches do at a size of micro-batch, loops that are no products, cores that slow each other down, no peak tells.
 *
 * Every size of micro-batch runs on as many ranks as the job has, or there are cores; as data-parallel ranks of one
 * thread, by turns, twice, and the better of two medians counts: other work on the machine only ever slows down. The
 * factor is seconds of forward and backward passes over what the planner says for the same layout. Large models are
 * tried with fewer layers.
 */
#include "plan.h"

#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STEPS      = 7,
    SKIPPED    = 2,
    TURNS      = 2,
    MICROS     = 2 /* of a step, where the batch has so many */,
    TEXT_BYTES = 1 << 18
};

static const double LONGEST = 1; /* seconds of a step that is tried, as predicted */

struct trial {
    hkt_plan_job_t job; /* of what is tried: no more ranks than cores */
    char           folder[4096], scratch[64];
    double         passes[HKT_PLAN_POINTS], update[HKT_PLAN_POINTS]; /* seconds of a step; 0: none yet */
};

/* ---- one run ----------------------------------------------------------------------------------------------------- */

/* Where the tools are: beside this one, or one up in a build tree. */
static bool find_folder(char *folder, size_t size)
{
    char          path[4096 + 16];
    const ssize_t n = readlink("/proc/self/exe", folder, size - 1);
    char         *slash;

    if (n <= 0)
        return false;
    folder[n] = 0;
    slash     = strrchr(folder, '/');
    *slash    = 0;
    if (slash - folder > 6 && strcmp(slash - 6, "/.libs") == 0)
        slash[-6] = 0;
    snprintf(path, sizeof(path), "%s/hkt-train", folder);
    return access(path, X_OK) == 0;
}

static bool write_text(const char *scratch)
{
    char     path[96];
    FILE    *out;
    unsigned x = 1;

    snprintf(path, sizeof(path), "%s/text", scratch);
    out = fopen(path, "we");
    for (int i = 0; out && i < TEXT_BYTES; i++) {
        x = x * 1664525 + 1013904223;
        fputc(' ' + (int)(x >> 24) % 64, out);
    }
    return out && fclose(out) == 0;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Medians of the steps that a run has written. */
static bool read_steps(double *passes, double *update, const char *path)
{
    FILE  *in = fopen(path, "re");
    double pass[STEPS], step[STEPS], all, forward, backward, optimizer;
    int    n = 0, number;

    while (in && n < STEPS &&
           fscanf(in, "%d %lf %lf %lf %lf %*f %*f %*f", &number, &all, &forward, &backward, &optimizer) == 5) {
        if (number <= SKIPPED)
            continue;
        pass[n]   = forward + backward;
        step[n++] = optimizer;
    }
    if (in)
        fclose(in);
    if (!n)
        return false;
    qsort(pass, (size_t)n, sizeof(*pass), compare);
    qsort(step, (size_t)n, sizeof(*step), compare);
    *passes = pass[n / 2];
    *update = step[n / 2];
    return true;
}

/* The batch with which micro-batches of this size are tried. */
static int batch_of(const struct trial *t, int micro_batch)
{
    const int some = t->job.world * micro_batch * MICROS;

    return some < t->job.global_batch ? some : t->job.global_batch;
}

static bool run(const struct trial *t, int micro_batch, double *passes, double *update)
{
    static const char *const precision[] = {"", "--bf16"};
    const hkt_plan_model_t  *m           = &t->job.model;
    char                     command[16384], path[96];

    snprintf(path, sizeof(path), "%s/steps", t->scratch);
    snprintf(command, sizeof(command),
             "'%s/hkt-run' -n %d '%s/hkt-train' --data-path %s/text --timing-file %s --threads 1 --train-iters %d "
             "--num-layers %d --hidden-size %d --ffn-hidden-size %d --num-attention-heads %d --seq-length %d "
             "--make-vocab-size-divisible-by %d --micro-batch-size %d --global-batch-size %d --eval-interval 0 "
             "--sample-tokens 0 --lr 0 --min-lr 0 %s %s %s >%s/said 2>&1",
             t->folder, t->job.world, t->folder, t->scratch, path, STEPS, m->layers, m->hidden, m->ffn, m->heads,
             m->sequence, m->vocabulary, micro_batch, batch_of(t, micro_batch),
             m->tied ? "" : "--untie-embeddings-and-output-weights", m->dropout ? "--hidden-dropout 0.1" : "",
             precision[t->job.bytes.parameter < 4], t->scratch);
    return WEXITSTATUS(system(command)) == 0 && read_steps(passes, update, path);
}

/* ---- the job ----------------------------------------------------------------------------------------------------- */

static bool predict(hkt_plan_time_t *time, const hkt_plan_job_t *job, int micro_batch)
{
    const hkt_plan_layout_t l = {.tp          = 1,
                                 .cp          = 1,
                                 .pp          = 1,
                                 .dp          = job->world,
                                 .schedule    = HKT_PIPELINE_1F1B,
                                 .chunks      = 1,
                                 .micro_batch = micro_batch};

    return hkt_plan_time(time, job, &l) == HKT_OK;
}

static double passes_of(const hkt_plan_time_t *time)
{
    return time->part[HKT_PLAN_PRODUCTS] + time->part[HKT_PLAN_TRAFFIC] + time->part[HKT_PLAN_LAUNCH];
}

/* The model as hkt-train has it, and as much of it and of the batch as is quick. */
static bool make_job(hkt_plan_job_t *job)
{
    const long        cores = sysconf(_SC_NPROCESSORS_ONLN);
    hkt_plan_model_t *m     = &job->model;
    hkt_plan_time_t   time;

    m->kv_heads  = m->heads;
    m->biased    = true;
    m->blocked   = true;
    m->positions = m->sequence;
    m->gated = m->embedding_norm = false;
    if (job->world > cores) {
        job->global_batch = (int)((job->global_batch + job->world - 1) / job->world * cores);
        job->world        = (int)cores;
    }
    job->global_batch -= job->global_batch % job->world;
    while (predict(&time, job, 1) && time.step > LONGEST) {
        if (job->global_batch > 4 * job->world)
            job->global_batch = job->global_batch / job->world / 2 * job->world;
        else if (m->layers > 2)
            m->layers = (m->layers + 1) / 2;
        else if (job->global_batch > job->world)
            job->global_batch = job->global_batch / job->world / 2 * job->world;
        else
            return false;
    }
    return job->global_batch >= job->world && predict(&time, job, 1);
}

static void remove_scratch(const char *scratch)
{
    static const char *const names[] = {"text", "steps", "said"};
    char                     path[96];

    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", scratch, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(scratch);
}

/* Micro-batches of 1, 2, 4 ... sequences that divide a rank's share, by turns. */
static bool run_all(struct trial *t)
{
    const int share = t->job.global_batch / t->job.world;
    int       runs  = 0;

    for (int turn = 0; turn < TURNS; turn++)
        for (int k = 0; k < HKT_PLAN_POINTS && share % (1 << k) == 0 && 1 << k <= share; k++) {
            double passes, update;

            if (!run(t, 1 << k, &passes, &update))
                return false;
            t->passes[k] = turn == 0 || passes < t->passes[k] ? passes : t->passes[k];
            t->update[k] = turn == 0 || update < t->update[k] ? update : t->update[k];
            runs++;
        }
    return runs > 0;
}

static void correct(hkt_plan_machine_t *machine, const struct trial *t)
{
    hkt_plan_job_t  job    = t->job;
    double          update = 0;
    hkt_plan_time_t time;

    for (int k = 0; k < HKT_PLAN_POINTS && t->passes[k] > 0; k++) {
        job.global_batch = batch_of(t, 1 << k);
        if (!predict(&time, &job, 1 << k))
            return;
        machine->point[k] =
            (hkt_plan_point_t){(double)(1 << k) * t->job.model.sequence, t->passes[k] / passes_of(&time)};
        machine->points = k + 1;
        update += t->update[k] / time.part[HKT_PLAN_OPTIMIZER];
    }
    machine->update = update / machine->points;
}

void plan_try(hkt_plan_job_t *job)
{
    struct trial t = {.job = *job, .scratch = "/tmp/hkt-plan-XXXXXX"};

    if (!make_job(&t.job))
        fprintf(stderr,
                "hkt-plan: a step of this model is too long to be tried here: times are those of the formulas\n");
    else if (!find_folder(t.folder, sizeof(t.folder)))
        fprintf(stderr,
                "hkt-plan: hkt-train is not beside hkt-plan: no step is tried, times are those of the formulas\n");
    else if (mkdtemp(t.scratch)) {
        if (write_text(t.scratch) && run_all(&t))
            correct(&job->machine, &t);
        else
            fprintf(stderr, "hkt-plan: the steps that were tried failed: times are those of the formulas\n");
        remove_scratch(t.scratch);
    }
}
