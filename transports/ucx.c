/* ucx.c -- other hosts over UCX: whatever network the cluster has (InfiniBand, RoCE, Cray, ...) and UCX knows.
 *
 * How two processes find each other, prove who they are and hear of each other's death is tcp.c's, which this carrier opens underneath. Over that
 * connection each tells the other its worker's address and a secret token; from then on frames are active messages, with the token and the
 * head as header and the body straight from and to where it belongs (UCX takes its own way to move it: eager, zero copy, rendezvous). The choice of
 * devices and ways is UCX's (its own UCX_* variables).
 *
 * The library is loaded when it is needed, so that a build runs where there is none. It is offered where there is an RDMA device, or with
 * HKT_NETWORK=ucx: over plain Ethernet tcp.c is the better one.
 */
#include "net/carrier.h"
#include "net/transport.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/option.h"
#include "setup/socket.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <ucp/api/ucp.h>

enum {
    FRAME     = 7,       /* id of our active messages */
    SENDS     = 32,      /* under way of a channel, and receives */
    PART      = 1 << 20, /* bytes of a message that go at a time: all of it */
    ADDRESS   = 16384,   /* bytes of a worker's address at the most */
    PATIENCE  = 2000     /* ms that something under way is waited for at the end */
};

extern const struct hkt_transport hkt_transport_tcp;

struct token {
    uint64_t word[2];
};

/* Header of an active message. */
struct header {
    struct token    token; /* that its receiver has given out */
    struct hkt_head head;
};

struct move { /* one under way */
    struct hkt_channel *channel; /* NULL: free */
    struct header       header;
    struct hkt_piece    piece; /* of a send */
    void               *request;
};

struct hkt_channel {
    struct hkt_channel            *next, *tcp;
    const struct hkt_channel_user *user;
    void                          *arg;
    struct token                   mine, theirs;
    char                          *hello; /* what comes over tcp: their token and address */
    uint32_t                       hello_bytes;
    bool                           told, lost;
    bool                           by_ucx; /* tcp is looked at seldom */
    ucp_ep_h                       end; /* NULL: not yet */
    struct move                    send[SENDS], receive[SENDS];
    int                            sends, receives; /* under way */
};

/* ---- the library, when it is there -------------------------------------------------------------------------------- */

#define FUNCTIONS(X)                                                                                                                               \
    X(ucp_config_read) X(ucp_config_release) X(ucp_init_version) X(ucp_worker_create) X(ucp_worker_get_address) X(ucp_worker_release_address)       \
    X(ucp_worker_get_efd) X(ucp_worker_arm) X(ucp_worker_progress) X(ucp_worker_set_am_recv_handler) X(ucp_ep_create) X(ucp_ep_close_nbx)           \
    X(ucp_am_send_nbx) X(ucp_am_recv_data_nbx) X(ucp_request_free) X(ucp_request_cancel) X(ucp_request_check_status)

static struct {
#define POINTER(name) __typeof__(&(name)) name;
    FUNCTIONS(POINTER)
#undef POINTER
} ucx;

static ucp_context_h       context;
static ucp_worker_h        worker;
static struct hkt_watch    watch;
static struct hkt_channel *channels;
static char               *hello; /* my worker's address behind room for a token */
static uint32_t            hello_bytes;

static const struct hkt_carrier *tcp(void)
{
    return hkt_transport_tcp.carrier;
}

