/* socket.h -- sockets between processes of one machine: abstract unix sockets, which have a name but no file. Every call retries
 * EINTR, raises no SIGPIPE, and gives -errno on failure. Both ends know that the other one is the same user (or root).
 */
#ifndef HKT_SOCKET_H
#define HKT_SOCKET_H

#include "base/clock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

/* A listening socket, non-blocking, of type SOCK_STREAM or SOCK_SEQPACKET. -EADDRINUSE: somebody has the name. */
int hkt_socket_listen(int type, const char *name);

/* A non-blocking connection. -ECONNREFUSED: nobody is there; -EAGAIN: too many wait there; -EACCES: it is another user's. `pid` (may
 * be NULL): whose it is, as seen from here; 0 when it is in another pid namespace. */
int hkt_socket_connect(int type, const char *name, pid_t *pid);

/* The next connection, non-blocking. -EAGAIN: there is none; -EACCES: it was another user's, and is closed. */
int hkt_socket_accept(int listener);

/* One sendmsg or recvmsg. `pass`: a descriptor to go along, or -1. `passed` (may be NULL): the descriptor that came, or -1. */
ssize_t hkt_socket_send(int fd, const void *data, size_t size, int pass);
ssize_t hkt_socket_receive(int fd, void *data, size_t size, int *passed);

/* Waits for poll events. 0 or -ETIMEDOUT; hkt_now_ns() time. */
int hkt_socket_wait(int fd, short events, uint64_t deadline);

/* A thread whose work may be called off points this at the word that says so: every deadline has passed then. */
extern _Thread_local const _Atomic uint32_t *hkt_socket_stop;

bool hkt_socket_stopped(void);             /* the work is called off */
bool hkt_socket_late(uint64_t deadline); /* it is, or the deadline has passed */

/* Milliseconds to the deadline as poll() wants them: rounded up, at most a minute; less where the work may be called off. */
int hkt_socket_patience(uint64_t deadline);

/* Random bytes. 0 or HKT_ERR_SYSTEM. */
int hkt_random(void *bytes, size_t size);

/* The text of an errno, in static storage; EMFILE and ENFILE name the limit that was met. */
const char *hkt_errno_text(int error);

#endif
