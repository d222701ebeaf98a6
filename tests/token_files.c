/* token_files.c -- see token_files.h. */
#include "token_files.h"

#include <hocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char folder[200];

const char *in_folder(char text[300], const char *name)
{
    snprintf(text, 300, "%s/%s", folder, name);
    return text;
}

void folder_make(void)
{
    const char *base = getenv("TMPDIR");

    snprintf(folder, sizeof(folder), "%s/hocket-indexed-XXXXXX", base ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

void folder_remove(void)
{
    char command[300];

    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

size_t slurp(unsigned char *data, size_t room, const char *name)
{
    char   path[300];
    FILE  *f = fopen(in_folder(path, name), "rb");
    size_t n = f ? fread(data, 1, room, f) : 0;

    ck_assert_msg(f, "%s", path);
    fclose(f);
    return n;
}

void spill(const unsigned char *data, size_t size, const char *name)
{
    char  path[300];
    FILE *f = fopen(in_folder(path, name), "wb");

    ck_assert(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

struct indexed *make(const char *name, const size_t *lengths, size_t documents)
{
    char                   prefix[300];
    struct indexed_writer *w;
    struct indexed        *x;
    int32_t                tokens[3000], k = 0;

    ck_assert_int_eq(indexed_create(&w, in_folder(prefix, name), TOKEN_U16), 0);
    for (size_t d = 0; d < documents; d++) {
        for (size_t i = 0; i < lengths[d]; i++)
            tokens[i] = k++ % 1000 + 1;
        ck_assert_int_eq(indexed_add(w, tokens, lengths[d]), 0);
        ck_assert_int_eq(indexed_end_document(w), 0);
    }
    ck_assert_msg(indexed_finish(w) == 0, "%s", hkt_last_error());
    ck_assert_msg(indexed_open(&x, prefix) == 0, "%s", hkt_last_error());
    return x;
}
