/* tcp_host.c -- what TCP knows of hosts: the record that says where one is, and how many sockets its links are worth. See tcp.h. */
#include "transports/tcp.h"

#include "base/error.h"
#include "base/option.h"
#include "setup/machine.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MACHINE = sizeof(uint64_t) };

/* Port, machine, then per address its kind and family and 4 or 16 bytes. */
size_t tcp_write_record(unsigned char *record, size_t room, const struct tcp_address *a)
{
    const uint64_t machine = hkt_inet_host();
    size_t         used    = sizeof(a->port) + MACHINE;

    if (room < used)
        return 0;
    memcpy(record, &a->port, sizeof(a->port));
    memcpy(record + sizeof(a->port), &machine, MACHINE);
    for (int i = 0; i < a->n; i++) {
        const size_t size = a->list[i].family == 4 ? 4 : 16;

        if (used + 1 + size > room)
            break;
        record[used] = (unsigned char)(a->list[i].kind << 4 | (a->list[i].family == 6));
        memcpy(record + used + 1, a->list[i].bytes, size);
        used += 1 + size;
    }
    return used;
}

static void add_candidate(struct hkt_channel *c, struct hkt_inet_address a)
{
    struct hkt_inet_address own[HKT_INET_LIST];
    int                     n;

    if (a.kind != HKT_INET_LINK) {
        if (c->candidates < TCP_CANDIDATES)
            c->candidate[c->candidates++] = a;
        return;
    }
    n = hkt_inet_own(own, HKT_INET_LIST); /* the same link, by whichever interface leads to it */
    for (int i = 0; i < n && c->candidates < TCP_CANDIDATES; i++) {
        a.interface = own[i].interface;
        if (own[i].kind == HKT_INET_LINK)
            c->candidate[c->candidates++] = a;
    }
}

int tcp_read_record(struct hkt_channel *c, const unsigned char *record, size_t size)
{
    const uint64_t own = hkt_inet_host();
    uint64_t       machine;
    uint16_t       to;
    size_t         at = sizeof(to) + MACHINE;

    if (size < at)
        return hkt_fail(HKT_ERR_SYSTEM, "the TCP address of another process is damaged: %zu bytes", size);
    memcpy(&to, record, sizeof(to));
    memcpy(&machine, record + sizeof(to), MACHINE);
    while (at < size) {
        struct hkt_inet_address a      = {.family = record[at] & 1 ? 6 : 4, .kind = record[at] >> 4, .port = to};
        const size_t            length = a.family == 4 ? 4 : 16;

        if (at + 1 + length > size)
            break;
        memcpy(a.bytes, record + at + 1, length);
        if (a.kind != HKT_INET_LOOPBACK || machine == own)
            add_candidate(c, a);
        at += 1 + length;
    }
    return 0;
}

/* How many sockets carry large messages: one per 25 Gbit/s of the fastest link, as far as there are cores. */
int tcp_bulk_sockets(void)
{
    static int      n;
    struct hkt_cpus cpus;
    int             cores = 0, speed = 0;
    char            path[300], text[32];
    DIR            *d;

    if (n)
        return n;
    if (hkt_options()->sockets)
        return n = (int)hkt_options()->sockets;
    hkt_machine_cpus(&cpus);
    for (int i = 0; i < HKT_CPU_WORDS; i++)
        cores += __builtin_popcountl(cpus.bits[i]);
    snprintf(path, sizeof(path), "%s/sys/class/net", hkt_machine_root);
    d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        FILE *f;

        snprintf(path, sizeof(path), "%s/sys/class/net/%.200s/speed", hkt_machine_root, e->d_name);
        f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (f && fgets(text, sizeof(text), f) && atoi(text) > speed) /* Mbit/s; -1: it does not say */
            speed = atoi(text);
        if (f)
            fclose(f);
    }
    if (d)
        closedir(d);
    n = (speed + 24999) / 25000;
    n = n > cores ? cores : n;
    n = n > TCP_BULK ? TCP_BULK : n;
    return n = n < 1 ? 1 : n;
}
