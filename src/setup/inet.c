/* inet.c -- TCP sockets. See inet.h. Which addresses a host has is left to interfaces.c. */
#include "inet.h"

#include "base/error.h"
#include "base/option.h"
#include "socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const int SILENT_MS = 20000; /* data that the other end does not acknowledge for so long: its host is gone */

union name { /* of a socket */
    struct sockaddr         any;
    struct sockaddr_in      v4;
    struct sockaddr_in6     v6;
    struct sockaddr_storage room;
};

static socklen_t to_name(union name *name, const struct hkt_inet_address *a)
{
    memset(name, 0, sizeof(*name));
    if (a->family == 4) {
        name->v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(a->port)};
        memcpy(&name->v4.sin_addr, a->bytes, 4);
        return sizeof(name->v4);
    }
    name->v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(a->port)};
    memcpy(&name->v6.sin6_addr, a->bytes, 16);
    if (a->kind == HKT_INET_LINK)
        name->v6.sin6_scope_id = a->interface;
    return sizeof(name->v6);
}

static struct hkt_inet_address from_name(const union name *name)
{
    static const unsigned char mapped[12]    = {[10] = 0xff, [11] = 0xff}; /* IPv4 at a socket for both */
    struct hkt_inet_address    a             = {.family = 4, .kind = HKT_INET_ROUTED};
    const unsigned char *const six           = name->v6.sin6_addr.s6_addr;

    if (name->any.sa_family == AF_INET) {
        memcpy(a.bytes, &name->v4.sin_addr, 4);
        a.port = ntohs(name->v4.sin_port);
        return a;
    }
    a.port = ntohs(name->v6.sin6_port);
    if (memcmp(six, mapped, sizeof(mapped)) == 0) {
        memcpy(a.bytes, six + 12, 4);
        return a;
    }
    memcpy(a.bytes, six, 16);
    a.family    = 6;
    a.kind      = IN6_IS_ADDR_LINKLOCAL(&name->v6.sin6_addr) ? HKT_INET_LINK : HKT_INET_ROUTED;
    a.interface = name->v6.sin6_scope_id;
    return a;
}

/* Small messages go at once, and a host that has vanished is noticed. Neither is worth failing for. */
static void prepare(int fd)
{
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &(int){SILENT_MS}, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){SILENT_MS / 4000}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){SILENT_MS / 4000}, sizeof(int));
}

/* ---- listening ------------------------------------------------------------------------------------------------- */

static int listen_at(int family, uint16_t port, int backlog)
{
    const union name name = family == AF_INET6 ? (union name){.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)}}
                                               : (union name){.v4 = {.sin_family = AF_INET, .sin_port = htons(port)}};
    const int        fd   = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int              error;

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)); /* a port whose last connections are closing is free */
    if ((family != AF_INET6 || !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int))) &&
        !bind(fd, &name.any, family == AF_INET6 ? sizeof(name.v6) : sizeof(name.v4)) && !listen(fd, backlog))
        return fd;
    error = errno;
    close(fd);
    return -error;
}

static int listen_both(uint16_t port, int backlog)
{
    const int fd = listen_at(AF_INET6, port, backlog);

    return fd >= 0 || fd == -EADDRINUSE || fd == -EACCES ? fd : listen_at(AF_INET, port, backlog); /* a kernel without IPv6 */
}

/* The range of HKT_PORTS; 0 to 0 when it is not set. */
static int read_ports(unsigned *first, unsigned *last)
{
    const char *const text = hkt_options()->ports;
    int               end  = 0, n;

    *first = *last = 0;
    if (!text[0])
        return 0;
    n = sscanf(text, "%u%n-%u%n", first, &end, last, &end);
    if (n == 1)
        *last = *first;
    if (n < 1 || text[end] || *first < 1 || *last > 65535 || *first > *last)
        return hkt_fail(HKT_ERR_ARGUMENT, "HKT_PORTS=%s: a range of TCP ports is first-last, such as 40000-40100, within 1 to 65535", text);
    return 0;
}

/* Some free port of the range, from anywhere in it, so that the processes of a host do not all try the same ones in turn. */
static int listen_within(unsigned first, unsigned last, int backlog)
{
    const unsigned count = last - first + 1;
    unsigned       begin = 0;
    int            fd    = -EADDRINUSE;

    HKT_TRY(hkt_random(&begin, sizeof(begin)));
    for (unsigned i = 0; i < count && (fd == -EADDRINUSE || fd == -EACCES); i++)
        fd = listen_both((uint16_t)(first + (begin + i) % count), backlog);
    if (fd == -EADDRINUSE || fd == -EACCES)
        return hkt_fail(HKT_ERR_SYSTEM, "no port is free in HKT_PORTS=%u-%u: all %u are in use; a host needs one for every unique id that is "
                                        "waiting for its ranks, one for each of its communicators' trees and one for each process that "
                                        "moves data over TCP", first, last, count);
    return fd;
}

