/* hkt-run.c -- starts the ranks of a job on this machine and looks after them until the last one has ended.
 *
 * One thread, one poll(): signals (a signalfd), the ranks' output (run_output.h), deadlines. Every signal that asks
 * something of the job is passed on to the ranks' process group (run_ranks.h) and means nothing to the launcher itself.
 *
 * The ranks are a background group of the terminal, so that `hkt-run ... | less` works. When one of them wants the
 * terminal (a debugger, a prompt: the kernel stops it with SIGTTIN or SIGTTOU), it is handed to them.
 */
#include "hocket.h"

#include "base/clock.h"
#include "flags.h"
#include "run_output.h"
#include "run_ranks.h"
#include "setup/bootstrap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMED_OUT = 124, CANNOT_RUN = 126, MAX_RESTARTS = 1000000, MAX_RANKS = 65536, MAX_CPUS = 4096 };

static struct {
    long        ranks, restarts;
    bool        tag, keep_going;
    const char *directory;
    double      grace, timeout;
    int         bind;
    struct flag_list export;
} set = {.grace = 1};

static const struct flag rows[] = {
    {'n', "ranks", FLAG_INTEGER, &set.ranks, 1, MAX_RANKS, "N", "Number of ranks."},
    {0, "tag", FLAG_ON, &set.tag, 0, 0, NULL, "Puts [rank] before each line of output."},
    {0, "output", FLAG_TEXT, &set.directory, 0, 0, "DIR", "Writes the output of rank R to DIR/rank-R.txt instead."},
    {0, "grace", FLAG_NUMBER, &set.grace, 0, 1e9, "SECONDS",
     "Time the others get to end by themselves when a rank has failed, and again after SIGTERM before SIGKILL."},
    {0, "keep-going", FLAG_ON, &set.keep_going, 0, 0, NULL, "A failed rank does not end the others."},
    {0, "restart", FLAG_INTEGER, &set.restarts, 0, MAX_RESTARTS, "K",
     "Starts the whole job again, up to K times, when a rank has failed; HKT_RESTART in its environment counts them."},
    {0, "timeout", FLAG_NUMBER, &set.timeout, 0, 1e9, "SECONDS",
     "Ends the job after this time with exit status 124; 0: never."},
    {0, "bind", FLAG_WORD, &set.bind, 0, 0, "none|core",
     "core: rank r runs only on the r-th usable processor, in turn."},
    {0, "export", FLAG_LIST, &set.export, 0, 0, "NAME=VALUE", "Sets an environment variable of the ranks."},
};

static const struct flags flags = {
    "hkt-run", "-n N [flags] program [arguments]", "Runs N ranks of a program on this machine.",
    rows,      sizeof(rows) / sizeof(rows[0]),     true};

/* Wait statuses of our own making. */
#define EXIT_WITH(code) ((code) << 8)
#define DIE_OF(signal) (signal)

enum phase { RUNNING, GRACE, TERMINATED, KILLED };

struct job {
    struct run_group   group;
    struct run_output *output;   /* NULL: the ranks print by themselves */
    sigset_t           original; /* signal mask before the launcher's own */
    int                signals;  /* signalfd */
    pid_t             *pid;      /* 0: has ended */
    int                left;     /* ranks that run */
    bool               decided;  /* the job has failed: */
    int                status;   /* with this wait status, that of the first rank to fail */
    enum phase         phase;
    double             start, deadline; /* of the phase */
    int                interrupts;
    bool               told;     /* a signal that ends jobs was passed on */
    long               attempt;  /* 0: the first */
    int                terminal; /* -1: none */
    bool               lent;     /* it belongs to the ranks now */
};

static double now(void)
{
    return (double)hkt_now_ns() * 1e-9;
}

static void __attribute__((format(printf, 2, 3))) say(struct job *job, const char *format, ...)
{
    char    line[1024];
    int     n = snprintf(line, sizeof(line), "hkt-run: ");
    va_list args;

    va_start(args, format);
    n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
    va_end(args);
    if (n > (int)sizeof(line) - 2)
        n = (int)sizeof(line) - 2;
    snprintf(line + n, 2, "\n");
    if (job && job->output)
        run_output_say(job->output, line);
    else if (write(STDERR_FILENO, line, strlen(line)) < 0)
        return; /* nobody to tell */
}

