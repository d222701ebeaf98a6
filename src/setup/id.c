/* id.c -- unique ids. Making one opens a port at once, which is kept until rank 0, which is to be a rank of the same process, takes it over
 * (meet.c): others may come before it does. See id.h and bootstrap.h.
 */
#include "id.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "bootstrap.h"
#include "proof.h"
#include "socket.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint32_t ID_MAGIC = 0x32544b48u;

_Static_assert(sizeof(struct hkt_id) == HKT_UNIQUE_ID_BYTES, "an id fills the bytes there are");

/* ---- listeners that wait for their rank 0 ------------------------------------------------------------------------ */

struct waiting {
    struct waiting *next;
    unsigned char   public_key[HKT_KEY];
    int             fd;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct waiting *all_waiting;

static int keep(const struct hkt_id *id, int fd)
{
    struct waiting *w = hkt_alloc(sizeof(*w));

    if (!w)
        return HKT_ERR_MEMORY;
    memcpy(w->public_key, id->public_key, HKT_KEY);
    w->fd = fd;
    pthread_mutex_lock(&lock);
    w->next     = all_waiting;
    all_waiting = w;
    pthread_mutex_unlock(&lock);
    return 0;
}

int hkt_id_listener(const struct hkt_id *id)
{
    struct waiting *found = NULL;
    int             fd    = -1;

    pthread_mutex_lock(&lock);
    for (struct waiting **w = &all_waiting; *w && !found; w = found ? w : &(*w)->next)
        if (memcmp((*w)->public_key, id->public_key, HKT_KEY) == 0) {
            found = *w;
            *w    = found->next;
        }
    pthread_mutex_unlock(&lock);
    if (found)
        fd = found->fd;
    hkt_free(found);
    return fd;
}

void hkt_bootstrap_id_drop(const hkt_unique_id_t *id)
{
    struct hkt_id made;
    int           fd;

    memcpy(&made, id, sizeof(made));
    fd = hkt_id_listener(&made);
    if (fd >= 0)
        close(fd);
}

/* ---- the bytes --------------------------------------------------------------------------------------------------- */

int hkt_id_check(const struct hkt_id *id)
{
    return id->magic == ID_MAGIC ? 0 : hkt_fail(HKT_ERR_ARGUMENT, "this is no unique id: make one with hkt_unique_id()");
}

void hkt_id_socket(const struct hkt_id *id, char name[64])
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

    for (int i = 0; i < HKT_KEY; i++)
        hash = (hash ^ id->public_key[i]) * 0x100000001b3u;
    snprintf(name, 64, "hocket-id-%016" PRIx64, hash);
}

/* As many as there is room for. */
static void pack(struct hkt_id *id, const struct hkt_inet_address *list, int count)
{
    size_t at = 0;

    for (int i = 0; i < count; i++) {
        const size_t n = list[i].family == 4 ? 4 : 16;

        if (at + 1 + n > sizeof(id->packed) || (list[i].kind == HKT_INET_LOOPBACK && at)) /* loopback: when there is nothing else */
            continue;
        id->packed[at] = (unsigned char)(list[i].family << 4 | list[i].kind);
        memcpy(id->packed + at + 1, list[i].bytes, n);
        at += 1 + n;
    }
}

int hkt_id_addresses(const struct hkt_id *id, struct hkt_inet_address list[HKT_ID_ADDRESSES])
{
    size_t at    = 0;
    int    count = 0;

    while (id->port && count < HKT_ID_ADDRESSES && at < sizeof(id->packed) && id->packed[at]) {
        const int    family = id->packed[at] >> 4;
        const size_t n      = family == 4 ? 4 : 16;

        if (at + 1 + n > sizeof(id->packed))
            break;
        list[count] = (struct hkt_inet_address){.family = (uint8_t)(family == 4 ? 4 : 6), .kind = id->packed[at] & 15, .port = id->port};
        memcpy(list[count++].bytes, id->packed + at + 1, n);
        at += 1 + n;
    }
    return count;
}

/* ---- making and reading them --------------------------------------------------------------------------------------- */

static int fresh(struct hkt_id *id)
{
    *id = (struct hkt_id){.magic = ID_MAGIC};
    return hkt_random(id, offsetof(struct hkt_id, magic));
}