int hkt_inet_listen(uint16_t *port, int backlog)
{
    unsigned   first, last;
    union name name   = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t  length = sizeof(name);
    int        fd;

    HKT_TRY(read_ports(&first, &last));
    if (*port || !first)
        fd = listen_both(*port, backlog);
    else
        HKT_TRY(fd = listen_within(first, last, backlog));
    if (fd < 0)
        return hkt_fail(HKT_ERR_SYSTEM, "cannot listen at TCP port %u for ranks on other hosts: %s", *port, hkt_errno_text(-fd));
    if (getsockname(fd, &name.any, &length)) {
        close(fd);
        return hkt_fail(HKT_ERR_SYSTEM, "a socket does not know its port: %s", strerror(errno));
    }
    *port = from_name(&name).port;
    return fd;
}

int hkt_inet_accept(int listener, struct hkt_inet_address *from)
{
    union name name   = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t  length = sizeof(name);
    int        fd;

    do /* errors of the connection that was lost meanwhile are those of nobody */
        fd = accept4(listener, &name.any, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (fd < 0 && (errno == EINTR || errno == ECONNABORTED || errno == EPROTO || errno == ENETDOWN || errno == ENETUNREACH ||
                      errno == EHOSTUNREACH || errno == EHOSTDOWN || errno == ENONET));
    if (fd < 0)
        return -errno;
    prepare(fd);
    if (from)
        *from = from_name(&name);
    return fd;
}

/* ---- connecting ------------------------------------------------------------------------------------------------ */

int hkt_inet_connect(const struct hkt_inet_address *to)
{
    union name      name;
    const socklen_t length = to_name(&name, to);
    const int       fd     = socket(name.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int             error;

    if (fd < 0)
        return -errno;
    prepare(fd);
    if (!connect(fd, &name.any, length) || errno == EINPROGRESS || errno == EINTR) /* interrupted: it goes on */
        return fd;
    error = errno;
    close(fd);
    return -error;
}

int hkt_inet_connected(int fd)
{
    int       error  = 0;
    socklen_t length = sizeof(error);

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length))
        return -errno;
    return -error;
}

/* ---- texts ----------------------------------------------------------------------------------------------------- */

const char *hkt_inet_text(const struct hkt_inet_address *a, char text[HKT_INET_TEXT])
{
    char      bytes[INET6_ADDRSTRLEN] = "?", interface[IF_NAMESIZE + 1] = "", port[8] = "";
    const int family = a->family == 4 ? AF_INET : AF_INET6;

    inet_ntop(family, a->bytes, bytes, sizeof(bytes));
    if (a->kind == HKT_INET_LINK && a->family == 6 && a->interface && if_indextoname(a->interface, interface + 1))
        interface[0] = '%';
    if (a->port)
        snprintf(port, sizeof(port), ":%u", a->port);
    snprintf(text, HKT_INET_TEXT, a->port && family == AF_INET6 ? "[%s%s]%s" : "%s%s%s", bytes, interface, port);
    return text;
}

/* Splits "host:port"; true when it is one. */
static bool split(const char *text, char *host, size_t room, const char **port)
{
    const char *const colon  = strrchr(text, ':');
    const bool        square = text[0] == '[';
    size_t            length;
    char             *end;

    if (!colon || colon == text || (square && colon[-1] != ']') || (!square && memchr(text, ':', (size_t)(colon - text))))
        return false;
    *port  = colon + 1;
    length = (size_t)(colon - text) - (square ? 2 : 0);
    if (length == 0 || length >= room || strtoul(*port, &end, 10) - 1 >= 65535 || *end || !strchr("123456789", (*port)[0]))
        return false;
    memcpy(host, text + square, length);
    host[length] = 0;
    return true;
}

int hkt_inet_resolve(struct hkt_inet_address *list, int room, const char *text)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo      *found;
    char                  host[256];
    const char           *port;
    int                   count = 0, rc;

    if (!split(text, host, sizeof(host), &port))
        return hkt_fail(HKT_ERR_ARGUMENT, "\"%s\" does not say where rank 0 is: that is host:port, or [address]:port for IPv6", text);
    rc = getaddrinfo(host, port, &hints, &found);
    if (rc)
        return hkt_fail(HKT_ERR_ARGUMENT, "nobody knows the address of rank 0's host, %s: %s", host, gai_strerror(rc));
    for (const struct addrinfo *i = found; i && count < room; i = i->ai_next) {
        union name name;

        if (i->ai_addrlen > sizeof(name) || (i->ai_family != AF_INET && i->ai_family != AF_INET6))
            continue;
        memcpy(&name, i->ai_addr, i->ai_addrlen);
        list[count++] = from_name(&name);
    }
    freeaddrinfo(found);
    return count;
}

uint64_t hkt_inet_machine(void)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    char     boot[64] = "";
    FILE    *f = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (f && !fgets(boot, sizeof(boot), f))
        boot[0] = 0;
    if (f)
        fclose(f);
    if (!boot[0] && gethostname(boot, sizeof(boot) - 1))
        boot[0] = 0;
    for (const char *c = boot; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    return hash;
}

uint64_t hkt_inet_host(void)
{
    uint64_t    hash = hkt_inet_machine();
    struct stat space;

    if (stat("/proc/self/ns/net", &space) == 0)
        hash = (hash ^ space.st_ino) * 0x100000001b3u;
    return hash;
}
