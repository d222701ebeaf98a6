/* queue.c -- FAKECUDA_QUEUES: streams that share a hardware queue. Operations of a queue begin in the order in which they were submitted,
 * whatever their streams; a wait begins when what it waits for is there, so it holds up the streams behind it. Hardware does so when a
 * process has more streams than queues (CUDA_DEVICE_MAX_CONNECTIONS).
 */
#include "fake.h"

enum { QUEUES = 64 };

static pthread_mutex_t lock  = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  moved = PTHREAD_COND_INITIALIZER;

static struct {
    unsigned long given, begun;
} queue[FAKE_DEVICES][QUEUES];

unsigned long fake_queue_ticket(CUstream stream)
{
    unsigned long ticket;

    if (stream->queue < 0)
        return 0;
    pthread_mutex_lock(&lock);
    ticket = ++queue[stream->device][stream->queue % QUEUES].given;
    pthread_mutex_unlock(&lock);
    return ticket;
}

void fake_queue_enter(CUstream stream, unsigned long ticket)
{
    if (!ticket)
        return;
    pthread_mutex_lock(&lock);
    while (queue[stream->device][stream->queue % QUEUES].begun + 1 < ticket)
        pthread_cond_wait(&moved, &lock);
    pthread_mutex_unlock(&lock);
}

void fake_queue_leave(CUstream stream, unsigned long ticket)
{
    if (!ticket)
        return;
    pthread_mutex_lock(&lock);
    queue[stream->device][stream->queue % QUEUES].begun = ticket;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
}
