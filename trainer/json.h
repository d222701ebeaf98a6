/* json.h -- reads JSON text one value after the other, as much as the files of tokenizers and of safetensors need.
 * Nothing is allocated; what is wrong sticks, with its place.
 */
#ifndef TRAINER_JSON_H
#define TRAINER_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
    const char *text, *at, *end; /* at: the next character */
    const char *wrong;           /* NULL: all is well; what is wrong at `at`, and then every call gives false */
};

struct json json_text(const char *text, size_t size);

/* Walks an object: json_enter(j, '{'), then while (json_more(j, '}')) json_key() and one value. The same with '[', ']'
 * and without keys. Both close the thing when it ends. */
bool json_enter(struct json *j, char bracket);
bool json_more(struct json *j, char bracket);
bool json_key(struct json *j, char *text, size_t room, size_t *length); /* and its colon */

/* A string without quotes and escapes, as UTF-8 with a 0 behind it. One of `room` bytes or more is wrong. */
bool json_string(struct json *j, char *text, size_t room, size_t *length);
bool json_unsigned(struct json *j, uint64_t *number); /* digits only */
bool json_skip(struct json *j);                       /* any value */
bool json_done(struct json *j);                       /* nothing but space follows */

char json_peek(struct json *j); /* the first character of the next value; 0 at the end */

/* Sets `wrong`. Returns false. */
bool json_fail(struct json *j, const char *wrong);

/* Writes a string with quotes and escapes to `text`, at most 6 * length + 3 bytes; returns its length. */
size_t json_quote(char *text, const char *string, size_t length);

#endif
