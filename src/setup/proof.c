/* proof.c -- a mutual challenge and response. See proof.h. */
#include "config.h"
#include "proof.h"

#include "base/error.h"
#include "socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#ifdef HAVE_LIBCRYPTO
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#endif

static const unsigned char MAGIC[7] = {0xab, 'h', 'k', 't', 0x0d, 0x0a, 0x1a}; /* no text that any service begins with */
static const unsigned char FORMAT  = 1;

int hkt_proof_unsupported(void)
{
    return hkt_fail(HKT_ERR_UNSUPPORTED, "ranks on other hosts need proof of who they are, and this library was built without libcrypto: "
                                         "install its development files (libssl-dev, openssl-devel), then configure and build again");
}

#ifdef HAVE_LIBCRYPTO

bool hkt_proof_supported(void)
{
    return true;
}

/* What the one in `role` has to say. */
static int sign(const struct hkt_proof *p, int role, unsigned char mac[HKT_PROOF_MAC])
{
    unsigned char text[1 + sizeof(p->purpose) + sizeof(p->hello)];
    unsigned int  size = 0;

    text[0] = (unsigned char)role;
    for (size_t i = 0; i < sizeof(p->purpose); i++)
        text[1 + i] = (unsigned char)(p->purpose >> (8 * i));
    memcpy(text + 1 + sizeof(p->purpose), p->hello, sizeof(p->hello));
    return HMAC(EVP_sha256(), p->key, sizeof(p->key), text, sizeof(text), mac, &size) && size == HKT_PROOF_MAC ? 0 : -ENOMEM;
}

static bool equal(const void *a, const void *b, size_t size) /* in a time that tells nothing about where they differ */
{
    return CRYPTO_memcmp(a, b, size) == 0;
}

int hkt_proof_key(unsigned char key[HKT_PROOF_KEY], const char *label, const void *secret, size_t size)
{
    unsigned int made = 0;

    if (HMAC(EVP_sha256(), label, (int)strlen(label), secret, size, key, &made) && made == HKT_PROOF_KEY)
        return 0;
    return hkt_fail(HKT_ERR_MEMORY, "libcrypto cannot make a key of a secret of %zu bytes", size);
}

#else

bool hkt_proof_supported(void)
{
    return false;
}

static int sign(const struct hkt_proof *p, int role, unsigned char mac[HKT_PROOF_MAC])
{
    (void)p, (void)role, (void)mac;
    return -ENOTSUP;
}

static bool equal(const void *a, const void *b, size_t size)
{
    (void)a, (void)b, (void)size;
    return false;
}

int hkt_proof_key(unsigned char key[HKT_PROOF_KEY], const char *label, const void *secret, size_t size)
{
    (void)key, (void)label, (void)secret, (void)size;
    return hkt_proof_unsupported();
}

#endif

int hkt_proof_begin(struct hkt_proof *p, enum hkt_proof_role role, const unsigned char key[HKT_PROOF_KEY], uint64_t purpose)
{
    unsigned char *const hello = p->hello[role];

    if (!hkt_proof_supported())
        return hkt_proof_unsupported();
    *p = (struct hkt_proof){.role = role, .purpose = purpose, .events = role == HKT_PROOF_CONNECTS ? POLLOUT : POLLIN};
    memcpy(p->key, key, sizeof(p->key));
    memcpy(hello, MAGIC, sizeof(MAGIC));
    hello[sizeof(MAGIC)] = FORMAT;
    return hkt_random(hello + 8, HKT_PROOF_NONCE);
}

/* The bytes of the current step, whoever says them. */
static unsigned char *bytes_of(struct hkt_proof *p, size_t *size)
{
    const int role = p->step % 2;

    *size = p->step < 2 ? sizeof(p->hello[0]) : sizeof(p->mac[0]);
    return p->step < 2 ? p->hello[role] : p->mac[role];
}

/* Sends what it can of the step. 1: all of it; 0: a part; -errno. */
static int say(struct hkt_proof *p, int fd)
{
    size_t               size;
    unsigned char *const bytes = bytes_of(p, &size);
    ssize_t              n;

    if (p->step >= 2 && p->done == 0) {
        const int rc = sign(p, p->step % 2, bytes);

        if (rc)
            return rc;
    }
    n = hkt_socket_send(fd, bytes + p->done, size - p->done, -1);
    if (n > 0)
        p->done += (size_t)n;
    p->events = POLLOUT;
    return n < 0 ? (int)n : p->done == size;
}

/* Is what has come so far right? */
static int check(struct hkt_proof *p, const unsigned char *bytes, size_t size)
{
    unsigned char wanted[HKT_PROOF_MAC];
    int           rc;

    if (p->step < 2) {
        memcpy(wanted, MAGIC, sizeof(MAGIC));
        wanted[sizeof(MAGIC)] = FORMAT;
        return memcmp(bytes, wanted, p->done < 8 ? p->done : 8) ? -EACCES : 0;
    }
    if (p->done < size)
        return 0;
    rc = sign(p, p->step % 2, wanted);
    if (rc)
        return rc;
    return equal(wanted, bytes, sizeof(wanted)) ? 0 : -EACCES;
}

/* The same with the other end's. */
static int hear(struct hkt_proof *p, int fd)
{
    size_t               size;
    unsigned char *const bytes = bytes_of(p, &size);
    const ssize_t        n     = hkt_socket_receive(fd, bytes + p->done, size - p->done, NULL);
    int                  rc;

    p->events = POLLIN;
    if (n <= 0)
        return n < 0 ? (int)n : -ECONNRESET;
    p->done += (size_t)n;
    rc = check(p, bytes, size);
    return rc ? rc : p->done == size;
}

int hkt_proof_turn(struct hkt_proof *p, int fd)
{
    while (p->step < 4) {
        const int rc = p->step % 2 == (int)p->role ? say(p, fd) : hear(p, fd); /* 0: a part of it */

        if (rc < 0)
            return rc == -EAGAIN ? 0 : rc;
        p->step += rc;
        p->done = rc ? 0 : p->done;
    }
    return 1;
}
