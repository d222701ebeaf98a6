/* run_output.c -- see run_output.h. Sources (two pipes a rank) are cut into lines that go to one of two sinks (stdout,
 * stderr). */
#include "run_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PIECE      = 4096,    /* written at a time: what a pipe takes whole once poll() says writable */
    BACKLOG    = 1 << 18, /* waiting bytes of a sink from which on its sources are not read */
    LINE_LIMIT = 1 << 20
};

struct bytes {
    char  *data;
    size_t used, room;
};

struct sink {
    int          fd;
    struct bytes waiting;
    size_t       sent;   /* of waiting */
    bool         closed; /* nobody reads any more */
};

struct source {
    int          fd, child_fd; /* -1: closed */
    int          rank;
    struct sink *sink;
    struct bytes line; /* the unfinished one */
    size_t       seen; /* of line: holds no end */
};

struct run_output {
    int            ranks, digits;
    struct sink    sink[2];
    bool           same_file; /* both sinks are one terminal or file */
    struct sink   *midline;   /* then: the one that has written half a line, so that the other waits */
    struct source *source;    /* 2 * ranks: stdout and stderr of each */
};

static void append(struct bytes *bytes, const char *data, size_t size)
{
    if (bytes->used + size > bytes->room) {
        size_t room = bytes->room ? bytes->room : PIECE;

        while (room < bytes->used + size)
            room *= 2;
        bytes->data = realloc(bytes->data, room);
        if (!bytes->data) {
            perror("hkt-run: no memory for output");
            exit(1);
        }
        bytes->room = room;
    }
    memcpy(bytes->data + bytes->used, data, size);
    bytes->used += size;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

struct run_output *run_output_open(int ranks)
{
    struct run_output *out = calloc(1, sizeof(*out));
    struct stat        file[2];
    int                ends[2];

    if (!out || !(out->source = calloc(2 * (size_t)ranks, sizeof(*out->source))))
        return NULL;
    out->ranks   = ranks;
    out->digits  = snprintf(NULL, 0, "%d", ranks - 1);
    out->sink[0] = (struct sink){.fd = STDOUT_FILENO};
    out->sink[1] = (struct sink){.fd = STDERR_FILENO};
    if (fstat(STDOUT_FILENO, &file[0]) == 0 && fstat(STDERR_FILENO, &file[1]) == 0)
        out->same_file = file[0].st_dev == file[1].st_dev && file[0].st_ino == file[1].st_ino;
    for (int i = 0; i < 2 * ranks; i++) {
        if (pipe2(ends, O_CLOEXEC))
            return NULL;
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        out->source[i] = (struct source){.fd = ends[0], .child_fd = ends[1], .rank = i / 2, .sink = &out->sink[i % 2]};
    }
    return out;
}

void run_output_attach(const struct run_output *out, int rank)
{
    dup2(out->source[2 * rank].child_fd, STDOUT_FILENO);
    dup2(out->source[2 * rank + 1].child_fd, STDERR_FILENO);
}

void run_output_started(struct run_output *out, int rank)
{
    close_fd(&out->source[2 * rank].child_fd);
    close_fd(&out->source[2 * rank + 1].child_fd);
}

static void put_line(const struct run_output *out, struct source *from, const char *text, size_t size)
{
    char      tag[32];
    const int n = snprintf(tag, sizeof(tag), "[%*d] ", out->digits, from->rank);

    append(&from->sink->waiting, tag, (size_t)n);
    append(&from->sink->waiting, text, size);
}

static void end_line(const struct run_output *out, struct source *from)
{
    if (from->line.used) {
        append(&from->line, "\n", 1);
        put_line(out, from, from->line.data, from->line.used);
        from->line.used = from->seen = 0;
    }
}

/* Puts out the finished lines. One ends behind '\n', and behind a '\r' that something else than '\n' follows. */
static void cut_lines(const struct run_output *out, struct source *from)
{
    struct bytes *line  = &from->line;
    size_t        start = 0, i = from->seen;

    for (; i < line->used; i++) {
        const char c = line->data[i];

        if (c == '\r' && i + 1 == line->used)
            break;
        if (c == '\n' || (c == '\r' && line->data[i + 1] != '\n')) {
            put_line(out, from, line->data + start, i + 1 - start);
            start = i + 1;
        }
    }
    memmove(line->data, line->data + start, line->used - start);
    line->used -= start;
    from->seen = i - start;
    if (line->used >= LINE_LIMIT)
        end_line(out, from);
}

/* One read. False when there is nothing more for now. */
static bool take(const struct run_output *out, struct source *from)
{
    char          piece[1 << 16];
    const ssize_t n = from->fd >= 0 ? read(from->fd, piece, sizeof(piece)) : -1;

    if (n > 0) {
        append(&from->line, piece, (size_t)n);
        cut_lines(out, from);
        return true;
    }
    if (n == 0) {
        end_line(out, from);
        close_fd(&from->fd);
    }
    return false;
}

/* A sink that nobody reads: its sources close, so that the ranks get SIGPIPE as they would without the launcher. */
static void sink_close(struct run_output *out, struct sink *sink)
{
    sink->closed       = true;
    out->midline       = NULL;
    sink->waiting.used = sink->sent = 0;
    for (int i = 0; i < 2 * out->ranks; i++)
        if (out->source[i].sink == sink)
            close_fd(&out->source[i].fd);
}

static size_t backlog(const struct sink *sink)
{
    return sink->waiting.used - sink->sent;
}

/* How much to write next: whole lines if they fit, so that the other sink may write in between. */
static size_t next_piece(const struct sink *sink)
{
    const char *data = sink->waiting.data + sink->sent;
    size_t      size = backlog(sink) < PIECE ? backlog(sink) : PIECE;
    const char *end  = memrchr(data, '\n', size);

    return end ? (size_t)(end + 1 - data) : size;
}

static void sink_write(struct run_output *out, struct sink *sink)
{
    const ssize_t n = write(sink->fd, sink->waiting.data + sink->sent, next_piece(sink));

    if (n < 0) {
        if (errno != EINTR && errno != EAGAIN)
            sink_close(out, sink);
        return;
    }
    sink->sent += (size_t)n;
    if (n > 0 && out->same_file)
        out->midline = backlog(sink) == 0 || sink->waiting.data[sink->sent - 1] == '\n' ? NULL : sink;
    if (sink->sent == sink->waiting.used)
        sink->sent = sink->waiting.used = 0;
    if (sink->sent > BACKLOG) {
        memmove(sink->waiting.data, sink->waiting.data + sink->sent, backlog(sink));
        sink->waiting.used -= sink->sent;
        sink->sent = 0;
    }
}

static bool may_write(const struct run_output *out, const struct sink *sink)
{
    return backlog(sink) && (!out->midline || out->midline == sink);
}

size_t run_output_polls(const struct run_output *out)
{
    return 2 + 2 * (size_t)out->ranks;
}

size_t run_output_poll(struct run_output *out, struct pollfd *fds)
{
    size_t n = 0;

    for (int i = 0; i < 2; i++)
        if (may_write(out, &out->sink[i]))
            fds[n++] = (struct pollfd){.fd = out->sink[i].fd, .events = POLLOUT};
    for (int i = 0; i < 2 * out->ranks; i++)
        if (out->source[i].fd >= 0 && backlog(out->source[i].sink) < BACKLOG)
            fds[n++] = (struct pollfd){.fd = out->source[i].fd, .events = POLLIN};
    return n;
}

void run_output_serve(struct run_output *out, const struct pollfd *fds, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        if (!fds[k].revents)
            continue;
        for (int i = 0; i < 2; i++)
            if (fds[k].fd == out->sink[i].fd && may_write(out, &out->sink[i]))
                sink_write(out, &out->sink[i]);
        for (int i = 0; i < 2 * out->ranks; i++)
            if (fds[k].fd == out->source[i].fd)
                take(out, &out->source[i]);
    }
}

void run_output_drain(struct run_output *out, int rank)
{
    for (int i = 2 * rank; i < 2 * rank + 2; i++) {
        while (take(out, &out->source[i]))
            ;
        end_line(out, &out->source[i]);
    }
}

void run_output_say(struct run_output *out, const char *line)
{
    append(&out->sink[1].waiting, line, strlen(line));
}

void run_output_close(struct run_output *out)
{
    struct pollfd fds[2];

    for (int i = 0; i < 2 * out->ranks; i++) {
        close_fd(&out->source[i].fd);
        close_fd(&out->source[i].child_fd);
        free(out->source[i].line.data);
    }
    while (backlog(&out->sink[0]) || backlog(&out->sink[1])) {
        const size_t n = run_output_poll(out, fds);

        if (poll(fds, n, -1) > 0)
            run_output_serve(out, fds, n);
    }
    free(out->sink[0].waiting.data);
    free(out->sink[1].waiting.data);
    free(out->source);
    free(out);
}