/* UCX catches the signals of crashes unless it is told not to; they are the program's. */
static int load(void)
{
    const bool  ours   = !getenv("UCX_ERROR_SIGNALS");
    void       *handle;
    bool        all = true;

    if (ours)
        setenv("UCX_ERROR_SIGNALS", "", 1);
    handle = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    if (ours)
        unsetenv("UCX_ERROR_SIGNALS");
    if (!handle)
        return hkt_fail(HKT_ERR_UNSUPPORTED, "cannot load UCX: %s; install libucx0 or choose another HKT_NETWORK", dlerror());
#define FIND(name)                                                                                                                                 \
    *(void **)(void *)&ucx.name = dlsym(handle, #name);                                                                                           \
    all &= ucx.name != NULL;
    FUNCTIONS(FIND)
#undef FIND
    return all ? 0 : hkt_fail(HKT_ERR_UNSUPPORTED, "the UCX that is installed is too old: %s", dlerror());
}

static ucs_status_t came(void *arg, const void *header, size_t header_bytes, void *data, size_t bytes, const ucp_am_recv_param_t *param);

static void ready(struct hkt_watch *w, uint32_t events)
{
    (void)w, (void)events;
    ucx.ucp_worker_progress(worker);
}

static int make_worker(void)
{
    const ucp_worker_params_t     worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    const ucp_params_t            params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    const ucp_am_handler_param_t  handler       = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                                   .id         = FRAME,
                                                   .cb         = came};
    ucp_config_t                 *config;
    ucp_address_t                *address;
    size_t                        bytes;
    int                           fd;

    if (ucx.ucp_config_read(NULL, NULL, &config) != UCS_OK)
        return -1;
    if (ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context) != UCS_OK)
        context = NULL;
    ucx.ucp_config_release(config);
    if (!context || ucx.ucp_worker_create(context, &worker_params, &worker) != UCS_OK ||
        ucx.ucp_worker_set_am_recv_handler(worker, &handler) != UCS_OK || ucx.ucp_worker_get_efd(worker, &fd) != UCS_OK ||
        ucx.ucp_worker_get_address(worker, &address, &bytes) != UCS_OK)
        return -1;
    watch.ready = ready;
    hello       = bytes <= ADDRESS ? hkt_alloc(sizeof(struct token) + bytes) : NULL;
    if (hello)
        memcpy(hello + sizeof(struct token), address, bytes);
    hello_bytes = (uint32_t)(sizeof(struct token) + bytes);
    ucx.ucp_worker_release_address(worker, address);
    return hello && !hkt_net_watch(&watch, fd, EPOLLIN) ? 0 : -1;
}

static bool has_rdma(void)
{
    DIR *d    = opendir("/sys/class/infiniband");
    int  many = 0;

    while (d && readdir(d))
        many++;
    if (d)
        closedir(d);
    return many > 2;
}

/* ---- ends ---------------------------------------------------------------------------------------------------------- */

static void shut(struct hkt_channel *c)
{
    const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    void                     *request;

    if (!c->end)
        return;
    request   = ucx.ucp_ep_close_nbx(c->end, &force); /* ends what is under way, by its callbacks */
    c->end    = NULL;
    c->by_ucx = false;
    while (UCS_PTR_IS_PTR(request) && ucx.ucp_request_check_status(request) == UCS_INPROGRESS)
        ucx.ucp_worker_progress(worker);
    if (UCS_PTR_IS_PTR(request))
        ucx.ucp_request_free(request);
}

static void lose(struct hkt_channel *c, const char *why)
{
    if (c->lost)
        return;
    c->lost = true;
    c->user->lost(c->arg, why);
}

/* ---- sending --------------------------------------------------------------------------------------------------------- */

static void finish_send(struct move *m, ucs_status_t status)
{
    struct hkt_channel *c = m->channel;

    m->channel = NULL;
    m->request = NULL;
    c->sends--;
    if (m->piece.owner)
        c->user->gone(c->arg, &m->piece);
    if (status != UCS_OK && status != UCS_ERR_CANCELED)
        lose(c, "UCX could not send");
}

static void sent(void *request, ucs_status_t status, void *arg)
{
    finish_send(arg, status);
    ucx.ucp_request_free(request);
}

static struct move *free_move(struct move *m)
{
    for (int i = 0; i < SENDS; i++)
        if (!m[i].channel)
            return &m[i];
    return NULL;
}

static void post(struct hkt_channel *c, struct move *m)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb           = {.send = sent},
                                       .user_data    = m};
    void                     *request;

    m->channel = c;
    m->header  = (struct header){c->theirs, m->piece.head};
    c->sends++;
    request = ucx.ucp_am_send_nbx(c->end, FRAME, &m->header, sizeof(m->header), m->piece.body, m->piece.head.length, &param);
    if (UCS_PTR_IS_PTR(request))
        m->request = request;
    else
        finish_send(m, request ? UCS_PTR_STATUS(request) : UCS_OK);
}

static void pump(struct hkt_channel *c)
{
    if (!c->end) {
        tcp()->pump(c->tcp);
        return;
    }
    while (c->sends < SENDS && !c->lost) {
        struct move *m = free_move(c->send);

        if (!c->user->next(c->arg, HKT_PIECE_SMALL | HKT_PIECE_LARGE, PART, &m->piece))
            return;
        post(c, m);
    }
}

/* ---- receiving -------------------------------------------------------------------------------------------------------- */

static struct hkt_channel *channel_of(const struct token *t)
{
    struct hkt_channel *c = channels;

    while (c && (c->mine.word[0] != t->word[0] || c->mine.word[1] != t->word[1] || c->lost))
        c = c->next;
    return c;
}

static void land(struct hkt_channel *c, const struct hkt_head *head)
{
    if (c->user->landed(c->arg, head))
        lose(c, "it sent what no rank may send");
}

