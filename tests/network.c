/* network.c -- see network.h. */
#include "network.h"
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t holder[2]; /* of hosts b and c */

static int run(const char *command)
{
    const int status = system(command);

    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static pid_t hold(void)
{
    int   tube[2];
    char  done = 0;
    pid_t pid;

    expect_true(pipe(tube) == 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        done = unshare(CLONE_NEWNET) == 0;
        if (write(tube[1], &done, 1) == 1)
            pause();
        _exit(0);
    }
    expect_true(read(tube[0], &done, 1) == 1 && done);
    close(tube[0]);
    close(tube[1]);
    return pid;
}

bool network_open(void)
{
    if (run("ip -V >/dev/null 2>&1 && nsenter -V >/dev/null 2>&1")) {
        printf("skipped: ip(8) or nsenter(1) is not installed\n");
        return false;
    }
    if (unshare(CLONE_NEWNET)) {
        printf("skipped: no network namespaces here: %s\n", strerror(errno));
        return false;
    }
    for (int i = 0; i < 2; i++)
        holder[i] = hold();
    for (char host = 'a'; host <= 'c'; host++)
        network_run(host, "ip link set lo up");
    return true;
}

void network_run(char host, const char *format, ...)
{
    char    command[512], line[640];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    if (host != 'a')
        snprintf(line, sizeof(line), "nsenter -t %d -n -- sh -c '%s'", holder[host - 'b'], command);
    else
        snprintf(line, sizeof(line), "%s", command);
    expect(run(line) == 0, "host %c: this command failed: %s", host, command);
}

void network_enter(char host)
{
    char path[64];
    int  fd;

    if (host != 'a') {
        snprintf(path, sizeof(path), "/proc/%d/ns/net", holder[host - 'b']);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        expect(fd >= 0 && setns(fd, CLONE_NEWNET) == 0, "cannot go to host %c: %s", host, strerror(errno));
        close(fd);
    }
    snprintf(path, sizeof(path), "host-%c", host);
    expect_true(unshare(CLONE_NEWUTS) == 0 && sethostname(path, 6) == 0);
}

void network_cable(char host, const char *name)
{
    network_run('a', "ip link add %s type veth peer name peer0", name);
    network_run('a', "ip link set peer0 netns %d", holder[host - 'b']);
    network_run(host, "ip link set peer0 name %s", name);
    network_run('a', "ip link set %s up", name);
    network_run(host, "ip link set %s up", name);
}