int hkt_bootstrap_local_id(hkt_unique_id_t *id)
{
    struct hkt_id made;

    HKT_TRY(fresh(&made));
    memcpy(id, &made, sizeof(made));
    return 0;
}

/* splitmix64 */
static uint64_t scatter(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

int hkt_bootstrap_id_derive(hkt_unique_id_t *id, const hkt_unique_id_t *from, uint64_t salt)
{
    struct hkt_id old, made = {.magic = ID_MAGIC};
    uint64_t      word[2 * HKT_KEY / sizeof(uint64_t)];

    memcpy(&old, from, sizeof(old));
    HKT_TRY(hkt_id_check(&old));
    memcpy(word, &old, sizeof(word));
    for (size_t i = 0; i < sizeof(word) / sizeof(word[0]); i++)
        word[i] ^= scatter(salt + (i + 1) * 0x9e3779b97f4a7c15u); /* what nobody can guess stays so */
    memcpy(&made, word, sizeof(word));
    memcpy(id, &made, sizeof(made));
    return 0;
}

/* Opens the port and writes down where it is. Without a network, or without libcrypto, the id is for one host. */
static int add_port(struct hkt_id *id)
{
    struct hkt_inet_address list[HKT_INET_LIST];
    int                     count = hkt_proof_supported() ? hkt_inet_own(list, HKT_INET_LIST) : 0, fd, rc;

    if (count == HKT_ERR_ARGUMENT)
        return count;
    if (count <= 0)
        return 0;
    fd = hkt_inet_listen(&id->port, SOMAXCONN);
    if (fd < 0)
        return fd;
    pack(id, list, count);
    id->host = hkt_inet_host();
    rc       = keep(id, fd);
    if (rc)
        close(fd);
    return rc;
}

int hkt_bootstrap_unique_id(hkt_unique_id_t *id)
{
    struct hkt_id made;

    HKT_TRY(fresh(&made));
    HKT_TRY(add_port(&made));
    memcpy(id, &made, sizeof(made));
    return 0;
}

int hkt_bootstrap_id_at(hkt_unique_id_t *id, const char *root, const char *secret)
{
    struct hkt_id           made = {.magic = ID_MAGIC, .fixed = 1};
    struct hkt_inet_address list[HKT_ID_ADDRESSES];
    unsigned char           key[HKT_PROOF_KEY], public[HKT_PROOF_KEY];
    const int               count = hkt_inet_resolve(list, HKT_ID_ADDRESSES, root);

    HKT_TRY(count);
    HKT_TRY(hkt_proof_key(key, root, secret, strlen(secret))); /* the secret half */
    HKT_TRY(hkt_proof_key(public, "hocket public half", key, sizeof(key))); /* does not tell of it */
    memcpy(made.secret, key, HKT_KEY);
    memcpy(made.public_key, public, HKT_KEY);
    made.port = list[0].port;
    pack(&made, list, count);
    memcpy(id, &made, sizeof(made));
    return 0;
}

void hkt_bootstrap_id_print(const hkt_unique_id_t *id, char text[2 * HKT_UNIQUE_ID_BYTES + 1])
{
    for (int i = 0; i < HKT_UNIQUE_ID_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", (unsigned char)id->internal[i]);
}

int hkt_bootstrap_id_parse(hkt_unique_id_t *id, const char *text)
{
    hkt_unique_id_t parsed;
    struct hkt_id   inner;

    if (strlen(text) != 2 * HKT_UNIQUE_ID_BYTES || strspn(text, "0123456789abcdefABCDEF") != 2 * HKT_UNIQUE_ID_BYTES)
        return hkt_fail(HKT_ERR_ARGUMENT, "a unique id has %d hex digits; this text is another one, of length %zu",
                        2 * HKT_UNIQUE_ID_BYTES, strlen(text));
    for (int i = 0; i < HKT_UNIQUE_ID_BYTES; i++) {
        const char digits[3] = {text[2 * i], text[2 * i + 1], 0};

        parsed.internal[i] = (char)strtoul(digits, NULL, 16);
    }
    memcpy(&inner, &parsed, sizeof(inner));
    HKT_TRY(hkt_id_check(&inner));
    *id = parsed;
    return 0;
}
