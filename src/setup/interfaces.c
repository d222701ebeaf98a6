/* interfaces.c -- the addresses of this host that others may try, likely ones first. See inet.h.
 *
 * None is chosen here: whoever connects tries all of them at once and takes one that answers. The order only says which is tried first, and
 * which are left out where there is room for a few. It comes from what the kernel knows, not from names: the address that it would speak
 * from to the rest of the world, then interfaces of real devices, then others; in doubt the kernel's order. Where a host has several devices, those near
 * this process and fast ones come before others (here.h), even before the way to the rest of the world: each rank's rail is its first address.
 */
#include "inet.h"

#include "base/error.h"
#include "base/log.h"
#include "base/option.h"
#include "here.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fnmatch.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct candidate {
    struct hkt_inet_address at;
    int                     place; /* less is better */
};

/* ---- HKT_IFNAME and HKT_SUBNET ----------------------------------------------------------------------------------- */

/* Calls is(word, data) for the words of a list with commas, until one gives something else than 0. */
static int any_word(const char *list, int (*is)(const char *word, const void *data), const void *data)
{
    int rc = 0;

    while (*list && !rc) {
        const size_t n        = strcspn(list, ",");
        char         word[64] = "";

        if (n < sizeof(word))
            memcpy(word, list, n);
        rc = is(word, data);
        list += n + (list[n] == ',');
    }
    return rc;
}

static int is_name(const char *word, const void *name)
{
    return fnmatch(word, name, 0) == 0;
}

static bool name_allowed(const char *name)
{
    const char *const list = hkt_options()->ifname;

    if (!list[0])
        return true;
    return list[0] == '^' ? !any_word(list + 1, is_name, name) : any_word(list, is_name, name);
}

/* Is the address in the subnet "address/bits"? -1: that is no subnet. */
static int is_in(const char *word, const void *address)
{
    const struct hkt_inet_address *a     = address;
    const char *const              slash = strchr(word, '/');
    const int                      four  = !strchr(word, ':');
    char                           text[64], *end = NULL;
    unsigned char                  net[16], differ = 0;
    unsigned long                  bits;

    snprintf(text, sizeof(text), "%.*s", slash ? (int)(slash - word) : 63, word);
    bits = slash ? strtoul(slash + 1, &end, 10) : four ? 32 : 128;
    if (inet_pton(four ? AF_INET : AF_INET6, text, net) != 1 || bits > (four ? 32 : 128) || (slash && (*end || end == slash + 1)))
        return -1;
    if (a->family != (four ? 4 : 6))
        return 0;
    for (unsigned long i = 0; i < bits; i += 8)
        differ |= (unsigned char)((net[i / 8] ^ a->bytes[i / 8]) & (bits - i >= 8 ? 0xff : 0xff00 >> (bits - i)));
    return !differ;
}

/* 1: yes; 0: no; or HKT_ERR_ARGUMENT. */
static int subnet_allowed(const struct hkt_inet_address *a)
{
    const char *const list = hkt_options()->subnet;
    const int         rc   = list[0] ? any_word(list, is_in, a) : 1;

    if (rc < 0)
        return hkt_fail(HKT_ERR_ARGUMENT, "HKT_SUBNET=%s: a subnet is address/bits, such as 10.0.0.0/8 or fd00::/8, a list has commas", list);
    return rc;
}

/* ---- the order --------------------------------------------------------------------------------------------------- */

/* The address that this host speaks from to the rest of the world, were there something: no packet is sent. */
static struct hkt_inet_address outwards(int family)
{
    struct sockaddr_in6     name = {.sin6_family = AF_INET6, .sin6_port = htons(9), .sin6_addr.s6_addr = {0x20, 0x01, 0x0d, 0xb8, [15] = 1}};
    struct sockaddr_in      four = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0xc0000201u)}; /* 192.0.2.1 */
    struct sockaddr *const  to   = family == 6 ? (void *)&name : (void *)&four;
    socklen_t               size = family == 6 ? sizeof(name) : sizeof(four);
    struct hkt_inet_address a    = {.family = 0};
    const int               fd   = socket(family == 6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return a;
    if (!connect(fd, to, size) && !getsockname(fd, to, &size)) {
        a.family = (uint8_t)family;
        if (family == 6)
            memcpy(a.bytes, &name.sin6_addr, 16);
        else
            memcpy(a.bytes, &four.sin_addr, 4);
    }
    close(fd);
    return a;
}

static bool has_device(const char *interface)
{
    char path[64];

    snprintf(path, sizeof(path), "/sys/class/net/%.*s/device", IF_NAMESIZE, interface);
    return access(path, F_OK) == 0;
}

/* One subnet with nobody else in it, as on tunnels and some clouds. */
static bool alone(const struct ifaddrs *i)
{
    return (i->ifa_flags & IFF_POINTOPOINT) ||
           (i->ifa_netmask && i->ifa_netmask->sa_family == AF_INET &&
            ((const struct sockaddr_in *)(const void *)i->ifa_netmask)->sin_addr.s_addr == 0xffffffffu);
}

