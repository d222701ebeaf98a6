/* frame.c -- framed messages on stream sockets. See frame.h. */
#include "frame.h"

#include "socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static const uint64_t MAGIC  = 0x333030544b484f43ULL;
static const uint64_t SAY_NS = 1000000000u;

void hkt_link_expect(struct hkt_link *l, uint32_t kind, void *body, size_t room)
{
    l->expected = kind;
    l->body     = body;
    l->room     = room;
    l->got      = 0;
}

int hkt_link_pull(struct hkt_link *l)
{
    for (;;) {
        const bool   in_head = l->got < sizeof(l->head);
        char *const  to      = in_head ? (char *)&l->head + l->got : (char *)l->body + (l->got - sizeof(l->head));
        const size_t end     = in_head ? sizeof(l->head) : sizeof(l->head) + l->room;
        ssize_t      n;

        if (l->got < end) {
            n = hkt_socket_receive(l->fd, to, end - l->got, NULL);
            if (n <= 0)
                return n == -EAGAIN ? 0 : n ? (int)n : -ECONNRESET;
            l->got += (size_t)n;
        }
        if (l->got < end)
            continue;
        if (!in_head)
            return 1;
        if (l->head.magic != MAGIC)
            return -EPROTO;
        if (l->head.kind != l->expected || l->head.size == 0)
            return 1;
        if (l->head.size != l->room)
            return -EPROTO;
    }
}

int hkt_link_pull_all(struct hkt_link *l, uint64_t deadline)
{
    int rc;

    while (!(rc = hkt_link_pull(l))) {
        rc = hkt_socket_wait(l->fd, POLLIN, deadline);
        if (rc)
            return rc;
    }
    return rc < 0 ? rc : 0;
}

struct hkt_frame hkt_frame_make(enum hkt_frame_kind kind, size_t size)
{
    return (struct hkt_frame){.magic = MAGIC, .kind = kind, .size = size};
}

int hkt_link_push(struct hkt_link *l, const struct hkt_frame *head, const void *body)
{
    while (l->sent < sizeof(*head) + head->size) {
        const bool    in_head = l->sent < sizeof(*head);
        const size_t  at      = in_head ? l->sent : l->sent - sizeof(*head);
        const size_t  left    = (in_head ? sizeof(*head) : head->size) - at;
        const ssize_t n = hkt_socket_send(l->fd, (const char *)(in_head ? (const void *)head : body) + at, left, -1);

        if (n < 0)
            return n == -EAGAIN ? 0 : (int)n;
        l->sent += (size_t)n;
    }
    l->sent = 0;
    return 1;
}

int hkt_link_push_all(struct hkt_link *l, const struct hkt_frame *head, const void *body, uint64_t deadline)
{
    int rc;

    while (!(rc = hkt_link_push(l, head, body))) {
        rc = hkt_socket_wait(l->fd, POLLOUT, deadline);
        if (rc)
            return rc;
    }
    return rc < 0 ? rc : 0;
}

int hkt_link_say(struct hkt_link *l, enum hkt_frame_kind kind, const void *body, size_t size, int code)
{
    struct hkt_frame head = hkt_frame_make(kind, size);

    head.code = code;
    return hkt_link_push_all(l, &head, body, hkt_now_ns() + SAY_NS);
}

void hkt_link_close(struct hkt_link *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

size_t hkt_link_body(struct hkt_link *l, void *body, size_t room)
{
    const size_t size = l->head.size < room ? l->head.size : room;
    size_t       got  = 0;

    while (got < size) {
        const ssize_t n = hkt_socket_receive(l->fd, (char *)body + got, size - got, NULL);

        if (n <= 0 && (n != -EAGAIN || hkt_socket_wait(l->fd, POLLIN, hkt_now_ns() + SAY_NS)))
            break;
        got += n > 0 ? (size_t)n : 0;
    }
    return got;
}

void hkt_link_sentence(struct hkt_link *l, char *text, size_t room)
{
    text[hkt_link_body(l, text, room - 1)] = 0;
}