static void finish_receive(struct move *m, ucs_status_t status)
{
    struct hkt_channel *c = m->channel;

    m->channel = NULL;
    m->request = NULL;
    c->receives--;
    if (status == UCS_OK)
        land(c, &m->header.head);
    else if (status != UCS_ERR_CANCELED)
        lose(c, "UCX could not receive");
}

static void received(void *request, ucs_status_t status, size_t bytes, void *arg)
{
    (void)bytes;
    finish_receive(arg, status);
    ucx.ucp_request_free(request);
}

/* A body that UCX fetches from the sender to where it belongs. */
static void fetch(struct move *m, void *data, char *to)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb           = {.recv_am = received},
                                       .user_data    = m};
    void                     *request;

    m->channel->receives++;
    request = ucx.ucp_am_recv_data_nbx(worker, data, to, m->header.head.length, &param);
    if (UCS_PTR_IS_PTR(request))
        m->request = request;
    else
        finish_receive(m, request ? UCS_PTR_STATUS(request) : UCS_OK);
}

/* A callback of UCX: a frame has come. */
static ucs_status_t came(void *arg, const void *header, size_t header_bytes, void *data, size_t bytes, const ucp_am_recv_param_t *param)
{
    const bool          apart = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
    struct hkt_channel *c;
    struct header       h;
    struct move        *m;
    char               *to = NULL;

    (void)arg;
    if (header_bytes != sizeof(h))
        return UCS_OK; /* a stranger's */
    memcpy(&h, header, sizeof(h));
    c = channel_of(&h.token);
    m = c && apart ? free_move(c->receive) : NULL;
    if (!c || h.head.length != bytes)
        return UCS_OK;
    if (c->user->place(c->arg, &h.head, &to) || (apart && !m)) {
        lose(c, "it sent what no rank may send");
        return UCS_OK;
    }
    if (apart && to) {
        *m = (struct move){.channel = c, .header = h};
        fetch(m, data, to);
        return UCS_INPROGRESS;
    }
    if (to)
        memcpy(to, data, bytes);
    land(c, &h.head);
    return UCS_OK;
}

/* ---- the meeting, over tcp ---------------------------------------------------------------------------------------------- */

static bool next_hello(void *arg, int sizes, uint32_t most, struct hkt_piece *piece)
{
    struct hkt_channel *c = arg;

    if (c->told || !(sizes & HKT_PIECE_SMALL) || most < hello_bytes)
        return false;
    *piece  = (struct hkt_piece){.head = {.kind = HKT_HEAD_CARRIER, .bytes = hello_bytes, .length = hello_bytes}, .body = c->hello};
    c->told = true;
    return true;
}

static void gone_hello(void *arg, const struct hkt_piece *piece)
{
    (void)arg, (void)piece;
}

static int place_hello(void *arg, const struct hkt_head *head, char **to)
{
    struct hkt_channel *c = arg;

    if (head->kind != HKT_HEAD_CARRIER || head->length <= sizeof(struct token) || head->length > sizeof(struct token) + ADDRESS || c->hello_bytes)
        return -1;
    c->hello_bytes = head->length;
    *to            = c->hello + sizeof(struct token) + ADDRESS;
    return 0;
}

/* UCX tells of an end that is gone what tcp tells as well, and better: whose it was. */
static void failed(void *arg, ucp_ep_h end, ucs_status_t status)
{
    (void)arg, (void)end;
    hkt_log(HKT_LOG_DEBUG, "ucx: an end failed with status %d", (int)status);
}

/* The other worker is known: from here on UCX. */
static int landed_hello(void *arg, const struct hkt_head *head)
{
    struct hkt_channel    *c    = arg;
    const char            *said = c->hello + sizeof(struct token) + ADDRESS;
    const ucp_ep_params_t  params = {.field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                                    UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                     .address     = (const ucp_address_t *)(const void *)(said + sizeof(struct token)),
                                     .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
                                     .err_handler = {.cb = failed}};

    (void)head;
    memcpy(&c->theirs, said, sizeof(c->theirs));
    if (ucx.ucp_ep_create(worker, &params, &c->end) != UCS_OK)
        return -1;
    c->by_ucx = true;
    pump(c);
    return 0;
}

static void lost_below(void *arg, const char *why)
{
    lose(arg, why);
}

static void closed_below(void *arg)
{
    struct hkt_channel *c = arg;

    shut(c);
    c->told        = false;
    c->hello_bytes = 0;
    c->user->closed(c->arg);
}

static const struct hkt_channel_user below = {
    .next = next_hello, .gone = gone_hello, .place = place_hello, .landed = landed_hello, .lost = lost_below, .closed = closed_below};

/* ---- the carrier --------------------------------------------------------------------------------------------------------- */