/* "0, 1 and 3": the ranks that still run. */
static const char *running(const struct job *job, char *text, size_t size)
{
    int    listed = 0;
    size_t n      = 0;

    text[0] = 0;
    for (int r = 0; r < set.ranks; r++) {
        if (!job->pid[r])
            continue;
        if (++listed > 16) {
            snprintf(text + n, size - n, " and %d more", job->left - 16);
            break;
        }
        n += (size_t)snprintf(text + n, size - n, "%s%d", listed == 1 ? "" : listed == job->left ? " and " : ", ", r);
    }
    return text;
}

/* ---- ending the job ---------------------------------------------------------------------------------------------- */

static void decide(struct job *job, int status)
{
    if (!job->decided)
        job->status = status;
    job->decided = true;
}

static void enter(struct job *job, enum phase phase)
{
    char names[160];

    job->phase    = phase;
    job->deadline = now() + set.grace;
    if (phase < TERMINATED || job->left == 0)
        return;
    say(job, "ending rank%s %s with %s", job->left > 1 ? "s" : "", running(job, names, sizeof(names)),
        phase == TERMINATED ? "SIGTERM" : "SIGKILL");
    kill(-job->group.guard, phase == TERMINATED ? SIGTERM : SIGKILL);
    kill(-job->group.guard, SIGCONT); /* a stopped process would not see the SIGTERM */
}

static void look_at_clock(struct job *job)
{
    char names[160];

    if (set.timeout > 0 && job->phase == RUNNING && now() >= job->start + set.timeout) {
        decide(job, EXIT_WITH(TIMED_OUT));
        say(job, "the job did not end within %g s (--timeout); still running: rank%s %s", set.timeout,
            job->left > 1 ? "s" : "", running(job, names, sizeof(names)));
        enter(job, TERMINATED);
    } else if ((job->phase == GRACE || job->phase == TERMINATED) && now() >= job->deadline) {
        enter(job, job->phase + 1);
    }
}

/* Milliseconds until look_at_clock() has something to do; -1: never. */
static int time_left(const struct job *job)
{
    double until = job->deadline;

    if (job->phase == KILLED || (job->phase == RUNNING && set.timeout <= 0))
        return -1;
    if (job->phase == RUNNING)
        until = job->start + set.timeout;
    until = (until - now()) * 1e3 + 1;
    return until < 0 ? 0 : until > INT_MAX ? INT_MAX : (int)until;
}

/* ---- ranks that change state ------------------------------------------------------------------------------------- */

static void describe_failure(struct job *job, int rank, pid_t pid, int status)
{
    struct run_trouble trouble;
    char               host[65] = "?", how[64];

    if (WIFEXITED(status) && WEXITSTATUS(status) >= 126 && run_trouble_read(&job->group, &trouble)) {
        say(job, "rank %d cannot start: %s: %s", trouble.rank, trouble.what, strerror(trouble.error));
        return;
    }
    if (WIFEXITED(status))
        snprintf(how, sizeof(how), "ended with exit status %d", WEXITSTATUS(status));
    else
        snprintf(how, sizeof(how), "was ended by signal %d, SIG%s", WTERMSIG(status),
                 sigabbrev_np(WTERMSIG(status)) ? sigabbrev_np(WTERMSIG(status)) : "?");
    gethostname(host, sizeof(host) - 1);
    say(job, "rank %d (host %s, pid %d) %s%s%s after %.1f s%s", rank, host, (int)pid, how,
        WIFSIGNALED(status) && WCOREDUMP(status) ? " (core dumped)" : "",
        WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? " (by somebody, or for want of memory)" : "",
        now() - job->start, job->left ? "; it failed first" : "");
}

static void rank_ended(struct job *job, int rank, int status)
{
    const pid_t pid = job->pid[rank];

    job->pid[rank] = 0;
    job->left--;
    if (job->output)
        run_output_drain(job->output, rank);
    if (status == 0 || job->decided)
        return;
    decide(job, status);
    describe_failure(job, rank, pid, status);
    if (!set.keep_going && job->phase == RUNNING)
        enter(job, GRACE);
}

static void stop_with_the_ranks(struct job *job)
{
    if (job->lent && tcsetpgrp(job->terminal, getpgrp()))
        job->lent = false; /* it has hung up */
    raise(SIGSTOP);        /* our shell sees the job stopped; its SIGCONT arrives as any signal */
}

