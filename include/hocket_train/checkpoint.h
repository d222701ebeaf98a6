/* checkpoint.h -- saving and loading pieces of a model, on any layout. A part of hocket_train.h, whose conventions hold. */
#ifndef HOCKET_TRAIN_CHECKPOINT_H
#define HOCKET_TRAIN_CHECKPOINT_H

#include <hocket.h>
#include <hocket_train/ledger.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A checkpoint holds pieces of tensors in the coordinates of the model, not of a layout, so any layout loads what any other
 * saved. On disk (docs/checkpoints.md): a folder a step with one data file a rank and a manifest of text; it is written under
 * a temporary name, synchronised, and renamed when it is complete, so whatever dies at whatever byte, the newest complete one
 * stays usable. Every 256 KiB have a checksum. */

/* XXH64 of the bytes: the checksum that the layer's files use. Pure. */
HKT_API uint64_t hkt_checksum(const void *data, size_t size, uint64_t seed);

/* to[i] = from[i] between float32, bfloat16 and float16 (rounded to nearest even, once; NaN stays NaN), or of one type of any
 * kind. Not in place. HKT_ERR_ARGUMENT for other pairs. Pure. */
HKT_API int hkt_convert(void *to, hkt_type_t to_type, const void *from, hkt_type_t from_type, size_t count);

typedef enum {
    HKT_PIECE_WEIGHT = 0, /* in the type of computation */
    HKT_PIECE_MASTER,     /* the fp32 copy that the optimizer updates */
    HKT_PIECE_MOMENT1,    /* AdamW's m */
    HKT_PIECE_MOMENT2,    /* AdamW's v */
    HKT_PIECE_EXTRA,      /* anything else, as bytes or numbers: error feedback, a generator, ... */
    HKT_PIECE_KINDS
} hkt_piece_kind_t;
HKT_API const char *hkt_piece_kind_name(hkt_piece_kind_t kind); /* "weight"; "?" when it is no kind */

enum { HKT_PIECE_DIMS = 4 };

/* Elements [first, first + count) of this rank's part of a tensor. The part is the whole tensor (begin, run and stride 0), or
 * a slice along one dimension: its element i is element begin + i / run * stride + i % run of the tensor, both row-major.
 * So columns [a, b) of a matrix of w columns are begin a, run b - a, stride w; rows [a, b) are begin a * w, run 0; and the
 * shard that a sharded optimizer has of either is first and count. */
typedef struct {
    const char      *name; /* of the tensor in the model: printable, no spaces, at most 255 bytes */
    hkt_piece_kind_t kind;
    hkt_type_t       type;
    int              dims; /* 1 to HKT_PIECE_DIMS */
    size_t           shape[HKT_PIECE_DIMS]; /* of the whole tensor */
    size_t           first, count;
    size_t           begin, run, stride;
    void            *data; /* `count` elements; written to by hkt_checkpoint_read() only */
} hkt_piece_t;

/* What is no tensor: step and position in the data, loss scaler, learning rate, the arguments. Doubles survive as "%a". */
typedef struct { const char *key, *value; } hkt_metadata_t;

/* Writes a checkpoint of `step` (>= 0) into `folder` (made when missing) and points `latest` to it. Collective; returns when
 * it is on disk, the same code on every rank, and on every rank the sentence of the one that failed; then nothing that was
 * complete before is lost. A piece that several ranks hold is written by one of them. The metadata is rank 0's. Of older ones
 * the newest `keep` - 1 stay; keep 0: all. A piece with count 0 is left out. Another save into the same folder at the same
 * time is refused (HKT_ERR_USAGE). */
HKT_API int hkt_checkpoint_save(hkt_comm_t *comm, const char *folder, int64_t step, int keep, const hkt_piece_t *pieces,
                                size_t n_pieces, const hkt_metadata_t *metadata, size_t n_metadata);

/* Saves beside the training. create and destroy are collective, as is save; a saver has a communicator of its own. */
typedef struct hkt_saver hkt_saver_t;
HKT_API int hkt_saver_create(hkt_saver_t **saver, hkt_comm_t *comm, const char *folder, int keep, hkt_ledger_t *ledger);
/* Copies what this rank is to write, and returns: a thread does the rest. Waits for the save before; when that failed it
 * returns its error and begins nothing. The copy's memory is kept for the next save (ledger: HKT_BYTES_OTHER). */
HKT_API int hkt_saver_begin(hkt_saver_t *saver, int64_t step, const hkt_piece_t *pieces, size_t n_pieces,
                            const hkt_metadata_t *metadata, size_t n_metadata);
HKT_API int hkt_saver_wait(hkt_saver_t *saver);    /* until it is on disk; its result, once; HKT_OK when none was begun */
HKT_API int hkt_saver_destroy(hkt_saver_t *saver); /* waits first and returns the result; NULL is allowed */

typedef struct hkt_checkpoint hkt_checkpoint_t;

/* Opens the checkpoint of `step`; step -1: the one `latest` names, or, where that is not complete, the newest that is. With a
 * communicator it is collective and every rank gets the same one, or an error when their files differ. NULL: by this rank
 * alone. Reads the manifest only. */
HKT_API int hkt_checkpoint_open(hkt_checkpoint_t **checkpoint, const char *folder, int64_t step, hkt_comm_t *comm);
HKT_API int hkt_checkpoint_close(hkt_checkpoint_t *checkpoint); /* NULL is allowed */

typedef struct {
    int64_t     step;
    int         ranks; /* that saved it */
    size_t      pieces, metadata;
    const char *path; /* its folder */
    const char *note; /* "", or which ones were passed over and why */
} hkt_checkpoint_info_t;
HKT_API int hkt_checkpoint_info(hkt_checkpoint_info_t *info, const hkt_checkpoint_t *checkpoint);

/* The index-th piece (ordered by name, kind, place; data NULL) or metadatum. They live as long as the checkpoint. */
HKT_API int hkt_checkpoint_piece(hkt_piece_t *piece, size_t index, const hkt_checkpoint_t *checkpoint);
HKT_API int hkt_checkpoint_metadatum(hkt_metadata_t *metadatum, size_t index, const hkt_checkpoint_t *checkpoint);
/* The value of a key; NULL when there is none. */
HKT_API const char *hkt_checkpoint_value(const hkt_checkpoint_t *checkpoint, const char *key);

/* Fills the pieces' data from whatever pieces hold their elements; reads no more of the files than the blocks of those. Types
 * may differ between float32, bfloat16 and float16 (rounded to nearest even). Where something is missing or has another shape
 * or type nothing is written and the sentence lists it (HKT_ERR_ARGUMENT); where a file is damaged it names file and offset
 * (HKT_ERR_SYSTEM) and the data that it was to fill is undefined. */
HKT_API int hkt_checkpoint_read(const hkt_piece_t *pieces, size_t n_pieces, hkt_checkpoint_t *checkpoint);

/* Reads all of it: every checksum, and that the pieces cover every tensor. */
HKT_API int hkt_checkpoint_verify(hkt_checkpoint_t *checkpoint);

#ifdef __cplusplus
}
#endif
#endif /* HOCKET_TRAIN_CHECKPOINT_H */
