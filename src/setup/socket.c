/* socket.c -- abstract unix sockets. See socket.h. What is said over them is left to bootstrap.c and helper.c. */
#include "socket.h"

#include "base/error.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

static socklen_t fill(struct sockaddr_un *address, const char *name)
{
    const size_t n = strnlen(name, sizeof(address->sun_path) - 1);

    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, name, n); /* the leading 0 makes it abstract */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

/* Closes and gives the error of the call before. */
static int give_up(int fd, int error)
{
    close(fd);
    return -error;
}

int hkt_socket_listen(int type, const char *name)
{
    struct sockaddr_un address;
    const socklen_t    length = fill(&address, name);
    const int          fd     = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    if (bind(fd, (struct sockaddr *)&address, length) || listen(fd, SOMAXCONN))
        return give_up(fd, errno);
    return fd;
}

/* Same user, or root, who can do everything anyway. */
static bool trusted(int fd, pid_t *pid)
{
    struct ucred cred;
    socklen_t    length = sizeof(cred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &length))
        return false;
    if (pid)
        *pid = cred.pid;
    return cred.uid == geteuid() || cred.uid == 0;
}

int hkt_socket_connect(int type, const char *name, pid_t *pid)
{
    struct sockaddr_un address;
    const socklen_t    length = fill(&address, name);
    const int          fd     = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    while (connect(fd, (struct sockaddr *)&address, length)) /* never in progress: it connects at once or not */
        if (errno != EINTR)
            return give_up(fd, errno);
    if (!trusted(fd, pid))
        return give_up(fd, EACCES);
    return fd;
}

int hkt_socket_accept(int listener)
{
    int fd;

    do
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd < 0)
        return -errno;
    return trusted(fd, NULL) ? fd : give_up(fd, EACCES);
}

union control {
    struct cmsghdr header; /* for the alignment */
    char           bytes[CMSG_SPACE(sizeof(int))];
};

ssize_t hkt_socket_send(int fd, const void *data, size_t size, int pass)
{
    struct iovec  vec     = {(void *)(uintptr_t)data, size};
    union control control = {0};
    struct msghdr message = {.msg_iov = &vec, .msg_iovlen = 1};
    ssize_t       n;

    if (pass >= 0) {
        control.header =
            (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &pass, sizeof(pass));
        message.msg_control    = &control;
        message.msg_controllen = sizeof(control);
    }
    do
        n = sendmsg(fd, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

ssize_t hkt_socket_receive(int fd, void *data, size_t size, int *passed)
{
    struct iovec  vec     = {data, size};
    union control control = {0};
    struct msghdr message = {.msg_iov = &vec, .msg_iovlen = 1};
    ssize_t       n;

    if (passed) {
        *passed                = -1;
        message.msg_control    = &control;
        message.msg_controllen = CMSG_LEN(sizeof(int)); /* not a byte more: there must be no room for a second one */
    }
    do
        n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n >= 0 && passed && CMSG_FIRSTHDR(&message) && control.header.cmsg_level == SOL_SOCKET &&
        control.header.cmsg_type == SCM_RIGHTS && control.header.cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(passed, CMSG_DATA(&control.header), sizeof(*passed));
    return n < 0 ? -errno : n;
}

_Thread_local const _Atomic uint32_t *hkt_socket_stop;

bool hkt_socket_stopped(void)
{
    return hkt_socket_stop && atomic_load((_Atomic uint32_t *)(uintptr_t)hkt_socket_stop);
}

bool hkt_socket_late(uint64_t deadline)
{
    return hkt_now_ns() >= deadline || hkt_socket_stopped();
}

int hkt_socket_patience(uint64_t deadline)
{
    const uint64_t now = hkt_now_ns(), most = hkt_socket_stop ? 20 : 60000;

    if (hkt_socket_late(deadline))
        return 0;
    return deadline - now > most * 1000000 ? (int)most : (int)((deadline - now + 999999) / 1000000);
}

int hkt_socket_wait(int fd, short events, uint64_t deadline)
{
    struct pollfd p = {.fd = fd, .events = events};

    for (;;) {
        const int patience = hkt_socket_patience(deadline);
        const int n        = poll(&p, 1, patience);

        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (!patience)
            return -ETIMEDOUT;
    }
}

int hkt_random(void *bytes, size_t size)
{
    size_t done = 0;

    while (done < size) {
        const ssize_t n = getrandom((char *)bytes + done, size - done, 0);

        if (n < 0 && errno != EINTR)
            return hkt_fail(HKT_ERR_SYSTEM, "no random bytes: getrandom: %s", strerror(errno));
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

const char *hkt_errno_text(int error)
{
    static _Thread_local char text[160];
    struct rlimit             limit;

    if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        snprintf(text, sizeof(text),
                 "this process has as many open files as it may, %llu (RLIMIT_NOFILE, raise it with ulimit -n)",
                 (unsigned long long)limit.rlim_cur);
    else if (error == ENFILE)
        snprintf(text, sizeof(text), "the system has as many open files as it may (/proc/sys/fs/file-max)");
    else
        snprintf(text, sizeof(text), "%s", strerror(error));
    return text;
}
