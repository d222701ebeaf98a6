/* run_ranks.c -- see run_ranks.h. What a rank needs to know, it gets through the environment: HKT_RANK here, HKT_SIZE
 * and HKT_ID are in the launcher's own already. */
#include "run_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void guard_run(int alive)
{
    sigset_t all;
    char     byte;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL); /* what is sent to the group is for the ranks */
    setpgid(0, 0);
    prctl(PR_SET_NAME, "hkt-run guard");
    close(STDIN_FILENO); /* holds no pipe of the user's open */
    close(STDOUT_FILENO);
    close(STDERR_FILENO);
    while (read(alive, &byte, 1) < 0 && errno == EINTR)
        ;
    kill(0, SIGKILL);
    _exit(0);
}

int run_group_open(struct run_group *group)
{
    int alive[2], trouble[2];

    group->launcher = getpid();
    if (pipe2(trouble, O_CLOEXEC | O_NONBLOCK) || pipe2(alive, O_CLOEXEC))
        return -1;
    group->trouble       = trouble[0];
    group->trouble_child = trouble[1];
    group->alive         = alive[1];
    group->guard         = fork();
    if (group->guard == 0) {
        close(alive[1]);
        guard_run(alive[0]);
    }
    close(alive[0]);
    if (group->guard > 0)
        setpgid(group->guard, group->guard); /* also here, so that it has happened whoever runs first */
    return group->guard > 0 ? 0 : -1;
}

void run_group_close(struct run_group *group)
{
    kill(-group->guard, SIGKILL);
    while (waitpid(group->guard, NULL, 0) < 0 && errno == EINTR)
        ;
    close(group->alive);
    close(group->trouble);
    close(group->trouble_child);
}

static _Noreturn void give_up(const struct run_group *group, int rank, const char *what)
{
    struct run_trouble trouble = {.rank = rank, .error = errno};

    snprintf(trouble.what, sizeof(trouble.what), "%s", what);
    if (write(group->trouble_child, &trouble, sizeof(trouble)) < 0) /* smaller than PIPE_BUF: whole or not at all */
        perror(what);
    _exit(trouble.error == ENOENT ? 127 : 126);
}

static void redirect(const struct run_group *group, const struct run_rank *rank)
{
    char path[PATH_MAX];
    int  fd;

    if (rank->rank > 0) {
        fd = open("/dev/null", O_RDONLY);
        if (fd < 0)
            give_up(group, rank->rank, "/dev/null");
        dup2(fd, STDIN_FILENO);
        close(fd);
    }
    if (rank->output)
        run_output_attach(rank->output, rank->rank);
    if (rank->directory) {
        snprintf(path, sizeof(path), "%s/rank-%d.txt", rank->directory, rank->rank);
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | (rank->append ? 0 : O_TRUNC), 0666);
        if (fd < 0)
            give_up(group, rank->rank, path);
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        close(fd);
    }
}

static void bind_to(int cpu)
{
    cpu_set_t set[RUN_CPU_SETS];

    CPU_ZERO_S(sizeof(set), set);
    CPU_SET_S((size_t)cpu, sizeof(set), set);
    sched_setaffinity(0, sizeof(set), set); /* the processor may have left since: then the rank runs unbound */
}

static _Noreturn void rank_run(const struct run_group *group, const struct run_rank *rank)
{
    char number[16];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != group->launcher) /* it died before the line above */
        _exit(1);
    setpgid(0, group->guard);
    redirect(group, rank);
    if (rank->cpu >= 0)
        bind_to(rank->cpu);
    snprintf(number, sizeof(number), "%d", rank->rank);
    if (setenv("HKT_RANK", number, 1))
        give_up(group, rank->rank, "HKT_RANK");
    sigprocmask(SIG_SETMASK, rank->signals, NULL);
    execvp(rank->argv[0], rank->argv);
    give_up(group, rank->rank, rank->argv[0]);
}

pid_t run_rank_start(const struct run_group *group, const struct run_rank *rank)
{
    const pid_t pid = fork();

    if (pid == 0)
        rank_run(group, rank);
    if (pid > 0)
        setpgid(pid, group->guard); /* fails where the rank has done it and runs its program already */
    if (pid > 0 && rank->output)
        run_output_started(rank->output, rank->rank);
    return pid;
}

bool run_trouble_read(const struct run_group *group, struct run_trouble *trouble)
{
    return read(group->trouble, trouble, sizeof(*trouble)) == (ssize_t)sizeof(*trouble);
}

/* True for the first processor of its physical core; also when the system does not say. */
static bool first_of_core(int cpu)
{
    char  path[80];
    int   first = cpu;
    FILE *file;

    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    file = fopen(path, "re");
    if (file) {
        if (fscanf(file, "%d", &first) != 1)
            first = cpu;
        fclose(file);
    }
    return first == cpu;
}

int run_cpus(int *cpus, int max)
{
    cpu_set_t set[RUN_CPU_SETS];
    int       n = 0;

    CPU_ZERO_S(sizeof(set), set);
    if (sched_getaffinity(0, sizeof(set), set))
        return 0;
    for (int first = 1; first >= 0; first--)
        for (int cpu = 0; cpu < RUN_CPU_SETS * CPU_SETSIZE && n < max; cpu++)
            if (CPU_ISSET_S((size_t)cpu, sizeof(set), set) && first_of_core(cpu) == first)
                cpus[n++] = cpu;
    return n;
}
