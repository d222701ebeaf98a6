/* launch_pmi.c -- the id by PMI-1: the protocol of MPICH's Hydra and its kin (Intel MPI, MVAPICH), and of Slurm's srun --mpi=pmi2, which
 * speaks it as well as its own. See launch.h.
 *
 * Lines of text, "cmd=put kvsname=a key=b value=c", over a socket that the launcher passed (PMI_FD) or listens at (PMI_PORT); each is
 * answered by one line. Rank 0 puts the id, all meet in a barrier, the others get it. finalize belongs to it: without one, Hydra takes the
 * process's end for a crash. It also is the end for everybody in this process, so a program that uses MPI must get its id through MPI.
 */
#include "launch.h"

#include "base/error.h"
#include "bootstrap.h"
#include "socket.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE = 2048, NAME = 512, QUOTE = 100, DIGITS = 2 * HKT_UNIQUE_ID_BYTES };

#define KEY "hocket-id"

struct pmi {
    int      fd;
    uint64_t deadline;
    size_t   have; /* bytes in `in` */
    char     in[LINE];
    char     line[LINE]; /* the last answer, without its end */
};

/* ---- lines --------------------------------------------------------------------------------------------------------- */

/* What the server said, fit to be shown. */
static const char *quote(const struct pmi *p, char text[QUOTE])
{
    size_t n = 0;

    for (; n + 1 < QUOTE && p->line[n]; n++)
        text[n] = isprint((unsigned char)p->line[n]) ? p->line[n] : '?';
    text[n] = 0;
    return text;
}

static int lost(const char *request, int error)
{
    const int n = (int)strcspn(request, " \n");

    if (hkt_socket_stopped())
        return hkt_fail(HKT_ERR_ABORTED, "PMI was given up at \"%.*s\"", n, request);
    if (error == -ETIMEDOUT)
        return hkt_fail(HKT_ERR_TIMEOUT, "the launcher did not answer PMI's \"%.*s\" in time (limit: HKT_INIT_TIMEOUT)%s", n, request,
                        strncmp(request, "cmd=barrier_in", 14) ? "" : ": not every rank of the job has called hkt_comm_init_env()");
    if (!error || error == -EPIPE || error == -ECONNRESET)
        return hkt_fail(HKT_ERR_PEER, "the launcher hung up at PMI's \"%.*s\": it is ending the job, or this process has spoken PMI before "
                        "(a program that calls MPI_Init passes hkt_unique_id() on with MPI)", n, request);
    return hkt_fail(HKT_ERR_SYSTEM, "PMI's \"%.*s\": %s", n, request, hkt_errno_text(-error));
}

/* The next line. `request`: what it is to answer, for the message. */
static int read_line(struct pmi *p, const char *request)
{
    for (;;) {
        char   *end = memchr(p->in, '\n', p->have);
        ssize_t n;

        if (end) {
            const size_t length = (size_t)(end - p->in);

            memcpy(p->line, p->in, length);
            p->line[length] = 0;
            p->have -= length + 1;
            memmove(p->in, end + 1, p->have);
            return 0;
        }
        if (p->have == sizeof(p->in))
            return hkt_fail(HKT_ERR_SYSTEM, "the launcher answered PMI's \"%.*s\" with a line of more than %d bytes; it is no PMI-1 server",
                            (int)strcspn(request, " \n"), request, LINE);
        n = hkt_socket_wait(p->fd, POLLIN, p->deadline);
        if (!n) {
            n = recv(p->fd, p->in + p->have, sizeof(p->in) - p->have, MSG_DONTWAIT);
            if (n < 0 && (errno == EAGAIN || errno == EINTR))
                continue;
            n = n < 0 ? -errno : n;
        }
        if (n <= 0)
            return lost(request, (int)n);
        p->have += (size_t)n;
    }
}

static int write_line(struct pmi *p, const char *text)
{
    size_t length = strlen(text), done = 0;

    while (done < length) {
        ssize_t n = hkt_socket_wait(p->fd, POLLOUT, p->deadline);

        if (!n) {
            n = send(p->fd, text + done, length - done, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n < 0 && (errno == EAGAIN || errno == EINTR))
                continue;
            n = n < 0 ? -errno : n;
        }
        if (n < 0)
            return lost(text, (int)n);
        done += (size_t)n;
    }
    return 0;
}

