/* proof.h -- both ends of a connection prove that they hold the same key, without telling it: HMAC-SHA256 over two nonces.
 *
 *     connects                                   accepts
 *     magic, version, nonce c    ------------>   the first wrong byte ends it: strangers hear nothing from us
 *                                <------------   magic, version, nonce a
 *     mac(key, "c", purpose, c, a)  --------->   wrong: a stranger
 *                                <------------   mac(key, "a", purpose, c, a)
 *
 * Recorded bytes are worth nothing, since the nonces are fresh; an answer cannot be sent back as one's own, nor used for another
 * purpose, since both are part of what is signed. It protects who joins, not what is said afterwards. Non-blocking; the caller polls
 * and keeps the deadline.
 */
#ifndef HKT_PROOF_H
#define HKT_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HKT_PROOF_KEY = 32, HKT_PROOF_NONCE = 32, HKT_PROOF_MAC = 32, HKT_PROOF_HELLO = 8 + HKT_PROOF_NONCE };

enum hkt_proof_role { HKT_PROOF_CONNECTS, HKT_PROOF_ACCEPTS };

/* One end's state. Made by hkt_proof_begin(); nothing to free. */
struct hkt_proof {
    enum hkt_proof_role role;
    unsigned char       key[HKT_PROOF_KEY];
    uint64_t            purpose;
    int                 step;   /* of the four above */
    size_t              done;   /* bytes of the step */
    short               events; /* what to poll for */
    unsigned char       hello[2][HKT_PROOF_HELLO]; /* by role */
    unsigned char       mac[2][HKT_PROOF_MAC];
};

/* True when this build has libcrypto. */
bool hkt_proof_supported(void);

/* HKT_ERR_UNSUPPORTED, with the sentence that says what to install. */
int hkt_proof_unsupported(void);

/* `purpose`: both ends must say the same; what the connection is for. 0, or HKT_ERR_* when there is no libcrypto or no randomness. */
int hkt_proof_begin(struct hkt_proof *p, enum hkt_proof_role role, const unsigned char key[HKT_PROOF_KEY], uint64_t purpose);

/* Goes on as far as it can. 1: proven; 0: not yet, poll for p->events; -EACCES: it is a stranger (wrong bytes, wrong key);
 * -ECONNRESET: hung up; other -errno. Reads no byte beyond the proof. */
int hkt_proof_turn(struct hkt_proof *p, int fd);

/* A key from any secret: SHA-256 over the label and the bytes. 0 or HKT_ERR_UNSUPPORTED. */
int hkt_proof_key(unsigned char key[HKT_PROOF_KEY], const char *label, const void *secret, size_t size);

#endif
