/* token_files.h -- token data in a scratch folder, for the tests of data. */
#ifndef TEST_TOKEN_FILES_H
#define TEST_TOKEN_FILES_H

#include "harness.h"

#include "indexed.h"

extern char folder[200];

const char *in_folder(char text[300], const char *name);
void        folder_make(void);
void        folder_remove(void);
size_t      slurp(unsigned char *data, size_t room, const char *name);
void        spill(const unsigned char *data, size_t size, const char *name);

/* Documents of lengths[i] tokens; token k of all is k % 1000 + 1. */
struct indexed *make(const char *name, const size_t *lengths, size_t documents);

#endif