/* The value of a key in the last answer: up to the next space. False when it is not there or does not fit. */
static bool field(const struct pmi *p, const char *key, char *value, size_t size)
{
    const size_t length = strlen(key);

    for (const char *word = p->line; *word; word += strcspn(word, " "), word += strspn(word, " ")) {
        const size_t n = strcspn(word, " ");

        if (n <= length || strncmp(word, key, length) || word[length] != '=')
            continue;
        if (n - length - 1 >= size)
            return false;
        memcpy(value, word + length + 1, n - length - 1);
        value[n - length - 1] = 0;
        return true;
    }
    return false;
}

/* The same for a whole number that is not negative; -1 when it is none. */
static long number(const struct pmi *p, const char *key)
{
    char  text[24], *end;
    long  value;

    if (!field(p, key, text, sizeof(text)) || !isdigit((unsigned char)text[0]))
        return -1;
    value = strtol(text, &end, 10);
    return *end || value > HKT_RANKS ? -1 : value;
}

/* The last answer is not what it should be. */
static int wrong(const struct pmi *p, const char *request, const char *why)
{
    char text[QUOTE];

    return hkt_fail(HKT_ERR_SYSTEM, "the launcher answered PMI's \"%.*s\" with \"%s\": %s; set HKT_ROOT=host:port of rank 0 to do without PMI",
                    (int)strcspn(request, " \n"), request, quote(p, text), why);
}

/* Reads a line that must be "cmd=..." with no rc but 0. */
static int expect(struct pmi *p, const char *request, const char *cmd)
{
    char text[64];

    HKT_TRY(read_line(p, request));
    if (!field(p, "cmd", text, sizeof(text)) || strcmp(text, cmd))
        return wrong(p, request, "that is no answer to it");
    if (field(p, "rc", text, sizeof(text)) && strcmp(text, "0"))
        return wrong(p, request, "it has failed");
    return 0;
}

/* One request, printf form, and its answer. */
static int __attribute__((format(printf, 3, 4))) ask(struct pmi *p, const char *answer, const char *format, ...)
{
    char    request[LINE];
    va_list args;
    int     n;

    va_start(args, format);
    n = vsnprintf(request, sizeof(request), format, args);
    va_end(args);
    if (n >= (int)sizeof(request))
        return hkt_fail(HKT_ERR_INTERNAL, "a PMI request of %d bytes", n);
    HKT_TRY(write_line(p, request));
    return expect(p, request, answer);
}

/* ---- the server ---------------------------------------------------------------------------------------------------- */

/* Connects to "host:port", the first address of the host that answers. */
static int dial_port(struct pmi *p, const char *text)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const char           *colon = strrchr(text, ':');
    struct addrinfo      *list;
    char                  host[NAME];
    int                   rc, error = 0;

    if (!colon || (size_t)(colon - text) >= sizeof(host))
        return hkt_fail(HKT_ERR_ARGUMENT, "PMI_PORT=%.80s is not host:port", text);
    snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
    rc = getaddrinfo(host, colon + 1, &hints, &list);
    if (rc)
        return hkt_fail(HKT_ERR_SYSTEM, "PMI_PORT=%.80s: the launcher's host is not found: %s", text, gai_strerror(rc));
    p->fd = -1;
    for (struct addrinfo *a = list; a && p->fd < 0; a = a->ai_next) {
        socklen_t size = sizeof(error);
        const int fd   = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        error = fd < 0 || (connect(fd, a->ai_addr, a->ai_addrlen) && errno != EINPROGRESS) ? errno : 0;
        if (!error)
            error = -hkt_socket_wait(fd, POLLOUT, p->deadline);
        if (!error && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size))
            error = errno;
        if (!error)
            p->fd = fd;
        else if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(list);
    return p->fd >= 0 ? 0 : hkt_fail(HKT_ERR_SYSTEM, "PMI_PORT=%.80s: no connection to the launcher: %s", text, hkt_errno_text(error));
}

/* At a port the server first says who is who: three lines after the answer, rank and size among them. */
static int open_port(struct pmi *p, struct hkt_launched *place)
{
    static const char request[] = "cmd=initack pmiid=%ld\n";
    long              id, size, rank;
    int               rc;

    HKT_TRY(hkt_launch_number("PMI_ID", 0, HKT_RANKS, &id));
    HKT_TRY(dial_port(p, getenv("PMI_PORT")));
    rc = ask(p, "initack", request, id);
    if (!rc)
        rc = expect(p, request, "set");
    size = number(p, "size");
    if (!rc)
        rc = expect(p, request, "set");
    rank = number(p, "rank");
    if (!rc)
        rc = expect(p, request, "set"); /* debug */
    if (!rc && (size < 1 || rank < 0 || rank >= size))
        rc = wrong(p, request, "before it there was no rank or size that makes sense");
    if (rc) {
        close(p->fd);
        return rc;
    }
    place->rank = (int)rank;
    place->size = (int)size;
    return 0;
}