static bool same_bytes(const struct hkt_inet_address *a, const struct hkt_inet_address *b)
{
    return a->family == b->family && memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

/* `rails`: there are several devices to choose from. */
static int place_of(const struct ifaddrs *i, const struct hkt_inet_address *a, const struct hkt_inet_address outward[2], bool rails)
{
    const int place = a->kind == HKT_INET_LOOPBACK ? 400 : a->kind == HKT_INET_LINK ? 160 : 0;
    const int rail  = rails && a->kind != HKT_INET_LOOPBACK ? 6 * hkt_here_interface(i->ifa_name) : 0;

    if (same_bytes(a, &outward[0]) || same_bytes(a, &outward[1]))
        return place + rail;
    return place + rail + (has_device(i->ifa_name) ? rails ? 1 : 40 : 80) + (alone(i) ? 60 : 0);
}

static bool has_rails(const struct ifaddrs *all)
{
    const char *first = NULL;

    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!has_device(i->ifa_name) || !(i->ifa_flags & IFF_RUNNING))
            continue;
        if (first && strcmp(first, i->ifa_name) != 0)
            return true;
        first = i->ifa_name;
    }
    return false;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* False when it is no address of the internet. */
static bool read_address(struct hkt_inet_address *a, const struct ifaddrs *i)
{
    const int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;

    *a = (struct hkt_inet_address){.family = family == AF_INET ? 4 : 6, .kind = HKT_INET_ROUTED, .interface = if_nametoindex(i->ifa_name)};
    if (family == AF_INET)
        memcpy(a->bytes, &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr, 4);
    else if (family == AF_INET6)
        memcpy(a->bytes, &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr, 16);
    else
        return false;
    if (i->ifa_flags & IFF_LOOPBACK)
        a->kind = HKT_INET_LOOPBACK;
    else if (a->family == 6 && a->bytes[0] == 0xfe && (a->bytes[1] & 0xc0) == 0x80)
        a->kind = HKT_INET_LINK;
    return true;
}

/* Puts one into its place, behind those that are as good; the last falls out of a list that is full. */
static void insert(struct candidate *list, int *count, const struct candidate *new)
{
    int at = *count;

    while (at > 0 && list[at - 1].place > new->place)
        at--;
    if (at == HKT_INET_LIST)
        return;
    *count += *count < HKT_INET_LIST;
    memmove(list + at + 1, list + at, (size_t)(*count - at - 1) * sizeof(*list));
    list[at] = *new;
}

/* What the options leave over. `seen`: what there was before, for a sentence. */
static int collect(const struct ifaddrs *all, struct candidate *list, char *seen, size_t room)
{
    const struct hkt_inet_address outward[2] = {outwards(4), outwards(6)};
    const bool                    rails      = has_rails(all);
    size_t                        at         = 0;
    int                           count      = 0;

    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct candidate new;
        char             text[HKT_INET_TEXT];
        int              allowed;

        if (!read_address(&new.at, i))
            continue;
        if (!(i->ifa_flags & IFF_UP) || !(i->ifa_flags & IFF_RUNNING)) {
            hkt_log(HKT_LOG_DEBUG, "%s, %s: it is down or has no carrier", i->ifa_name, hkt_inet_text(&new.at, text));
            continue;
        }
        if (at + HKT_INET_TEXT + IF_NAMESIZE + 4 < room)
            at += (size_t)snprintf(seen + at, room - at, "%s%s %s", at ? ", " : "", i->ifa_name, hkt_inet_text(&new.at, text));
        HKT_TRY(allowed = subnet_allowed(&new.at));
        new.place = place_of(i, &new.at, outward, rails);
        if (allowed && name_allowed(i->ifa_name))
            insert(list, &count, &new);
    }
    return count;
}

int hkt_inet_own(struct hkt_inet_address *list, int room)
{
    struct candidate candidates[HKT_INET_LIST];
    struct ifaddrs  *all;
    char             seen[512] = "none";
    int              count;

    if (getifaddrs(&all))
        return hkt_fail(HKT_ERR_SYSTEM, "cannot list the network interfaces: %s", strerror(errno));
    count = collect(all, candidates, seen, sizeof(seen));
    freeifaddrs(all);
    HKT_TRY(count);
    if (!count && (hkt_options()->ifname[0] || hkt_options()->subnet[0]))
        return hkt_fail(HKT_ERR_ARGUMENT, "HKT_IFNAME=%s HKT_SUBNET=%s leave no address of this host over; there are: %s", hkt_options()->ifname,
                        hkt_options()->subnet, seen);
    count = count < room ? count : room;
    for (int i = 0; i < count; i++)
        list[i] = candidates[i].at;
    return count;
}
