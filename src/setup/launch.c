/* launch.c -- the table of launchers, and those that need no server: the environment says it all. See launch.h. PMIx and PMI have files
 * of their own. How ranks meet by the id is left to bootstrap.c.
 *
 * The order: what the user says (HKT_*); then the launchers from the inside out, as one may run under another and what the outer one has
 * set is still there: torchrun's workers under srun or mpirun have the PMIx variables of their agent, all of them the same.
 */
#include "launch.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/option.h"
#include "bootstrap.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOST = 256, ROOT = HOST + 16, SECRET = 1024 };

/* Ports of the addresses that are derived: below those that systems give to outgoing connections (32768 and up on Linux). */
enum { PORT_FIRST = 12000, PORTS = 16384, STEPS = 61 };

static bool is_set(const char *variable)
{
    const char *text = getenv(variable);

    return text && text[0];
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int parse(const char *text, long min, long max, long *value)
{
    char *end;

    errno  = 0;
    *value = strtol(text, &end, 10);
    return end == text || *end || errno || *value < min || *value > max ? -1 : 0;
}

int hkt_launch_number(const char *variable, long min, long max, long *value)
{
    const char *text = getenv(variable);
    long        number;

    if (!text)
        return hkt_fail(HKT_ERR_ARGUMENT,
                        "%s is not set, though the launcher's other variables are; hkt-info --launcher, started like this program, shows what is",
                        variable);
    if (parse(text, min, max, &number))
        return hkt_fail(HKT_ERR_ARGUMENT, "%s=%.40s is no number from %ld to %ld; it is set by the launcher or by hand (HKT_ROOT, "
                        "HKT_RANK and HKT_SIZE go before all others)", variable, text, min, max);
    *value = number;
    return 0;
}

int hkt_launch_local_rank(const char *variable, int size)
{
    const char *text = getenv(variable);
    long        local;

    return text && !parse(text, 0, size - 1, &local) ? (int)local : -1;
}

int hkt_launched_read(struct hkt_launched *place, const struct hkt_launched_names *names)
{
    long rank, size;

    HKT_TRY(hkt_launch_number(names->size, 1, HKT_RANKS, &size));
    HKT_TRY(hkt_launch_number(names->rank, 0, HKT_RANKS, &rank));
    if (rank >= size)
        return hkt_fail(HKT_ERR_ARGUMENT, "%s=%ld, but %s=%ld: ranks go from 0 to size - 1", names->rank, rank, names->size, size);
    place->rank       = (int)rank;
    place->size       = (int)size;
    place->local_rank = hkt_launch_local_rank(names->local_rank, (int)size);
    return 0;
}

/* ---- an address that every rank knows ---------------------------------------------------------------------------- */

/* `job`: what else the ranks have in common, so that the attempts of a job do not meet one another. */
static int id_at(struct hkt_launched *place, const char *root, const char *job)
{
    const char *given = hkt_options()->secret;
    char        secret[SECRET];

    if ((size_t)snprintf(secret, sizeof(secret), "%s %s %lld", given, job, (long long)hkt_options()->restart) >= sizeof(secret))
        return hkt_fail(HKT_ERR_ARGUMENT, "HKT_SECRET has %zu bytes; at most %d are allowed", strlen(given), SECRET - 128);
    HKT_TRY(hkt_bootstrap_id_at(&place->id, root, secret));
    if (!given[0] && place->rank == 0)
        hkt_log(HKT_LOG_WARN, "HKT_SECRET is not set: whoever can reach %s and knows the job can join it; set HKT_SECRET to the same text "
                "on every rank", root);
    return 0;
}

/* The address of an attempt of a torch or Slurm job. */
static int id_on(struct hkt_launched *place, const char *host, long port, const char *job)
{
    char       root[ROOT];
    const bool v6 = strchr(host, ':') && host[0] != '[';

    if ((size_t)snprintf(root, sizeof(root), v6 ? "[%s]:%ld" : "%s:%ld", host, port) >= sizeof(root))
        return hkt_fail(HKT_ERR_ARGUMENT, "rank 0's host has a name of %zu bytes, \"%.40s...\"; at most %d are allowed", strlen(host), host,
                        HOST - 1);
    return id_at(place, root, job);
}

/* ---- HKT_* ------------------------------------------------------------------------------------------------------- */

/* For HKT_ROOT without HKT_RANK: launchers that number their processes, whether or not their servers can be spoken to. */
static const struct hkt_launched_names numbering[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
};

static bool own_present(void)
{
    const struct hkt_options *o = hkt_options();

    return o->rank >= 0 || o->size >= 0 || o->root[0];
}

static int own_place(struct hkt_launched *place)
{
    const struct hkt_options *o = hkt_options();

    if (o->rank < 0 && o->size < 0)
        for (size_t i = 0; i < sizeof(numbering) / sizeof(numbering[0]); i++)
            if (is_set(numbering[i].rank) && is_set(numbering[i].size))
                return hkt_launched_read(place, &numbering[i]);
    if (o->rank < 0 || o->size < 0 || (!o->id[0] && !o->root[0]))
        return hkt_fail(HKT_ERR_ARGUMENT,
                        "HKT_RANK=%lld HKT_SIZE=%lld HKT_ID=%s HKT_ROOT=%s: rank, size, and the id or rank 0's address are needed; start the "
                        "program with hkt-run, or set HKT_RANK, HKT_SIZE and HKT_ROOT=host:port",
                        (long long)o->rank, (long long)o->size, o->id[0] ? "(set)" : "(not set)", o->root[0] ? o->root : "(not set)");
    if (o->rank >= o->size)
        return hkt_fail(HKT_ERR_ARGUMENT, "HKT_RANK=%lld, but HKT_SIZE=%lld: ranks go from 0 to size - 1", (long long)o->rank,
                        (long long)o->size);
    place->rank       = (int)o->rank;
    place->size       = (int)o->size;
    place->local_rank = o->id[0] ? place->rank : -1; /* hkt-run knows one host */
    return 0;
}

static int own_exchange(struct hkt_launched *place, uint64_t deadline)
{
    const struct hkt_options *o = hkt_options();
    struct hkt_launched          found;

    (void)deadline;
    HKT_TRY(own_place(&found));
    HKT_TRY(o->id[0] ? hkt_bootstrap_id_parse(&found.id, o->id) : id_at(&found, o->root, ""));
    *place = found;
    return 0;
}

/* ---- torch ------------------------------------------------------------------------------------------------------- */

static bool torch_present(void)
{
    return is_set("RANK") && is_set("WORLD_SIZE") && is_set("MASTER_ADDR");
}

static bool torchrun_present(void)
{
    return is_set("TORCHELASTIC_RUN_ID") && torch_present();
}

static int torch_exchange(struct hkt_launched *place, uint64_t deadline)
{
    static const struct hkt_launched_names names = {"RANK", "WORLD_SIZE", "LOCAL_RANK"};
    const char                         *run = getenv("TORCHELASTIC_RUN_ID"), *attempt = getenv("TORCHELASTIC_RESTART_COUNT");
    struct hkt_launched                    found;
    char                                job[128];
    long                                port;

    (void)deadline;
    HKT_TRY(hkt_launched_read(&found, &names));
    HKT_TRY(hkt_launch_number("MASTER_PORT", 1, 65535, &port));
    snprintf(job, sizeof(job), "torch %.80s %.20s", run ? run : "", attempt ? attempt : "0");
    HKT_TRY(id_on(&found, getenv("MASTER_ADDR"), PORT_FIRST + port % PORTS, job)); /* never MASTER_PORT itself, where torch's store is */
    *place = found;
    return 0;
}

/* ---- Slurm without PMI --------------------------------------------------------------------------------------------- */

static bool slurm_present(void)
{
    return is_set("SLURM_PROCID") && is_set("SLURM_STEP_NODELIST"); /* a batch script has the first, but no step */
}

int hkt_slurm_first_host(const char *list, char *host, size_t size)
{
    bool   within = false;
    size_t n      = 0;

    for (; *list && (within || *list != ','); list++) {
        if (within ? !strchr("0123456789", *list) : *list == '[') {
            within = !within && *list == '[';
            if (!within) /* behind the first number of the bracket */
                list = strchr(list, ']');
            if (!list)
                return HKT_ERR_ARGUMENT;
            continue;
        }
        if (n + 1 >= size || !strchr("-._0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", *list))
            return HKT_ERR_ARGUMENT;
        host[n++] = *list;
    }
    host[n] = 0;
    return n && !within ? 0 : HKT_ERR_ARGUMENT;
}

static int slurm_exchange(struct hkt_launched *place, uint64_t deadline)
{
    static const struct hkt_launched_names names = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"};
    const char                         *list = getenv("SLURM_STEP_NODELIST"), *attempt = getenv("SLURM_RESTART_COUNT");
    struct hkt_launched                    found;
    char                                host[HOST], text[128];
    long                                job, step;

    (void)deadline;
    HKT_TRY(hkt_launched_read(&found, &names));
    HKT_TRY(hkt_launch_number("SLURM_JOB_ID", 0, 0xffffffffl, &job));
    HKT_TRY(hkt_launch_number("SLURM_STEP_ID", 0, 0xffffffffl, &step));
    if (hkt_slurm_first_host(list, host, sizeof(host)))
        return hkt_fail(HKT_ERR_ARGUMENT, "SLURM_STEP_NODELIST=%.200s: its first host cannot be read; set HKT_ROOT=host:port of rank 0, or start "
                        "with srun --mpi=pmix", list);
    snprintf(text, sizeof(text), "slurm %ld.%ld %.20s", job, step, attempt ? attempt : "0");
    HKT_TRY(id_on(&found, host, PORT_FIRST + (job * STEPS + step) % PORTS, text));
    *place = found;
    return 0;
}

/* ---- the table ----------------------------------------------------------------------------------------------------- */

static bool pmix_present(void)
{
    return is_set("PMIX_NAMESPACE") && is_set("PMIX_RANK");
}

static bool pmi_present(void)
{
    return is_set("PMI_FD") || is_set("PMI_PORT");
}

#define TORCH_VARIABLES "RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT HKT_SECRET"

const struct hkt_launcher hkt_launchers[] = {
    {"hocket", "HKT_RANK, HKT_SIZE or HKT_ROOT is set", "HKT_RANK HKT_SIZE HKT_ID HKT_ROOT HKT_SECRET HKT_RESTART", own_present,
     own_exchange},
    {"torchrun", "TORCHELASTIC_RUN_ID, RANK, WORLD_SIZE and MASTER_ADDR are set", TORCH_VARIABLES, torchrun_present, torch_exchange},
    {"pmix", "PMIX_NAMESPACE and PMIX_RANK are set", "PMIX_NAMESPACE PMIX_RANK PMIX_VERSION PMIX_SERVER_URI4 PMIX_SERVER_URI41", pmix_present,
     hkt_pmix_exchange},
    {"pmi", "PMI_FD or PMI_PORT is set", "PMI_FD PMI_RANK PMI_SIZE PMI_PORT PMI_ID MPI_LOCALRANKID SLURM_LOCALID", pmi_present,
     hkt_pmi_exchange},
    {"torch", "RANK, WORLD_SIZE and MASTER_ADDR are set", TORCH_VARIABLES, torch_present, torch_exchange},
    {"slurm", "SLURM_PROCID and SLURM_STEP_NODELIST are set",
     "SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID SLURM_STEP_NODELIST SLURM_JOB_ID SLURM_STEP_ID SLURM_RESTART_COUNT HKT_SECRET",
     slurm_present, slurm_exchange},
};
const int hkt_launcher_count = sizeof(hkt_launchers) / sizeof(hkt_launchers[0]);

const struct hkt_launcher *hkt_launcher_find(void)
{
    for (int i = 0; i < hkt_launcher_count; i++)
        if (hkt_launchers[i].present())
            return &hkt_launchers[i];
    return NULL;
}

int hkt_launch(struct hkt_launched *place, double timeout)
{
    static pthread_mutex_t  one = PTHREAD_MUTEX_INITIALIZER;
    static struct hkt_launched known;
    static char             sentence[1024];
    static int              answer = 1; /* not asked yet */
    int                     rc;

    pthread_mutex_lock(&one);
    if (answer > 0) {
        rc = hkt_launcher_find()->exchange(&known, hkt_now_ns() + (uint64_t)(timeout * 1e9));
        if (rc)
            snprintf(sentence, sizeof(sentence), "%s", hkt_last_error());
        if (rc != HKT_ERR_MEMORY) /* which comes before anybody is asked */
            answer = rc;
    } else
        rc = answer ? hkt_fail_quiet(answer, sentence) : 0;
    if (!rc)
        *place = known;
    pthread_mutex_unlock(&one);
    return rc;
}
