/* checkpoint.h -- what the files of the checkpoint share: pieces and where they overlap, the manifest, durable files.
 *
 * On disk, FOLDER of a run:
 *   latest                   one line, the name of the newest complete checkpoint; replaced by rename, last
 *   step-0000000100/         complete: it got this name when everything in it was synchronised
 *     manifest               text; its last line is the checksum of all before it
 *     rank-00003.data        the pieces that rank 3 wrote, each at a multiple of 64 bytes; behind them a checksum (u64)
 * per block .tmp-step-0000000200/    being written, or left over by a save that died; removed by the next save .lock
 * held (flock) by the save that is at work A second checkpoint of the same step is step-0000000100.1; the older one is
 * removed when it is complete.
 *
 * The manifest is text with a checksum, and not JSON, because no library is needed to read it back exactly and anybody
 * can look at it. Its lines: hocket-checkpoint 1 step 100 ranks 4 meta KEY VALUE                 VALUE to the end of
 * the line, with \\ \n \r escaped file RANK BYTES CHECKSUM       bytes of pieces in its data file, checksum of its
 * table of checksums piece KIND TYPE SHAPE FIRST COUNT BEGIN RUN STRIDE RANK OFFSET NAME end CHECKSUM Numbers of the
 * data files are little-endian, as everything that Hocket runs on.
 */
#ifndef PARALLEL_CHECKPOINT_H
#define PARALLEL_CHECKPOINT_H

#include "parallel/common.h"

enum {
    CHECKPOINT_BLOCK = 256 << 10, /* bytes under one checksum */
    CHECKPOINT_ALIGN = 64,
    CHECKPOINT_NAME  = 64, /* room for the name of a checkpoint or of a data file */
    CHECKPOINT_PATH  = 4096
};

/* ---- pieces (checkpoint_piece.c) --------------------------------------------------------------------------------- */

/* HKT_OK, or what is wrong with it. `who` names it when its name cannot. */
int piece_check(const hkt_piece_t *piece, size_t who);

size_t piece_bytes(const hkt_piece_t *piece);
size_t piece_elements(const hkt_piece_t *piece); /* of the whole tensor */

/* The tensor's element at local element i; *length: how many from there on are consecutive in tensor and piece. */
size_t piece_global(const hkt_piece_t *piece, size_t i, size_t *length);

/* The inverse: whether the piece holds the tensor's element g; then at local element *i and *length consecutive ones.
 */
bool piece_local(const hkt_piece_t *piece, size_t g, size_t *i, size_t *length);

int  piece_order(const hkt_piece_t *a, const hkt_piece_t *b);        /* by name, kind, place: < 0, 0, > 0 */
void piece_shape(const hkt_piece_t *piece, char *text, size_t size); /* "50257x768" */
int  piece_kind(const char *name);                                   /* or -1 */

/* ---- the manifest (checkpoint_manifest.c) ------------------------------------------------------------------------ */

struct stored {
    hkt_piece_t piece; /* data NULL */
    int         rank;  /* whose file */
    size_t      offset;
};

struct data_file {
    size_t   bytes;    /* of pieces, without the table */
    uint64_t checksum; /* of the table */
    bool     used;     /* ranks that wrote nothing have no file */
};

struct manifest {
    char             *text; /* names and values point into it */
    uint64_t          checksum;
    int64_t           step;
    int               ranks;
    struct data_file *file; /* per rank */
    struct stored    *stored;
    size_t            stored_count;
    hkt_metadata_t   *metadata;
    size_t            metadata_count;
};

/* A growing text; `failed` once memory was short, and then nothing is added any more. */
struct text {
    char  *at;
    size_t size, room;
    bool   failed;
};
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

int  manifest_begin(struct text *text, int64_t step, int ranks, const hkt_metadata_t *metadata, size_t count);
void manifest_file(struct text *text, int rank, const struct data_file *file);
void manifest_piece(struct text *text, const struct stored *stored);
int  manifest_end(struct text *text); /* HKT_ERR_MEMORY when the text failed */

/* Takes `text` (malloc, `size` bytes and a 0 behind them) whatever happens. `path` is for messages. */
int  manifest_parse(struct manifest *m, char *text, size_t size, const char *path);
void manifest_free(struct manifest *m);

/* Whether the files that it names are in `folder` with the sizes that it says. */
int manifest_check_files(const struct manifest *m, const char *folder);

void data_name(char name[CHECKPOINT_NAME], int rank);

/* ---- files (checkpoint_file.c) ----------------------------------------------------------------------------------- */

int file_error(const char *what, const char *path); /* HKT_ERR_SYSTEM with errno's text */
int file_join(char path[CHECKPOINT_PATH], const char *folder, const char *name);
int file_make_folder(const char *folder); /* with its parents; one that exists is fine */
int file_sync_folder(const char *folder);
int file_remove_tree(const char *folder);
int file_write_all(int fd, const void *data, size_t size, const char *path);
int file_put(const char *folder, const char *name, const void *data, size_t size); /* written and synchronised */
int file_replace(const char *folder, const char *name, const void *data,
                 size_t size);                             /* file_put beside it, then rename */
int file_get(char **data, size_t *size, const char *path); /* all of it and a 0; free() it */
int file_read_at(int fd, void *data, size_t size, size_t offset, const char *path);

/* ---- checkpoints in a folder (checkpoint_folder.c) --------------------------------------------------------------- */

struct entry {
    int64_t step;
    int     attempt;
    char    name[CHECKPOINT_NAME];
};

/* Those with a complete name, newest first; free(*list). A folder that is missing is empty. */
int  folder_list(struct entry **list, size_t *count, const char *folder);
bool folder_entry(struct entry *entry, const char *name);
int  folder_remove_temporary(const char *folder);
/* Removes checkpoints beyond the newest `keep` (0: only those of the same step), never `kept`. */
int folder_prune(const char *folder, const struct entry *kept, int keep);

/* ---- saving (checkpoint_share.c, checkpoint_save.c) -------------------------------------------------------------- */

/* The same code on every rank: that of the lowest rank with an error; its sentence, too. Collective. */
int checkpoint_agree(hkt_comm_t *comm, int rc);

/* The pieces that this rank is to write; free(*chosen). Checks them. Collective. */
int checkpoint_choose(hkt_piece_t **chosen, size_t *n_chosen, const hkt_piece_t *pieces, size_t count,
                      hkt_comm_t *comm);

struct save {
    hkt_comm_t           *comm;
    const char           *folder;
    int64_t               step;
    int                   keep;
    const hkt_piece_t    *pieces; /* that this rank writes */
    size_t                n_pieces;
    const hkt_metadata_t *metadata;
    size_t                n_metadata;
};
int checkpoint_write(const struct save *save); /* collective */

/* ---- reading (checkpoint_open.c, checkpoint_read.c) -------------------------------------------------------------- */

struct hkt_checkpoint {
    struct manifest m;
    char            path[CHECKPOINT_PATH];
    char            note[512];
    int            *fd;         /* per rank; -1: not open yet */
    uint64_t      **table;      /* checksums per block; NULL: not read yet */
    unsigned char  *block;      /* the last block that was read */
    int             block_rank; /* -1: none */
    size_t          block_index;
};

/* Points *data to the block of a data file, verified. */
int checkpoint_block(const unsigned char **data, size_t *size, hkt_checkpoint_t *c, int rank, size_t index);

/* Whether hkt_convert() can. */
bool piece_convertible(hkt_type_t to, hkt_type_t from);

#endif
