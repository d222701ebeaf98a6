/* inet.h -- TCP sockets between hosts: which addresses this host can be reached at, a port to listen at, a connection that does not block,
 * and the text of an address. Who is at the other end is left to proof.h, which of many addresses answers to reach.h. Like socket.h:
 * every call retries EINTR; sockets are non-blocking and closed by exec.
 */
#ifndef HKT_INET_H
#define HKT_INET_H

#include <stdbool.h>
#include <stdint.h>

enum {
    HKT_INET_LIST = 32, /* addresses that are looked at on one host */
    HKT_INET_TEXT = 80  /* "[fe80::1%interface]:65535" */
};

enum hkt_inet_kind { HKT_INET_ROUTED = 1, HKT_INET_LINK, HKT_INET_LOOPBACK };

/* The same bytes on every host. All zeros: none. */
struct hkt_inet_address {
    uint8_t  bytes[16]; /* network order; IPv4: the first four */
    uint8_t  family;    /* 4 or 6 */
    uint8_t  kind;
    uint16_t port;      /* 0 in a list of what the host has */
    uint32_t interface; /* its index on the host that has made this; for another host it means nothing */
};

/* The addresses of this host that others may try, likely ones first: of interfaces that are up and have a carrier; routed ones, then
 * link-local ones, loopback last. HKT_IFNAME and HKT_SUBNET leave out others. Gives their number (0: there is no network), or
 * HKT_ERR_ARGUMENT when these options cannot be read or leave nothing over, with what there is in the sentence. */
int hkt_inet_own(struct hkt_inet_address *list, int room);

/* A listening socket at *port on all addresses, IPv6 and IPv4; *port 0: a free one, of HKT_PORTS when that is set, which is put there.
 * `backlog` as of listen(). Gives the descriptor, or HKT_ERR_SYSTEM (no port is free), HKT_ERR_ARGUMENT (HKT_PORTS). */
int hkt_inet_listen(uint16_t *port, int backlog);

/* The next connection, ready for small messages. -EAGAIN: there is none; other -errno. `from` (may be NULL): who it is. */
int hkt_inet_accept(int listener, struct hkt_inet_address *from);

/* Begins a connection: writable when it is there or has failed, which hkt_inet_connected() says. Gives the descriptor or -errno. */
int hkt_inet_connect(const struct hkt_inet_address *to);
int hkt_inet_connected(int fd); /* 0 or -errno */

/* "10.0.0.1:4711", "[fe80::1%eth0]:4711"; without a port when that is 0. Gives `text`. */
const char *hkt_inet_text(const struct hkt_inet_address *a, char text[HKT_INET_TEXT]);

/* "host:port" or "[v6]:port", by name or number. Gives the number of addresses found, or HKT_ERR_ARGUMENT. */
int hkt_inet_resolve(struct hkt_inet_address *list, int room, const char *text);

/* What two processes have in common that can meet at abstract unix sockets: this machine since it was started, and the network
 * namespace. A hash; equal for them only. */
uint64_t hkt_inet_host(void);

/* The same, but for network namespaces: ranks of one machine share its processors, whatever hosts they are of. */
uint64_t hkt_inet_machine(void);

#endif
