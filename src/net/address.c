/* address.c -- how networks reach a process, as bytes: of each carrier its name and what it says of itself. What they mean is the carriers' affair.
 */
#include "net/address.h"

#include "base/error.h"
#include "base/option.h"
#include "net/progress.h"

#include <string.h>

bool hkt_net_wanted(const struct hkt_transport *t)
{
    const char *pinned = *hkt_options()->fault ? "fault" : hkt_options()->network;

    return t->carrier && (!*pinned || strcmp(t->name, pinned) == 0);
}

/* What the carriers say of this process: length and name, length and record of each. */
int hkt_net_address(struct hkt_net_address *a)
{
    size_t used = 0;
    int    rc   = HKT_ERR_UNSUPPORTED;

    hkt_net_lock();
    for (int i = 0; hkt_transports[i]; i++) {
        const struct hkt_transport *t = hkt_transports[i];
        const size_t                n = strlen(t->name), room = sizeof(a->data) - used;
        int                         got;

        if (!hkt_net_wanted(t) || room < n + 2)
            continue;
        got = hkt_net_use(t->carrier);
        if (!got)
            got = t->carrier->address(a->data + used + n + 2, room - n - 2);
        if (got <= 0) {
            rc = got ? got : rc;
            continue;
        }
        a->data[used] = (unsigned char)n;
        memcpy(a->data + used + 1, t->name, n);
        a->data[used + 1 + n] = (unsigned char)got;
        used += n + 2 + (size_t)got;
    }
    hkt_net_unlock();
    a->bytes = (unsigned char)used;
    return used ? 0 : rc;
}

/* The record of a carrier in an address; every length in it is checked. */
const unsigned char *hkt_net_record(const struct hkt_net_address *a, const char *name, size_t *size)
{
    const size_t total = a->bytes; /* at most sizeof(a->data), whatever it says */

    for (size_t at = 0; at < total;) {
        const size_t n    = a->data[at];
        const size_t body = at + 1 + n < total ? at + 2 + n : total;

        if (body >= total || body + a->data[body - 1] > total)
            return NULL;
        *size = a->data[body - 1];
        if (n == strlen(name) && memcmp(a->data + at + 1, name, n) == 0)
            return a->data + body;
        at = body + *size;
    }
    return NULL;
}

size_t hkt_net_preferred(const struct hkt_net_address *a, const char **name)
{
    const size_t n = a->bytes ? a->data[0] : 0;

    *name = (const char *)a->data + 1;
    return n < a->bytes ? n : 0; /* whatever it says */
}
