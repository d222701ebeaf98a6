/* tokenizer.h -- text to tokens and back: single bytes, or byte-level BPE as GPT-2 has it (vocab.json and merges.txt
 * are read and written). Any bytes, text or not, come back exactly.
 *
 * Text is first cut into words by GPT-2's rule
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * (a byte that is not UTF-8 counts as one of the fourth kind), then the bytes of each word are merged in the order of
 * the merges.
 *
 * Functions return 0 or a negative HKT_ERR_* with the sentence in hkt_last_error(). A tokenizer that exists may be used
 * by many threads.
 */
#ifndef TRAINER_TOKENIZER_H
#define TRAINER_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

struct tokenizer;

#define TOKENIZER_END "<|endoftext|>"

/* Token i is byte i; 256 ends a document. */
int tokenizer_bytes(struct tokenizer **tokenizer);

/* From GPT-2's files. What is wrong in them is said with file and place. */
int tokenizer_load(struct tokenizer **tokenizer, const char *vocabulary, const char *merges);

/* Learns merges from text until there are `size` tokens, the last of them TOKENIZER_END, or no pair occurs twice. The
 * most frequent pair first; of equals the one with the smaller numbers. Deterministic. size >= 257. */
int tokenizer_train(struct tokenizer **tokenizer, const char *text, size_t bytes, size_t size);

/* Writes FOLDER/vocab.json and FOLDER/merges.txt. */
int tokenizer_save(const struct tokenizer *tokenizer, const char *folder);

void tokenizer_free(struct tokenizer *tokenizer); /* NULL is allowed */

size_t  tokenizer_size(const struct tokenizer *tokenizer); /* tokens are 0 to size - 1 */
int32_t tokenizer_end(const struct tokenizer *tokenizer);  /* the token TOKENIZER_END; -1 when there is none */

/* What a token stands for; NULL when there is no such token. Lives as long as the tokenizer. */
const char *tokenizer_token(const struct tokenizer *tokenizer, int32_t token, size_t *bytes);

/* free(*tokens) (with room for one more), free(*text) (with a 0 behind it that is not counted). TOKENIZER_END in a text is
 * text. */
int tokenizer_encode(int32_t **tokens, size_t *count, const struct tokenizer *tokenizer, const char *text,
                     size_t bytes);
int tokenizer_decode(char **text, size_t *bytes, const struct tokenizer *tokenizer, const int32_t *tokens,
                     size_t count);

#endif