/* A rank has stopped. If it wants the terminal, it gets it as soon as the launcher itself has it. */
static void rank_stopped(struct job *job, int signal)
{
    if (signal == SIGTSTP && job->lent) {
        stop_with_the_ranks(job);
        return;
    }
    if (signal != SIGTTIN && signal != SIGTTOU)
        return;
    if (job->terminal < 0)
        job->terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (job->terminal < 0)
        return;
    if (tcgetpgrp(job->terminal) == getpgrp())
        job->lent = tcsetpgrp(job->terminal, job->group.guard) == 0;
    if (tcgetpgrp(job->terminal) == job->group.guard)
        kill(-job->group.guard, SIGCONT);
    else
        stop_with_the_ranks(job);
}

static void children(struct job *job)
{
    int   status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        int rank = 0;

        while (rank < set.ranks && job->pid[rank] != pid)
            rank++;
        if (rank == set.ranks)
            continue;
        if (WIFSTOPPED(status))
            rank_stopped(job, WSTOPSIG(status));
        else
            rank_ended(job, rank, status);
    }
}

/* ---- signals ----------------------------------------------------------------------------------------------------- */

static const int passed_on[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};

static void block_signals(struct job *job)
{
    sigset_t mask, before;

    sigemptyset(&mask);
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
        sigaddset(&mask, passed_on[i]);
    sigaddset(&mask, SIGCHLD);
    sigaddset(&mask, SIGPIPE); /* write() says it */
    sigprocmask(SIG_BLOCK, &mask, &before);
    if (job->attempt == 0) {
        job->original = before;
        job->signals  = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    }
    sigemptyset(&mask); /* blocked too, but never pending: the terminal is ours to hand on and to write to */
    sigaddset(&mask, SIGTTIN);
    sigaddset(&mask, SIGTTOU);
    sigprocmask(SIG_BLOCK, &mask, NULL);
}

static void pass_on(struct job *job, int signal)
{
    if (signal == SIGINT && ++job->interrupts == 3) {
        say(job, "interrupted three times");
        decide(job, DIE_OF(SIGINT));
        enter(job, KILLED);
        return;
    }
    if (signal == SIGCONT && job->lent && tcgetpgrp(job->terminal) == getpgrp())
        tcsetpgrp(job->terminal, job->group.guard);
    kill(-job->group.guard, signal);
    job->told |= signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
    if (signal == SIGTSTP)
        stop_with_the_ranks(job);
}

