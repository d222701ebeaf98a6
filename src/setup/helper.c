/* helper.c -- the helper thread: robust list, socket, connections. See helper.h.
 *
 * Nothing that a stranger does costs more than a slot for a second: every connection has its deadline, none waits for
 * another.
 */
#include "helper.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "socket.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    CONNECTIONS = 512,
    BATCH       = 32,     /* events a turn */
    STACK       = 524288, /* sanitizers need more than one would think */
    WATCHED     = 0x10000 /* event data: a slot, or one of these, or WATCHED + pidfd */
};

static const uint64_t SILENCE_NS = 1000000000u; /* a connection that says nothing */
static const uint64_t PENDING_NS = 4000000000u; /* an asker that is not attached; less than what it waits for */
static const uint64_t FULL_NS    = 10000000u;   /* out of descriptors: look again after this */

enum { POKE = CONNECTIONS, LISTENER };

struct connection {
    int            fd; /* 0: the slot is free */
    int            passed;
    bool           pending; /* has asked, cannot be answered yet */
    uint64_t       deadline;
    struct hkt_ask ask;
};

static struct {
    struct hkt_life        *life;
    int                     life_fd, listener, epoll, poke;
    struct hkt_helper_serve serve;
    sem_t                   ready;
    _Atomic uint64_t        strangers;
    uint64_t                paused; /* until when the listener is not looked at; 0: it is */
    struct connection       connection[CONNECTIONS];
} helper;

static void socket_name(char name[32], uint64_t number)
{
    snprintf(name, 32, "hocket-%016llx", (unsigned long long)number);
}

static int listen_to(int fd, uint32_t events, uint64_t data, int op)
{
    struct epoll_event event = {.events = events, .data.u64 = data};

    return epoll_ctl(helper.epoll, op, fd, &event) ? -errno : 0;
}

static void drop(struct connection *c)
{
    if (c->passed >= 0)
        close(c->passed);
    epoll_ctl(helper.epoll, EPOLL_CTL_DEL, c->fd, NULL); /* a forked child may keep it open */
    close(c->fd);
    c->fd = 0;
}

static void count_stranger(void)
{
    atomic_fetch_add_explicit(&helper.strangers, 1, memory_order_relaxed); /* a statistic: no partner */
}

static void drop_stranger(struct connection *c)
{
    count_stranger();
    drop(c);
}

static void answer(struct connection *c, int error, int pass)
{
    const struct hkt_ask reply = {.magic = HKT_ASK_MAGIC, .id = (uint32_t)-error};

    hkt_socket_send(c->fd, &reply, sizeof(reply), pass); /* an asker that has gone needs no answer */
    drop(c);
}

/* Answers a complete question, or leaves it pending. */
static void serve(struct connection *c)
{
    int rc;

    switch (c->ask.kind) {
    case HKT_ASK_LIFE:
        answer(c, 0, helper.life_fd);
        break;
    case HKT_ASK_FORGET:
        helper.serve.forget(&c->ask);
        drop(c);
        break;
    case HKT_ASK_MAP:
        rc = c->passed < 0 ? -EMFILE : helper.serve.map(&c->ask, c->passed);
        if (rc != -EAGAIN) {
            answer(c, rc, -1);
        } else if (!c->pending) {
            c->pending  = true;
            c->deadline = hkt_now_ns() + PENDING_NS;
        }
        break;
    case HKT_ASK_KEEP:
        answer(c, c->passed < 0 ? -EMFILE : helper.serve.keep(&c->ask, c->passed), -1);
        break;
    default:
        drop_stranger(c);
        break;
    }
}

static void hear(struct connection *c)
{
    const struct hkt_life *life = helper.life;
    struct hkt_ask         ask;
    int                    passed;
    ssize_t                n;

    if (c->pending) { /* it has hung up, or says more than it should */
        drop(c);
        return;
    }
    n = hkt_socket_receive(c->fd, &ask, sizeof(ask), &passed);
    if (n == -EAGAIN)
        return;
    c->passed = passed;
    if (n != sizeof(ask) || ask.magic != HKT_ASK_MAGIC || memcmp(ask.to, life->address.uuid, sizeof(ask.to)) != 0) {
        drop_stranger(c);
        return;
    }
    c->ask = ask;
    serve(c);
}

static void pause_listener(uint64_t until)
{
    helper.paused = until;
    listen_to(helper.listener, until ? 0 : EPOLLIN, LISTENER, EPOLL_CTL_MOD);
}

