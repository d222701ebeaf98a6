/* share.c -- FAKECUDA_SHARE: processes that take turns on a GPU. All kernels of one process hold the device together.
 *
 * Who holds it has bound a socket to an abstract name made from user, session and device: only one process can, nothing is left behind,
 * and the system lets go when the holder dies.
 */
#include "fake.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    int             socket, kernels;
    double          since;
} held[FAKE_DEVICES];

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void prepare(void)
{
    for (int i = 0; i < FAKE_DEVICES; i++)
        pthread_mutex_init(&held[i].lock, NULL);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void take(int device)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int          length = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "fakecuda-%u-%s-%d", (unsigned)getuid(), fake.session, device);
    const socklen_t    size   = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);

    held[device].socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (held[device].socket < 0) {
        perror("fakecuda: socket");
        abort();
    }
    while (bind(held[device].socket, (struct sockaddr *)&name, size))
        usleep(100);
    held[device].since = now();
}

void fake_share_begin(int device)
{
    if (fake.share == FAKE_CONCURRENT)
        return;
    pthread_once(&once, prepare);
    pthread_mutex_lock(&held[device].lock);
    if (!held[device].kernels++)
        take(device);
    pthread_mutex_unlock(&held[device].lock);
}

void fake_share_end(int device)
{
    if (fake.share == FAKE_CONCURRENT)
        return;
    pthread_mutex_lock(&held[device].lock);
    if (!--held[device].kernels)
        close(held[device].socket);
    pthread_mutex_unlock(&held[device].lock);
}

void fake_share_idle(void *argument)
{
    const int device = (int)(intptr_t)argument;

    if (fake.share != FAKE_SLICES)
        return;
    pthread_mutex_lock(&held[device].lock);
    if (held[device].kernels && now() - held[device].since > (double)fake.slice_us * 1e-6) {
        close(held[device].socket);
        usleep(300); /* longer than another process sleeps between two attempts */
        take(device);
    }
    pthread_mutex_unlock(&held[device].lock);
}