static void take_signals(struct job *job)
{
    struct signalfd_siginfo info;

    while (read(job->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            children(job);
        else if (info.ssi_signo != SIGPIPE)
            pass_on(job, (int)info.ssi_signo);
    }
}

/* ---- the job ----------------------------------------------------------------------------------------------------- */

/* Every attempt is a job of its own: what is left of the one before cannot join it. */
static void set_environment(const struct job *job)
{
    hkt_unique_id_t id;
    char            text[2 * HKT_UNIQUE_ID_BYTES + 1], number[16];

    if (hkt_bootstrap_local_id(&id)) {
        say(NULL, "%s", hkt_last_error());
        exit(1);
    }
    hkt_bootstrap_id_print(&id, text);
    snprintf(number, sizeof(number), "%ld", set.ranks);
    for (int i = 0; i < set.export.count; i++) {
        const char *value = strchr(set.export.item[i], '=');
        char       *name  = value ? strndup(set.export.item[i], (size_t)(value - set.export.item[i])) : NULL;

        if (!name || setenv(name, value + 1, 1))
            flags_fail(&flags, "--export %s: NAME=VALUE is expected", set.export.item[i]);
        free(name);
    }
    setenv("HKT_ID", text, 1);
    if (set.restarts) {
        char attempt[24];

        snprintf(attempt, sizeof(attempt), "%ld", job->attempt);
        setenv("HKT_RESTART", attempt, 1);
    }
    setenv("HKT_SIZE", number, 1);
}

static void prepare(struct job *job)
{
    struct rlimit files;

    if (set.directory && mkdir(set.directory, 0777) && errno != EEXIST)
        flags_fail(&flags, "--output %s: cannot make the directory: %s", set.directory, strerror(errno));
    if (set.tag && getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 4 * (rlim_t)set.ranks + 32) {
        files.rlim_cur = files.rlim_max; /* two pipes a rank */
        setrlimit(RLIMIT_NOFILE, &files);
    }
    set_environment(job);
    block_signals(job);
    job->pid = calloc((size_t)set.ranks, sizeof(*job->pid));
    if (!job->pid || job->signals < 0 || run_group_open(&job->group) ||
        (set.tag && !(job->output = run_output_open((int)set.ranks)))) {
        say(NULL, "cannot prepare %ld ranks: %s", set.ranks, strerror(errno));
        exit(1);
    }
}

static void start(struct job *job, char **argv)
{
    int       cpus[MAX_CPUS];
    const int ncpus = set.bind ? run_cpus(cpus, MAX_CPUS) : 0;

    for (int r = 0; r < set.ranks; r++) {
        const struct run_rank rank = {.argv      = argv,
                                      .rank      = r,
                                      .cpu       = ncpus ? cpus[r % ncpus] : -1,
                                      .output    = job->output,
                                      .directory = set.directory,
                                      .append    = job->attempt > 0,
                                      .signals   = &job->original};

        job->pid[r] = run_rank_start(&job->group, &rank);
        if (job->pid[r] < 0) {
            job->pid[r] = 0;
            say(job, "cannot start rank %d of %ld: %s", r, set.ranks, strerror(errno));
            decide(job, EXIT_WITH(CANNOT_RUN));
            enter(job, TERMINATED);
            return;
        }
        job->left++;
    }
}

static void supervise(struct job *job)
{
    struct pollfd *fds = calloc(1 + (job->output ? run_output_polls(job->output) : 0), sizeof(*fds));

    while (fds && job->left > 0) {
        size_t n = 1;

        fds[0] = (struct pollfd){.fd = job->signals, .events = POLLIN};
        if (job->output)
            n += run_output_poll(job->output, fds + 1);
        if (poll(fds, n, time_left(job)) > 0) {
            if (job->output)
                run_output_serve(job->output, fds + 1, n - 1);
            take_signals(job);
        }
        look_at_clock(job);
    }
    free(fds);
}

/* What is signalled while nothing runs waits for the next attempt's first look; `after`: the mask when all is over. */
static void clean_up(struct job *job, const sigset_t *after)
{
    if (job->lent && tcgetpgrp(job->terminal) == job->group.guard)
        tcsetpgrp(job->terminal, getpgrp());
    run_group_close(&job->group); /* with it what the ranks have left behind */
    if (job->output) {
        sigprocmask(SIG_SETMASK, after, NULL); /* a reader that has stopped can be interrupted */
        run_output_close(job->output);
    }
    free(job->pid);
}

/* A rank has failed by itself, and there are attempts left. */
static bool starts_again(const struct job *job)
{
    const int code = WIFEXITED(job->status) ? WEXITSTATUS(job->status) : 0;

    return job->decided && !job->told && job->attempt < set.restarts && code != TIMED_OUT && code != CANNOT_RUN &&
           code != CANNOT_RUN + 1 /* no such program */;
}

static int finish(struct job *job)
{
    sigset_t after = job->original;

    sigaddset(&after, SIGPIPE);
    clean_up(job, &after);
    if (WIFEXITED(job->status))
        return WEXITSTATUS(job->status);
    if (job->interrupts && WTERMSIG(job->status) == SIGINT) { /* dies of it too, so that a shell script ends */
        signal(SIGINT, SIG_DFL);
        sigprocmask(SIG_SETMASK, &after, NULL);
        raise(SIGINT);
    }
    return 128 + WTERMSIG(job->status);
}

static void again(struct job *job)
{
    const struct job next = {.terminal = job->terminal,
                             .start    = job->start,
                             .signals  = job->signals,
                             .original = job->original,
                             .attempt  = job->attempt + 1};

    clean_up(job, &job->original);
    *job = next;
}

int main(int argc, char **argv)
{
    struct job job   = {.terminal = -1, .start = now()};
    const int  first = flags_parse(&flags, argc, argv);

    if (set.ranks == 0)
        flags_fail(&flags, "the number of ranks is missing (-n N)");
    if (first == argc)
        flags_fail(&flags, "the program is missing");
    if (set.tag && set.directory)
        flags_fail(&flags, "--tag and --output exclude each other");
    for (;;) {
        prepare(&job);
        start(&job, argv + first);
        supervise(&job);
        if (!starts_again(&job))
            return finish(&job);
        say(&job, "starting the job again, %ld of %ld", job.attempt + 1, set.restarts);
        again(&job);
    }
}