static void welcome(void)
{
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &helper.connection[i];
        int                fd;

        if (c->fd)
            continue;
        while ((fd = hkt_socket_accept(helper.listener)) == -EACCES)
            count_stranger();
        if (fd == -EAGAIN)
            return;
        if (fd < 0)
            break;
        *c = (struct connection){.fd = fd, .passed = -1, .deadline = hkt_now_ns() + SILENCE_NS};
        if (listen_to(fd, EPOLLIN, (uint64_t)i, EPOLL_CTL_ADD))
            drop(c);
    }
    pause_listener(hkt_now_ns() + FULL_NS); /* no slot or no descriptor: let those who are there finish */
}

/* Ends what is overdue; gives the time of the next deadline. */
static uint64_t expire(void)
{
    const uint64_t now  = hkt_now_ns();
    uint64_t       next = now + 60000000000u;

    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &helper.connection[i];

        if (c->fd && now >= c->deadline) {
            if (c->pending)
                answer(c, -ESRCH, -1);
            else
                drop_stranger(c);
        }
        if (c->fd && c->deadline < next)
            next = c->deadline;
    }
    if (helper.paused && now >= helper.paused)
        pause_listener(0);
    return helper.paused && helper.paused < next ? helper.paused : next;
}

static void poked(void)
{
    eventfd_t count;

    eventfd_read(helper.poke, &count);
    for (int i = 0; i < CONNECTIONS; i++)
        if (helper.connection[i].fd && helper.connection[i].pending)
            serve(&helper.connection[i]);
}

static void turn(const struct epoll_event *event)
{
    const uint64_t what = event->data.u64;

    if (what >= WATCHED)
        helper.serve.gone((int)(what - WATCHED));
    else if (what == LISTENER)
        welcome();
    else if (what == POKE)
        poked();
    else if (helper.connection[what].fd)
        hear(&helper.connection[what]);
}

/* Has the kernel mark the life word when this thread ends, that is, when the process does. The list's one entry lives
 * in private memory, so that no peer can spoil it; the word is at a fixed distance from it. */
static void mark_death(void)
{
    static struct robust_list      entry;
    static struct robust_list_head head;

    head.list.next    = &entry;
    entry.next        = &head.list;
    head.futex_offset = (long)((char *)&helper.life->word - (char *)&entry);
    /* Read by hkt_process_alive(). */
    atomic_store_explicit(&helper.life->word, (uint32_t)syscall(SYS_gettid), memory_order_relaxed);
    if (syscall(SYS_set_robust_list, &head, sizeof(head)))
        atomic_store_explicit(&helper.life->word, 0, memory_order_relaxed);
}

static void *help(void *unused)
{
    struct epoll_event event[BATCH];

    (void)unused;
    mark_death();
    sem_post(&helper.ready);
    for (;;) {
        const uint64_t next = expire();
        const int      n    = epoll_wait(helper.epoll, event, BATCH, hkt_socket_patience(next));

        for (int i = 0; i < n; i++)
            turn(&event[i]);
        /* The program has closed our descriptors: nobody can be served, but the process's end is still marked. */
        while (n < 0 && errno != EINTR)
            poll(NULL, 0, -1);
    }
    return NULL;
}

static int start_thread(void)
{
    pthread_attr_t attr;
    pthread_t      thread;
    sigset_t       all, before;
    int            rc = hkt_alloc_check() ? ENOMEM : pthread_attr_init(&attr);

    if (rc)
        return rc;
    pthread_attr_setstacksize(&attr, STACK);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sem_init(&helper.ready, 0, 0);
    sigfillset(&all);
    /* The new thread inherits the mask: no signal of the program is ever handled there. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attr, help, NULL);
    /* The program's thread-local variables live on the stack too, and may be large. */
    if (rc == EINVAL && !pthread_attr_setstacksize(&attr, 16 * STACK))
        rc = pthread_create(&thread, &attr, help, NULL);
    if (!rc)
        pthread_setname_np(thread, "hocket-helper");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    while (!rc && sem_wait(&helper.ready) && errno == EINTR)
        continue;
    return rc;
}

