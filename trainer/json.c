/* json.c -- see json.h. */
#include "json.h"

#include <stdio.h>
#include <string.h>

struct json json_text(const char *text, size_t size)
{
    return (struct json){text, text, text + size, NULL};
}

bool json_fail(struct json *j, const char *wrong)
{
    if (!j->wrong)
        j->wrong = wrong;
    return false;
}

char json_peek(struct json *j)
{
    while (j->at < j->end && strchr(" \t\r\n", *j->at) && *j->at)
        j->at++;
    return j->wrong || j->at == j->end ? 0 : *j->at;
}

static bool take(struct json *j, char c, const char *wrong)
{
    if (json_peek(j) != c)
        return json_fail(j, wrong);
    j->at++;
    return true;
}

bool json_enter(struct json *j, char bracket)
{
    return take(j, bracket, bracket == '{' ? "'{' expected" : "'[' expected");
}

bool json_more(struct json *j, char bracket)
{
    const char before = j->at > j->text ? j->at[-1] : 0, next = json_peek(j);
    const bool first = before == '{' || before == '['; /* nothing but the bracket has been read */

    if (j->wrong)
        return false;
    if (next == bracket) {
        j->at++;
        return false;
    }
    return first || take(j, ',', "',' or the end expected");
}

bool json_key(struct json *j, char *text, size_t room, size_t *length)
{
    return json_string(j, text, room, length) && take(j, ':', "':' expected");
}

static int hex4(struct json *j)
{
    int value = 0;

    for (int i = 0; i < 4; i++, j->at++) {
        static const char digits[] = "0123456789abcdefABCDEF";
        const char       *digit    = j->at < j->end && *j->at ? strchr(digits, *j->at) : NULL;

        if (!digit)
            return -1;
        value = value * 16 + (int)(digit - digits < 16 ? digit - digits : digit - digits - 6);
    }
    return value;
}

static size_t put_utf8(char *to, uint32_t c)
{
    const size_t               n      = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};

    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3F));
    to[0] = (char)(lead[n] | c);
    return n;
}

/* What follows a backslash, as UTF-8 in to[4]; 0: wrong. */
static size_t escape(struct json *j, char *to)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char        c    = j->at < j->end ? *j->at++ : 0;
    const char       *name = c ? strchr(names, c) : NULL;
    int               code, low;

    if (name) {
        to[0] = values[name - names];
        return 1;
    }
    code = c == 'u' ? hex4(j) : -1;
    if (code >= 0xD800 && code < 0xDC00 && j->end - j->at >= 6 && j->at[0] == '\\' && j->at[1] == 'u') {
        j->at += 2;
        low  = hex4(j);
        code = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : -1;
    } else if (code >= 0xD800 && code < 0xE000) {
        code = -1;
    }
    if (code >= 0)
        return put_utf8(to, (uint32_t)code);
    json_fail(j, "an escape that JSON does not have");
    return 0;
}

bool json_string(struct json *j, char *text, size_t room, size_t *length)
{
    size_t n = 0;

    if (!take(j, '"', "a string expected"))
        return false;
    while (j->at < j->end && *j->at != '"') {
        char   bytes[4] = {*j->at};
        size_t more     = 1;

        if ((unsigned char)*j->at < ' ')
            return json_fail(j, "a control character in a string");
        if (*j->at++ == '\\' && (more = escape(j, bytes)) == 0)
            return false;
        if (n + more >= room)
            return json_fail(j, "a string that is too long");
        memcpy(text + n, bytes, more);
        n += more;
    }
    if (j->at == j->end)
        return json_fail(j, "a string without an end");
    j->at++;
    text[n] = 0;
    *length = n;
    return true;
}

bool json_unsigned(struct json *j, uint64_t *number)
{
    uint64_t   x     = 0;
    const char first = json_peek(j);

    if (first < '0' || first > '9')
        return json_fail(j, "a number of digits expected");
    for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++)
        if (__builtin_mul_overflow(x, 10, &x) || __builtin_add_overflow(x, (uint64_t)(*j->at - '0'), &x))
            return json_fail(j, "a number of more than 64 bits");
    if (j->at < j->end && strchr(".eE", *j->at) && *j->at)
        return json_fail(j, "a number of digits expected");
    *number = x;
    return true;
}

static bool skip_string(struct json *j)
{
    for (j->at++; j->at < j->end && *j->at != '"'; j->at++)
        if (*j->at == '\\' && ++j->at == j->end)
            break;
    if (j->at >= j->end)
        return json_fail(j, "a string without an end");
    j->at++;
    return true;
}

/* Brackets are counted, not matched: what is skipped is nobody's concern. */
bool json_skip(struct json *j)
{
    int depth = 0;

    do {
        const char c = json_peek(j);

        if (!c)
            return json_fail(j, "the text ends in a value");
        if (c == '"') {
            if (!skip_string(j))
                return false;
        } else if (strchr("{}[],:", c)) {
            if (depth == 0 && !strchr("{[", c))
                return json_fail(j, "a value expected");
            depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
            j->at++;
        } else {
            while (j->at < j->end && (!*j->at || !strchr("{}[],: \t\r\n\"", *j->at)))
                j->at++;
        }
    } while (depth > 0);
    return true;
}

bool json_done(struct json *j)
{
    if (json_peek(j) || (!j->wrong && j->at != j->end))
        return json_fail(j, "something behind the end");
    return !j->wrong;
}

size_t json_quote(char *text, const char *string, size_t length)
{
    char *to = text;

    *to++ = '"';
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)string[i];

        if (c < ' ' || c == 127) {
            to += sprintf(to, "\\u%04x", c);
        } else {
            if (c == '"' || c == '\\')
                *to++ = '\\';
            *to++ = (char)c;
        }
    }
    *to++ = '"';
    *to   = 0;
    return (size_t)(to - text);
}