static int address(unsigned char *record, size_t room)
{
    static bool tried;

    if (strcmp(hkt_options()->network, "ucx") != 0 && !has_rdma())
        return 0;
    if (!tried) {
        tried = true;
        HKT_TRY(load());
        HKT_TRY(hkt_net_use(tcp()));
        if (make_worker())
            return hkt_fail(HKT_ERR_UNSUPPORTED, "UCX finds no way to other hosts here; ucx_info -d lists what it knows");
    }
    return hello ? tcp()->address(record, room) : 0;
}

static void close_channel(struct hkt_channel *c);

static int open_channel(struct hkt_channel **made, const struct hkt_channel_config *config)
{
    struct hkt_channel       *c = hkt_alloc(sizeof(*c));
    struct hkt_channel_config inner = *config;
    int                       rc;

    if (!c)
        return HKT_ERR_MEMORY;
    c->user      = config->user;
    c->arg       = config->arg;
    c->hello     = hkt_alloc(2 * (sizeof(struct token) + ADDRESS));
    inner.user   = &below;
    inner.arg    = c;
    inner.seldom = &c->by_ucx;
    rc           = !c->hello ? HKT_ERR_MEMORY : hkt_random(&c->mine, sizeof(c->mine));
    if (!rc) {
        memcpy(c->hello, hello, hello_bytes);
        memcpy(c->hello, &c->mine, sizeof(c->mine));
        c->next  = channels;
        channels = c; /* frames may come as soon as the other side has heard of us */
        rc       = tcp()->open(&c->tcp, &inner);
    }
    if (rc)
        close_channel(c);
    else
        *made = c;
    return rc;
}

static void connect_channel(struct hkt_channel *c)
{
    tcp()->connect(c->tcp);
}

static bool quiet(const struct hkt_channel *c)
{
    return c->end ? c->sends == 0 : tcp()->quiet(c->tcp);
}

/* Waits for moves from and to memory that goes away; what does not end is ended with the channel. */
static void settle(struct hkt_channel *c, const void *owner, uint32_t pair)
{
    const uint64_t deadline = hkt_now_ns() + PATIENCE * 1000000ull;

    for (bool busy = true; busy;) {
        busy = false;
        for (int i = 0; i < SENDS; i++)
            busy |= (c->send[i].channel && c->send[i].piece.owner == owner) ||
                    (c->receive[i].channel && c->receive[i].header.head.pair == pair);
        if (busy)
            ucx.ucp_worker_progress(worker);
        if (busy && hkt_now_ns() > deadline) {
            shut(c);
            lose(c, "what was under way did not end");
            return;
        }
    }
}

static void forget(struct hkt_channel *c, const void *owner, uint32_t pair)
{
    if (c->end)
        settle(c, owner, pair);
}

static void close_channel(struct hkt_channel *c)
{
    struct hkt_channel **at = &channels;

    if (!c)
        return;
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
    for (const uint64_t deadline = hkt_now_ns() + PATIENCE * 1000000ull; c->end && c->sends && !c->lost && hkt_now_ns() < deadline;)
        ucx.ucp_worker_progress(worker);
    c->lost = true;
    shut(c);
    if (c->tcp)
        tcp()->close(c->tcp);
    hkt_free(c->hello);
    hkt_free(c);
}

/* Once: to ask again whether there is more is a system call on the way of an answer; whoever waits polls again anyway. */
static bool poll_worker(void)
{
    if (worker && ucx.ucp_worker_progress(worker))
        hkt_net_moved();
    return false;
}

static uint64_t tick(uint64_t now)
{
    (void)now;
    return UINT64_MAX;
}

static void arm(void)
{
    while (worker && ucx.ucp_worker_arm(worker) == UCS_ERR_BUSY)
        ucx.ucp_worker_progress(worker);
}

static void forked(void)
{
}

static uint64_t strangers(void)
{
    return 0; /* tcp counts them */
}

static const struct hkt_carrier carrier = {
    .address   = address,
    .open      = open_channel,
    .connect   = connect_channel,
    .pump      = pump,
    .quiet     = quiet,
    .forget    = forget,
    .close     = close_channel,
    .poll      = poll_worker,
    .tick      = tick,
    .arm       = arm,
    .forked    = forked,
    .strangers = strangers,
};

static int reach(const struct hkt_process *peer, struct hkt_link *link)
{
    (void)peer, (void)link;
    return HKT_ERR_UNSUPPORTED; /* no memory of a process of this host */
}

const struct hkt_transport hkt_transport_ucx = {
    .name    = "ucx",
    .desc    = "other hosts by UCX: InfiniBand, RoCE and what else it knows",
    .reach   = reach,
    .carrier = &carrier,
};
