/* fault.c -- the next network in the table, made worse on purpose: for tests. HKT_FAULT says how, as a list of
 *
 *     short=B   no piece has more than B bytes of a message behind its head
 *     delay=N   a piece leaves only at every N-th opportunity
 *     drop=N    the N-th piece does not leave: the connection is cut instead
 *     kill=N    at the N-th piece the process kills itself
 *
 * Where the option is empty this is no way to anybody, and costs nothing.
 */
#include "net/transport.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/option.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct hkt_channel { /* of this carrier; that of the one beneath is another */
    struct hkt_channel            *inner;
    const struct hkt_channel_user *user;
    void                          *arg;
    struct hkt_channel            *next;
    uint64_t                       asked; /* opportunities to send */
    bool                           withheld, cut;
};

static const struct hkt_carrier *beneath;
static struct hkt_channel       *channels;
static struct {
    uint64_t most, delay, drop, kill;
} fault;
static uint64_t total; /* pieces, of all channels */

static uint64_t value_of(const char *name)
{
    const char *at = strstr(hkt_options()->fault, name);

    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static bool wanted(void)
{
    const char *name = *hkt_options()->network ? hkt_options()->network : "tcp";

    if (!*hkt_options()->fault)
        return false;
    for (int i = 0; !beneath && hkt_transports[i]; i++)
        if (hkt_transports[i]->carrier && strcmp(hkt_transports[i]->name, name) == 0)
            beneath = hkt_transports[i]->carrier;
    fault.most  = value_of("short=");
    fault.delay = value_of("delay=");
    fault.drop  = value_of("drop=");
    fault.kill  = value_of("kill=");
    return beneath != NULL;
}

/* ---- in between, upwards ----------------------------------------------------------------------------------------- */

static bool next(void *arg, int sizes, uint32_t most, struct hkt_piece *piece)
{
    struct hkt_channel *c = arg;

    if (c->cut || (fault.delay && c->asked++ % fault.delay)) {
        c->withheld = true; /* until the next pump of poll_all() */
        return false;
    }
    if (!c->user->next(c->arg, sizes, fault.most && fault.most < most ? (uint32_t)fault.most : most, piece))
        return false;
    total++;
    if (total == fault.kill)
        raise(SIGKILL);
    c->cut = total == fault.drop;
    return !c->cut;
}

static void gone(void *arg, const struct hkt_piece *piece)
{
    const struct hkt_channel *c = arg;

    c->user->gone(c->arg, piece);
}

static int place(void *arg, const struct hkt_head *head, char **to)
{
    const struct hkt_channel *c = arg;

    return c->user->place(c->arg, head, to);
}

static int landed(void *arg, const struct hkt_head *head)
{
    const struct hkt_channel *c = arg;

    return c->user->landed(c->arg, head);
}

static void lost(void *arg, const char *why)
{
    const struct hkt_channel *c = arg;

    c->user->lost(c->arg, why);
}

static void closed(void *arg)
{
    const struct hkt_channel *c = arg;

    c->user->closed(c->arg);
}

static void known(void *arg, uint32_t pair, uint32_t asked[2])
{
    const struct hkt_channel *c = arg;

    c->user->known(c->arg, pair, asked);
}

static const struct hkt_channel_user between = {next, gone, place, landed, lost, closed, known};

/* ---- in between, downwards --------------------------------------------------------------------------------------- */

static int address(unsigned char *record, size_t room)
{
    return wanted() ? beneath->address(record, room) : 0;
}

static int open_channel(struct hkt_channel **made, const struct hkt_channel_config *config)
{
    struct hkt_channel_config inner = *config;
    struct hkt_channel       *c;
    int                       rc;

    if (!wanted())
        return hkt_fail(HKT_ERR_UNSUPPORTED, "HKT_FAULT is not set here, but in the process at the other end");
    c = hkt_alloc(sizeof(*c));
    if (!c)
        return HKT_ERR_MEMORY;
    c->user    = config->user;
    c->arg     = config->arg;
    inner.user = &between;
    inner.arg  = c;
    rc         = beneath->open(&c->inner, &inner);
    if (rc) {
        hkt_free(c);
        return rc;
    }
    c->next  = channels;
    channels = c;
    *made    = c;
    return 0;
}

static void connect_channel(struct hkt_channel *c)
{
    if (c->inner)
        beneath->connect(c->inner);
}

static void expect(struct hkt_channel *c, const struct hkt_head *head, char *to)
{
    if (c->inner && beneath->expect)
        beneath->expect(c->inner, head, to);
}

static void pump(struct hkt_channel *c)
{
    if (c->inner)
        beneath->pump(c->inner);
}

static bool quiet(const struct hkt_channel *c)
{
    return !c->inner || (!c->withheld && beneath->quiet(c->inner));
}

static void forget(struct hkt_channel *c, const void *owner, uint32_t pair)
{
    if (c->inner)
        beneath->forget(c->inner, owner, pair);
}

static void close_channel(struct hkt_channel *c)
{
    struct hkt_channel **at = &channels;

    if (!c)
        return;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    beneath->close(c->inner);
    hkt_free(c);
}

static bool poll_all(void)
{
    for (struct hkt_channel *c = channels; c; c = c->next) {
        if (c->cut && c->inner) {
            beneath->close(c->inner);
            c->inner = NULL;
            c->user->lost(c->arg, "the connection was cut (HKT_FAULT)");
        } else if (c->withheld && c->inner) {
            c->withheld = false;
            beneath->pump(c->inner);
        }
    }
    return beneath && beneath->poll();
}

static uint64_t tick(uint64_t now)
{
    uint64_t due = beneath ? beneath->tick(now) : UINT64_MAX;

    for (struct hkt_channel *c = channels; c; c = c->next)
        if (c->inner && (c->withheld || c->cut)) {
            poll_all();
            due = now + 1000000;
            break;
        }
    return due;
}

static void arm(void)
{
    if (beneath)
        beneath->arm();
}

static void forked(void)
{
    if (beneath)
        beneath->forked();
}

static uint64_t strangers(void)
{
    return beneath ? beneath->strangers() : 0;
}

static const struct hkt_carrier carrier = {
    .address   = address,
    .open      = open_channel,
    .connect   = connect_channel,
    .expect    = expect,
    .pump      = pump,
    .quiet     = quiet,
    .forget    = forget,
    .close     = close_channel,
    .poll      = poll_all,
    .tick      = tick,
    .arm       = arm,
    .forked    = forked,
    .strangers = strangers,
};

/* What the network costs is what the one beneath costs, which says so itself. */
static int reach(const struct hkt_process *peer, struct hkt_link *link)
{
    (void)peer, (void)link;
    return HKT_ERR_UNSUPPORTED;
}

const struct hkt_transport hkt_transport_fault = {
    .name    = "fault",
    .desc    = "the network, made worse for tests",
    .reach   = reach,
    .carrier = &carrier,
};
