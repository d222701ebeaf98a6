/* checkpoint_saver.c -- saving beside the training: what a rank is to write is copied, and a stream's thread writes the
 * copy. The plan of who writes what is made before the copy, so that only what this rank writes is copied.
 */
#include "parallel/checkpoint.h"

#include <stdlib.h>
#include <string.h>

struct hkt_saver {
    hkt_comm_t   *comm;
    hkt_stream_t *stream;
    hkt_ledger_t *ledger;
    char         *copy; /* of the data */
    size_t        copy_bytes;
    char         *words; /* of folder, names, metadata */
    struct save   save;
    char         *folder;
    hkt_piece_t  *pieces;
    bool          running;
};

static int run(void *saver)
{
    return checkpoint_write(&((struct hkt_saver *)saver)->save);
}

/* Forgets the save that is over; the memory of the copy stays. */
static void forget(struct hkt_saver *s)
{
    free(s->pieces);
    free(s->words);
    s->pieces  = NULL;
    s->words   = NULL;
    s->running = false;
}

int hkt_saver_wait(hkt_saver_t *s)
{
    int rc;

    if (!s->running)
        return HKT_OK;
    rc = hkt_stream_synchronize(s->stream);
    forget(s);
    return rc;
}

static int make(struct hkt_saver *s, hkt_comm_t *comm, const char *folder, int keep)
{
    const hkt_config_t config = {sizeof(config), 1, -1.0, HKT_ORDER_CANONICAL, "saver"};
    int                rc     = HKT_OK;

    if (!folder || keep < 0)
        rc = hkt_error_set(HKT_ERR_ARGUMENT, "a saver into %s that keeps %d", folder ? folder : "NULL", keep);
    else if (!(s->folder = strdup(folder)))
        rc = hkt_error_set(HKT_ERR_MEMORY, "no memory for a saver");
    TRY(checkpoint_agree(comm, rc));
    TRY(hkt_comm_duplicate(&s->comm, comm, &config));
    s->save = (struct save){.comm = s->comm, .folder = s->folder, .keep = keep};
    return checkpoint_agree(s->comm, hkt_stream_create(&s->stream));
}

int hkt_saver_create(hkt_saver_t **saver, hkt_comm_t *comm, const char *folder, int keep, hkt_ledger_t *ledger)
{
    struct hkt_saver *s  = calloc(1, sizeof(*s));
    int               rc = s ? HKT_OK : hkt_error_set(HKT_ERR_MEMORY, "no memory for a saver");

    rc = checkpoint_agree(comm, rc);
    if (rc == HKT_OK) {
        s->ledger = ledger;
        rc        = make(s, comm, folder, keep);
    }
    if (rc < 0) {
        (void)hkt_saver_destroy(s);
        return rc;
    }
    *saver = s;
    return HKT_OK;
}

int hkt_saver_destroy(hkt_saver_t *s)
{
    int rc;

    if (!s)
        return HKT_OK;
    rc = hkt_saver_wait(s);
    (void)hkt_stream_destroy(s->stream); /* idle: nothing is left that could fail */
    (void)hkt_comm_destroy(s->comm);
    (void)hkt_ledger_give(s->copy, s->ledger);
    free(s->folder);
    free(s);
    return rc;
}

static char *put(char **to, const char *text)
{
    char *at = *to;

    *to = stpcpy(at, text) + 1;
    return at;
}

/* The save's metadata and names, copied. What is invalid in them is found by the save itself. */
static int copy_words(struct hkt_saver *s, const struct save *from)
{
    const size_t    table = from->n_metadata * sizeof(hkt_metadata_t);
    size_t          bytes = table + 1;
    hkt_metadata_t *metadata;
    char           *at;

    for (size_t i = 0; i < from->n_pieces; i++)
        bytes += strlen(from->pieces[i].name) + 1;
    for (size_t i = 0; i < from->n_metadata; i++) {
        if (!from->metadata[i].key || !from->metadata[i].value)
            return hkt_error_set(HKT_ERR_ARGUMENT, "metadatum %zu has a key or a value that is NULL", i);
        bytes += strlen(from->metadata[i].key) + strlen(from->metadata[i].value) + 2;
    }
    s->words  = malloc(bytes);
    s->pieces = calloc(from->n_pieces + 1, sizeof(*s->pieces));
    if (!s->words || !s->pieces)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for the names of %zu pieces", from->n_pieces);
    metadata = (hkt_metadata_t *)(void *)s->words;
    at       = s->words + table;
    for (size_t i = 0; i < from->n_metadata; i++) {
        metadata[i].key   = put(&at, from->metadata[i].key);
        metadata[i].value = put(&at, from->metadata[i].value);
    }
    for (size_t i = 0; i < from->n_pieces; i++) {
        s->pieces[i]      = from->pieces[i];
        s->pieces[i].name = put(&at, from->pieces[i].name);
    }
    s->save.metadata   = metadata;
    s->save.pieces     = s->pieces;
    s->save.n_pieces   = from->n_pieces;
    s->save.n_metadata = from->n_metadata;
    s->save.step       = from->step;
    return HKT_OK;
}

static int copy_data(struct hkt_saver *s)
{
    size_t bytes = 0;
    char  *at;

    for (size_t i = 0; i < s->save.n_pieces; i++)
        bytes += piece_bytes(&s->pieces[i]);
    if (bytes > s->copy_bytes) {
        void *more;

        TRY(hkt_ledger_give(s->copy, s->ledger));
        s->copy       = NULL;
        s->copy_bytes = 0;
        TRY(hkt_ledger_take(&more, bytes, HKT_BYTES_OTHER, false, s->ledger));
        s->copy       = more;
        s->copy_bytes = bytes;
    }
    at = s->copy;
    for (size_t i = 0; i < s->save.n_pieces; i++) {
        const size_t size = piece_bytes(&s->pieces[i]);

        if (size)
            memcpy(at, s->pieces[i].data, size);
        s->pieces[i].data = at;
        at += size;
    }
    return HKT_OK;
}

int hkt_saver_begin(hkt_saver_t *s, int64_t step, const hkt_piece_t *pieces, size_t n_pieces,
                    const hkt_metadata_t *metadata, size_t n_metadata)
{
    struct save  save   = {.step = step, .metadata = metadata, .n_metadata = n_metadata};
    hkt_piece_t *chosen = NULL;
    int          rc;

    TRY(hkt_saver_wait(s));
    rc = checkpoint_choose(&chosen, &save.n_pieces, pieces, n_pieces, s->comm);
    if (rc < 0)
        return rc;
    save.pieces = chosen;
    rc          = copy_words(s, &save);
    if (rc == HKT_OK)
        rc = copy_data(s);
    free(chosen);
    rc = checkpoint_agree(s->comm, rc);
    if (rc == HKT_OK)
        rc = hkt_stream_call(s->stream, run, s);
    if (rc < 0)
        forget(s);
    else
        s->running = true;
    return rc;
}
