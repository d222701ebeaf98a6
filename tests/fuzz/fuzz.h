/* fuzz.h -- functions that take any bytes, as they come from a socket, a file or an environment, and must come back: no crash, no hang, no leak.
 * tests/fuzz/main.c runs them on the corpus (make check), tests/fuzz/run.sh under libFuzzer (make fuzz). What they find goes into the corpus.
 */
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>

struct fuzz_target {
    const char *name; /* of its folder in tests/fuzz/corpus, too */
    void (*run)(const uint8_t *data, size_t size);
};

extern const struct fuzz_target fuzz_targets[];
extern const int                fuzz_target_count;

/* fuzz_text.c */
void fuzz_tuning(const uint8_t *data, size_t size);   /* a table of algorithms */
void fuzz_xml(const uint8_t *data, size_t size);      /* a machine as XML, ours */
void fuzz_machine(const uint8_t *data, size_t size);  /* a machine as a line of text, or a table of leaf switches */
void fuzz_tree(const uint8_t *data, size_t size);     /* the parents that rank 0 sends */
void fuzz_address(const uint8_t *data, size_t size);  /* how the networks reach a process */
void fuzz_id(const uint8_t *data, size_t size);       /* a unique id */

/* fuzz_meet.c */
void fuzz_proof(const uint8_t *data, size_t size);    /* either end of a proof */
void fuzz_hub(const uint8_t *data, size_t size);      /* what rank 0 hears from one who says that it is a rank */
void fuzz_join(const uint8_t *data, size_t size);     /* what another rank hears from one who says that it is rank 0 */
void fuzz_helper(const uint8_t *data, size_t size);   /* what the helper thread is asked */
void fuzz_pmi(const uint8_t *data, size_t size);      /* what a launcher answers */

/* fuzz_wire.c */
void fuzz_greeting(const uint8_t *data, size_t size); /* at the network's port */
void fuzz_frames(const uint8_t *data, size_t size);   /* behind the proof: frames of a process of another host */

#endif