static int open_fds(void)
{
    char name[32];

    do {
        HKT_TRY(hkt_random(&helper.life->address.socket, sizeof(helper.life->address.socket)));
        socket_name(name, helper.life->address.socket);
        helper.listener = hkt_socket_listen(SOCK_SEQPACKET, name);
    } while (helper.listener == -EADDRINUSE);
    helper.epoll = epoll_create1(EPOLL_CLOEXEC);
    helper.poke  = helper.epoll < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (helper.listener < 0 || helper.epoll < 0 || helper.poke < 0)
        return hkt_fail(HKT_ERR_SYSTEM, "cannot start the helper thread: %s",
                        hkt_errno_text(helper.listener < 0 ? -helper.listener : errno));
    if (listen_to(helper.listener, EPOLLIN, LISTENER, EPOLL_CTL_ADD) ||
        listen_to(helper.poke, EPOLLIN, POKE, EPOLL_CTL_ADD))
        return hkt_fail(HKT_ERR_SYSTEM, "cannot start the helper thread: epoll_ctl: %s", strerror(errno));
    return 0;
}

int hkt_helper_start(struct hkt_life *life, int life_fd, const struct hkt_helper_serve *serve_by)
{
    int rc;

    helper.life     = life;
    helper.life_fd  = life_fd;
    helper.serve    = *serve_by;
    helper.listener = -1;
    helper.epoll    = -1;
    helper.poke     = -1;

    rc = open_fds();
    if (!rc) {
        const int error = start_thread();

        if (error)
            rc = hkt_fail(error == ENOMEM ? HKT_ERR_MEMORY : HKT_ERR_SYSTEM,
                          "cannot start the helper thread: %s (limits: ulimit -u, ulimit -v, the pids cgroup)",
                          strerror(error));
    }
    if (rc)
        hkt_helper_close_fds();
    return rc;
}

void hkt_helper_close_fds(void)
{
    if (helper.poke >= 0)
        close(helper.poke);
    if (helper.epoll >= 0)
        close(helper.epoll);
    if (helper.listener >= 0)
        close(helper.listener);
    helper.listener = -1;
    helper.epoll    = -1;
    helper.poke     = -1;
}

void hkt_helper_poke(void)
{
    eventfd_write(helper.poke, 1);
}

int hkt_helper_watch(int pidfd)
{
    return listen_to(pidfd, EPOLLIN, WATCHED + (uint64_t)pidfd, EPOLL_CTL_ADD);
}

void hkt_helper_unwatch(int pidfd)
{
    epoll_ctl(helper.epoll, EPOLL_CTL_DEL, pidfd, NULL);
}

uint64_t hkt_helper_strangers(void)
{
    return atomic_load_explicit(&helper.strangers, memory_order_relaxed);
}

int hkt_helper_send(const struct hkt_process_address *to, const struct hkt_ask *ask, int pass, uint64_t deadline,
                    int32_t *pid)
{
    struct hkt_ask message = *ask;
    char           name[32];
    int            fd;
    ssize_t        n;

    socket_name(name, to->socket);
    while ((fd = hkt_socket_connect(SOCK_SEQPACKET, name, pid)) == -EAGAIN && !hkt_socket_late(deadline))
        poll(NULL, 0, 1); /* its queue is full: it is busy or stopped */
    if (fd < 0)
        return fd;
    message.magic = HKT_ASK_MAGIC;
    memcpy(message.to, to->uuid, sizeof(message.to));
    n = hkt_socket_send(fd, &message, sizeof(message), pass);
    if (n == sizeof(message))
        return fd;
    close(fd);
    return n < 0 ? (int)n : -EIO;
}

int hkt_helper_answer(int fd, uint64_t deadline, const struct hkt_process *peer, int *passed)
{
    struct hkt_ask reply;
    ssize_t        n = 0;
    int            rc;

    do { /* in short turns: the end of a large process closes its sockets late, its life word tells at once */
        const uint64_t turn_end = hkt_now_ns() + 20000000u;

        rc = hkt_socket_wait(fd, POLLIN, turn_end < deadline ? turn_end : deadline);
    } while (rc == -ETIMEDOUT && !hkt_socket_late(deadline) && (!peer || hkt_process_alive(peer)));
    if (!rc)
        n = hkt_socket_receive(fd, &reply, sizeof(reply), passed);
    else if (passed)
        *passed = -1;
    close(fd);
    if (rc)
        return rc;
    if (n != sizeof(reply) || reply.magic != HKT_ASK_MAGIC) {
        if (passed && *passed >= 0)
            close(*passed);
        return n < 0 ? (int)n : -ECONNRESET;
    }
    return -(int)reply.id;
}
