/* data_tool.h -- what the files of hkt-data share: its flags and its commands. */
#ifndef TRAINER_DATA_TOOL_H
#define TRAINER_DATA_TOOL_H

#include <stdbool.h>
#include <stddef.h>

struct data_settings {
    const char *output, *vocabulary_file, *merge_file, *json_key;
    int         documents; /* enum documents */
    long        vocabulary, step, document, heads;
    bool        append_eod;
};
extern struct data_settings settings;

/* Each prints what it has to say and returns 0 or a negative HKT_ERR_* with its sentence in hkt_last_error().
 * (data_model.c) */
int data_checkpoint(char **words, int count);
int data_export(char **words, int count);
int data_import(char **words, int count);

#endif