static int open_inherited(struct pmi *p, struct hkt_launched *place)
{
    static const struct hkt_launched_names names = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"};
    struct stat                         about;
    long                                fd;

    HKT_TRY(hkt_launched_read(place, &names));
    HKT_TRY(hkt_launch_number("PMI_FD", 0, INT_MAX, &fd));
    if (fstat((int)fd, &about) || !S_ISSOCK(about.st_mode))
        return hkt_fail(HKT_ERR_SYSTEM, "PMI_FD=%ld, but descriptor %ld is no socket here: something between the launcher and this program has "
                        "closed it, or MPI has finished with it; set HKT_ROOT=host:port of rank 0 to do without PMI", fd, fd);
    p->fd = (int)fd;
    return 0;
}

/* ---- the exchange ---------------------------------------------------------------------------------------------------- */

/* From init to finalize; `text` is rank 0's id, printed, and everybody's afterwards. */
static int talk(struct pmi *p, int rank, char text[DIGITS + 1])
{
    char kvs[NAME];

    HKT_TRY(ask(p, "response_to_init", "cmd=init pmi_version=1 pmi_subversion=1\n"));
    if (number(p, "pmi_version") != 1)
        return wrong(p, "cmd=init", "version 1 was asked for");
    HKT_TRY(ask(p, "maxes", "cmd=get_maxes\n"));
    if (number(p, "keylen_max") < (long)sizeof(KEY) || number(p, "vallen_max") <= DIGITS)
        return wrong(p, "cmd=get_maxes", "an id does not fit");
    HKT_TRY(ask(p, "my_kvsname", "cmd=get_my_kvsname\n"));
    if (!field(p, "kvsname", kvs, sizeof(kvs)) || !kvs[0])
        return wrong(p, "cmd=get_my_kvsname", "there is no name in it that can be used");
    if (rank == 0)
        HKT_TRY(ask(p, "put_result", "cmd=put kvsname=%s key=" KEY " value=%s\n", kvs, text));
    HKT_TRY(ask(p, "barrier_out", "cmd=barrier_in\n"));
    HKT_TRY(ask(p, "get_result", "cmd=get kvsname=%s key=" KEY "\n", kvs));
    if (!field(p, "value", text, DIGITS + 1))
        return wrong(p, "cmd=get", "there is no id in it");
    return ask(p, "finalize_ack", "cmd=finalize\n");
}

int hkt_pmi_exchange(struct hkt_launched *place, uint64_t deadline)
{
    struct pmi          p     = {.deadline = deadline};
    struct hkt_launched found = {.local_rank = -1};
    char                text[DIGITS + 1];
    hkt_unique_id_t     made = {{0}};
    int                 rc   = 0;

    if (dlsym(RTLD_DEFAULT, "MPI_Init"))
        return hkt_fail(HKT_ERR_USAGE, "hkt_comm_init_env() in a program with MPI, under a launcher that speaks PMI: only one of them can talk to "
                        "it; give rank 0's hkt_unique_id() to the others with MPI_Bcast and call hkt_comm_init(), or set HKT_ROOT=host:port");
    HKT_TRY(getenv("PMI_FD") ? open_inherited(&p, &found) : open_port(&p, &found));
    found.local_rank = hkt_launch_local_rank(getenv("MPI_LOCALRANKID") ? "MPI_LOCALRANKID" : "SLURM_LOCALID", found.size);
    if (found.rank == 0)
        rc = hkt_bootstrap_unique_id(&made);
    if (found.rank == 0 && !rc)
        hkt_bootstrap_id_print(&made, text);
    rc = rc ? rc : talk(&p, found.rank, text);
    close(p.fd); /* after finalize nobody may say more, and after a failure no answer would fit its question */
    if (!rc)
        rc = hkt_bootstrap_id_parse(&found.id, text);
    if (!rc)
        *place = found;
    else
        hkt_bootstrap_id_drop(&made);
    return rc;
}
