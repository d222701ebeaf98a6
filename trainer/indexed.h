/* indexed.h -- token data in Megatron-LM's format: PREFIX.bin holds the tokens of all sequences back to back,
 * PREFIX.idx says where each begins and where documents begin. Read and written bit for bit.
 *
 * PREFIX.idx, little-endian, unaligned: "MMIDIDX\0\0", u64 version 1, u8 type code, u64 sequences, u64 entries of the
 * document index; i32 length[sequences], in tokens; i64 start[sequences], in bytes; i64 document[entries]: the sequence
 * with which each document begins, the first 0, the last the number of sequences; and perhaps i8 mode[sequences], which
 * is kept out of here.
 *
 * Functions return 0 or a negative HKT_ERR_* with the sentence in hkt_last_error(). Readers may be used by many
 * threads.
 */
#ifndef TRAINER_INDEXED_H
#define TRAINER_INDEXED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum token_code { TOKEN_U8 = 1, TOKEN_I8, TOKEN_I16, TOKEN_I32, TOKEN_I64, TOKEN_F64, TOKEN_F32, TOKEN_U16 };

size_t      token_size(int code);              /* bytes; 0 when it is no code */
const char *token_name(int code);              /* "uint16"; "?" */
int         token_code_for(size_t vocabulary); /* Megatron's choice: u16 below 65500, else i32 */

struct indexed;

/* Maps both files and checks them: sizes, that starts and documents ascend, that everything lies in PREFIX.bin. */
int  indexed_open(struct indexed **indexed, const char *prefix);
void indexed_close(struct indexed *indexed); /* NULL is allowed */

size_t   indexed_sequences(const struct indexed *indexed);
size_t   indexed_documents(const struct indexed *indexed); /* without the last entry of the index */
uint64_t indexed_tokens(const struct indexed *indexed);    /* of all sequences */
int      indexed_code(const struct indexed *indexed);
size_t   indexed_length(const struct indexed *indexed, size_t sequence);
size_t indexed_document(const struct indexed *indexed, size_t document); /* its first sequence; document <= documents */
uint64_t indexed_checksum(const struct indexed *indexed); /* of PREFIX.idx: what the ranks of a job compare */

/* Tokens [first, first + count) of a sequence. They must be there (assert). Floats are no tokens: such files open, but
 * cannot be read. */
void indexed_get(int32_t *tokens, const struct indexed *indexed, size_t sequence, size_t first, size_t count);
/* Reads all tokens: HKT_ERR_ARGUMENT, naming the first that is not in 0 .. vocabulary - 1. */
int indexed_check(const struct indexed *indexed, size_t vocabulary);
/* Where they lie, in the file's type. */
const void *indexed_at(const struct indexed *indexed, size_t sequence);

/* Writes PREFIX.bin and PREFIX.idx, under temporary names until indexed_finish(). A token that the type does not hold
 * is refused. */
struct indexed_writer;
int  indexed_create(struct indexed_writer **writer, const char *prefix, int code);
int  indexed_add(struct indexed_writer *writer, const int32_t *tokens, size_t count); /* a sequence */
int  indexed_end_document(struct indexed_writer *writer);
int  indexed_append(struct indexed_writer *writer,
                    const struct indexed  *other);    /* all of it; the types must be the same */
int  indexed_finish(struct indexed_writer *writer);  /* and frees the writer whatever happens */
void indexed_abandon(struct indexed_writer *writer); /* writes nothing; NULL is allowed */

#endif
