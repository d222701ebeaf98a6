/* bootstrap_root.c -- an id from an address that every rank knows. See bootstrap.h. Ranks of one host meet by it as by any other id; that
 * rank 0 listens at the address as well is left to whoever brings ranks of several hosts together.
 */
#include "base/error.h"
#include "meet.h"

#include <stdlib.h>
#include <string.h>

/* Two hashes of 64 bits of the texts, one after the other: FNV-1a, stirred at the end. No seal against those who guess the texts. */
static void digest(unsigned char key[HKT_KEY], const char *label, const char *a, const char *b)
{
    const char *text[] = {label, a, b};

    for (int half = 0; half < 2; half++) {
        uint64_t hash = 0xcbf29ce484222325u + (uint64_t)half;

        for (int t = 0; t < 3; t++)
            for (const char *c = text[t];; c++) {
                hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
                if (!*c)
                    break;
            }
        hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9u;
        hash = (hash ^ hash >> 27) * 0x94d049bb133111ebu;
        hash ^= hash >> 31;
        memcpy(key + 8 * half, &hash, 8);
    }
}

int hkt_bootstrap_id_at(hkt_unique_id_t *id, const char *root, const char *secret)
{
    const char     *colon = strrchr(root, ':');
    char           *end   = NULL;
    const long      port  = colon ? strtol(colon + 1, &end, 10) : 0;
    hkt_unique_id_t fresh;
    struct hkt_id   inner;

    if (!colon || colon == root || port < 1 || port > 65535 || *end)
        return hkt_fail(HKT_ERR_ARGUMENT, "rank 0's address \"%.100s\" is not host:port, with a port from 1 to 65535", root);
    HKT_TRY(hkt_bootstrap_unique_id(&fresh)); /* brings the rest of an id */
    memcpy(&inner, &fresh, sizeof(inner));
    digest(inner.public_key, "public", root, secret);
    digest(inner.secret, "secret", root, secret);
    memset(&fresh, 0, sizeof(fresh));
    memcpy(&fresh, &inner, sizeof(inner));
    *id = fresh;
    return 0;
}
