/* topology_xml.c -- a machine as an XML file. See topology.h; the format is in docs/topology.md.
 *
 * The reader is our own: 150 lines that know elements, attributes, comments and the five entities, refuse the rest of XML (document types,
 * so no entity can expand; text between elements; processing instructions after the first line), copy nothing but attribute values of less
 * than 64 bytes, and keep no stack but the tree that is made. A library would be one more dependency for a recorded machine to be read
 * in every test.
 */
#include "topology.h"

#include "base/error.h"
#include "base/memory.h"
#include "setup/topology_read.h"
#include "setup/topology_value.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MOST = 64 << 20, ATTRIBUTES_MOST = 8, FORMAT = 1 };

struct attribute {
    char name[16], value[HKT_VALUE_TEXT];
};

struct reader {
    struct hkt_topology *t;
    const char          *name, *begin, *at, *end;
    char                 element[16];
    struct attribute     attribute[ATTRIBUTES_MOST];
    int                  attributes;
};

/* ---- characters -------------------------------------------------------------------------------------------------- */

static int complain(const struct reader *r, const char *what, const char *detail)
{
    int line = 1;

    for (const char *c = r->begin; c < r->at; c++)
        line += *c == '\n';
    return hkt_fail(HKT_ERR_ARGUMENT, "%s:%d: %s%s", r->name, line, what, detail);
}

static bool next_is(const struct reader *r, const char *text)
{
    const size_t n = strlen(text);

    return (size_t)(r->end - r->at) >= n && memcmp(r->at, text, n) == 0;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool skip_space(struct reader *r)
{
    const char *from = r->at;

    while (r->at < r->end && is_space(*r->at))
        r->at++;
    return r->at > from;
}

static bool skip_past(struct reader *r, const char *text)
{
    const char *found = memmem(r->at, (size_t)(r->end - r->at), text, strlen(text));

    if (found)
        r->at = found + strlen(text);
    return found;
}

static bool read_name(struct reader *r, char name[16])
{
    int n = 0;

    while (r->at < r->end && ((*r->at >= 'a' && *r->at <= 'z') || (n && *r->at >= '0' && *r->at <= '9')) && n < 15)
        name[n++] = *r->at++;
    name[n] = 0;
    return n > 0;
}

static const struct {
    const char *text;
    char        character;
} entity[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};

enum { ENTITIES = sizeof(entity) / sizeof(entity[0]) };

static bool read_value(struct reader *r, char value[HKT_VALUE_TEXT])
{
    const char quote = r->at < r->end ? *r->at : 0;
    int        n     = 0;

    if (quote != '"' && quote != '\'')
        return false;
    for (r->at++; r->at < r->end && *r->at != quote; r->at++) {
        char c = *r->at;

        if (n == HKT_VALUE_TEXT - 1 || c == '<' || (unsigned char)c < ' ')
            return false;
        for (int i = 0; c == '&' && i < ENTITIES; i++)
            if (next_is(r, entity[i].text)) {
                value[n++] = entity[i].character;
                r->at += strlen(entity[i].text) - 1;
                c = 0;
            }
        if (c == '&')
            return false;
        if (c)
            value[n++] = c;
    }
    value[n] = 0;
    if (r->at == r->end)
        return false;
    r->at++;
    return true;
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

static const char *find(const struct reader *r, const char *name)
{
    for (int i = 0; i < r->attributes; i++)
        if (strcmp(r->attribute[i].name, name) == 0)
            return r->attribute[i].value;
    return NULL;
}

/* From behind '<' to behind '>': 1 when the element is empty ("/>"), 0 when its content follows, or an error. */
static int read_tag(struct reader *r)
{
    r->attributes = 0;
    if (!read_name(r, r->element))
        return complain(r, "the name of an element is expected after '<'", "");
    for (;;) {
        struct attribute *a     = &r->attribute[r->attributes];
        const bool        space = skip_space(r);

        if (next_is(r, "/>")) {
            r->at += 2;
            return 1;
        }
        if (next_is(r, ">")) {
            r->at++;
            return 0;
        }
        if (r->attributes == ATTRIBUTES_MOST || !space || !read_name(r, a->name) || !next_is(r, "="))
            return complain(r, "attributes as name=\"value\" or the end of the element are expected in ", r->element);
        r->at++;
        if (!read_value(r, a->value))
            return complain(r, "a value in quotes, shorter than 64 bytes, without '<' or an unknown entity, is expected for ", a->name);
        if (find(r, a->name))
            return complain(r, "an attribute stands twice: ", a->name);
        r->attributes++;
    }
}

/* "gpu3" of the host that is open, or -1. */
static int device(const struct hkt_topology *t, const char *id)
{
    static const enum hkt_object_kind kinds[] = {HKT_OBJECT_GPU, HKT_OBJECT_FABRIC};
    int                               number;

    for (int k = 0; id && k < 2; k++) {
        const char  *name = hkt_object_name[kinds[k]];
        const size_t n    = strlen(name);

        if (strncmp(id, name, n) || !hkt_value_integer(id + n, 0, HKT_OBJECTS_MOST, &number))
            continue;
        for (int o = t->open; o < t->objects; o++)
            if (t->object[o].kind == kinds[k] && t->object[o].number == number)
                return o;
    }
    return -1;
}

static enum hkt_class class_of(const char *name)
{
    int class = 0;

    while (class < HKT_CLASSES && (!name || strcmp(name, hkt_class_name[class]) != 0))
        class++;
    return (enum hkt_class)class;
}

static int take_link(struct reader *r)
{
    struct hkt_topology *t    = r->t;
    const char          *rate = find(r, "rate");
    struct hkt_gpu_link      w    = {.class = class_of(find(r, "class"))};
    const int            a = device(t, find(r, "a")), b = device(t, find(r, "b"));

    if (t->open < 0 || t->object[t->open].kind != HKT_OBJECT_HOST)
        return complain(r, "a link stands in its host, after the devices", "");
    if (r->attributes != 3 + (rate != NULL) || a < 0 || b < 0 || w.class == HKT_CLASSES || (rate && !hkt_value_rate(rate, &w.bandwidth)))
        return complain(r, "a link has a and b, which are devices of this host before it (\"gpu0\", \"fabric0\"), ",
                        "class (nvlink, xgmi) and may have rate (such as 450GB/s)");
    return hkt_gpu_link_add(t, a, b, w);
}

static int take_class(struct reader *r)
{
    const enum hkt_class  class = class_of(find(r, "name"));
    const char           *latency = find(r, "latency"), *gap = find(r, "gap"), *rate = find(r, "rate");
    struct hkt_class_cost cost;

    if (r->t->open != 0)
        return complain(r, "a class stands in the machine, not in a host", "");
    if (r->attributes != 4 || class == HKT_CLASSES || !latency || !hkt_value_seconds(latency, &cost.latency) || !gap ||
        !hkt_value_seconds(gap, &cost.gap) || !rate || !hkt_value_rate(rate, &cost.bandwidth) || cost.bandwidth <= 0)
        return complain(r, "a class has name (one of those in docs/topology.md), latency, gap (such as 2us) and rate (such as 47GB/s)", "");
    r->t->cost[class] = cost;
    return HKT_OK;
}

/* The root is there from hkt_topology_begin() on. */
static int take_machine(struct reader *r)
{
    const char *format = find(r, "format");
    int         number;

    if (r->t->open >= 0 || r->attributes != 1 || !format || !hkt_value_integer(format, 1, 1 << 20, &number))
        return complain(r, "the file is one machine with the attribute format", "");
    if (number > FORMAT)
        return complain(r, "the format is newer than this version of Hocket knows: ", format);
    return hkt_topology_begin(r->t) < 0 ? HKT_ERR_MEMORY : HKT_OK;
}

static int take_object(struct reader *r, enum hkt_object_kind kind)
{
    const char *why = hkt_object_refused(r->t, kind);
    int         o;

    if (why)
        return complain(r, why, "");
    HKT_TRY(o = hkt_object_open(r->t, kind));
    for (int i = 0; i < r->attributes; i++) {
        char text[HKT_VALUE_TEXT + 64];

        why = hkt_attribute_set(&r->t->object[o], r->attribute[i].name, r->attribute[i].value);
        snprintf(text, sizeof(text), "%s %s=\"%s\": ", r->element, r->attribute[i].name, r->attribute[i].value);
        if (why)
            return complain(r, text, why);
    }
    return HKT_OK;
}

static int take(struct reader *r, bool empty)
{
    const bool link = strcmp(r->element, "link") == 0, class = strcmp(r->element, "class") == 0;

    if (link || class) {
        if (!empty)
            return complain(r, "link and class are empty elements, ended by \"/>\"", "");
        return r->t->open < 0 ? complain(r, "the file begins with a machine", "") : link ? take_link(r) : take_class(r);
    }
    for (int kind = 0; kind < HKT_OBJECT_KINDS; kind++) {
        if (strcmp(r->element, hkt_object_name[kind]) != 0)
            continue;
        if (kind == HKT_OBJECT_MACHINE)
            return take_machine(r);
        if (r->t->open < 0)
            return complain(r, "the file begins with a machine", "");
        HKT_TRY(take_object(r, (enum hkt_object_kind)kind));
        if (empty)
            hkt_object_close(r->t);
        return HKT_OK;
    }
    return complain(r, "no element is called ", r->element);
}

/* Behind "</". 1: that was the machine's end. */
static int take_end(struct reader *r)
{
    struct hkt_topology *t = r->t;

    if (!read_name(r, r->element) || (skip_space(r), !next_is(r, ">")))
        return complain(r, "the name of an element and '>' are expected after \"</\"", "");
    r->at++;
    if (t->open < 0 || strcmp(r->element, hkt_object_name[t->object[t->open].kind]) != 0)
        return complain(r, "the element that ends here is another one: ", t->open < 0 ? "none" : hkt_object_name[t->object[t->open].kind]);
    if (t->open == 0)
        return 1;
    hkt_object_close(t);
    return 0;
}

static int read_document(struct reader *r)
{
    if (next_is(r, "\xef\xbb\xbf"))
        r->at += 3;
    if (next_is(r, "<?xml") && !skip_past(r, "?>"))
        return complain(r, "the first line has no end", "");
    for (int ended = 0, rc;;) {
        skip_space(r);
        if (next_is(r, "<!--")) {
            if (!skip_past(r, "-->"))
                return complain(r, "a comment has no end", "");
            continue;
        }
        if (r->at == r->end)
            return ended ? HKT_OK : complain(r, "the file ends inside the machine", "");
        if (ended || *r->at != '<')
            return complain(r, ended ? "something stands after the machine" : "text stands between elements", "");
        r->at++;
        if (next_is(r, "/")) {
            r->at++;
            HKT_TRY(ended = take_end(r));
        } else {
            HKT_TRY(rc = read_tag(r));
            HKT_TRY(take(r, rc));
        }
    }
}

int hkt_topology_parse(struct hkt_topology *t, const char *xml, size_t size, const char *name)
{
    struct reader r = {.t = t, .name = name, .begin = xml, .at = xml, .end = xml + size};
    int           rc;

    memset(t, 0, sizeof(*t));
    t->open = -1;
    rc      = read_document(&r);
    if (!rc)
        rc = hkt_topology_finish(t);
    if (rc)
        hkt_topology_free(t);
    return rc;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* The whole file in *text, with a 0 behind it; the caller frees it. Its size, or an error. */
static ssize_t read_file(const char *path, char **text)
{
    const int fd   = open(path, O_RDONLY | O_CLOEXEC);
    size_t    size = 0, room = 1 << 16;
    ssize_t   n = 1;

    *text = fd < 0 ? NULL : hkt_alloc(room);
    while (*text && n > 0 && size < FILE_MOST) {
        char *larger = size + 1 < room ? *text : hkt_realloc(*text, room *= 2);

        if (!larger)
            break;
        *text = larger;
        while ((n = read(fd, larger + size, room - 1 - size)) < 0 && errno == EINTR)
            continue;
        size += n > 0 ? (size_t)n : 0;
    }
    if (*text && n == 0) {
        (*text)[size] = 0;
        close(fd);
        return (ssize_t)size;
    }
    if (fd < 0 || n < 0)
        n = hkt_fail(HKT_ERR_ARGUMENT, "the machine in %s cannot be read: %s", path, strerror(errno));
    else if (size >= FILE_MOST)
        n = hkt_fail(HKT_ERR_ARGUMENT, "the machine in %s has more than %d MiB", path, FILE_MOST >> 20);
    else
        n = HKT_ERR_MEMORY;
    if (fd >= 0)
        close(fd);
    hkt_free(*text);
    return n;
}

int hkt_topology_file(struct hkt_topology *t, const char *path)
{
    char         *text, *other;
    const ssize_t size = read_file(path, &text);
    int           rc;

    memset(t, 0, sizeof(*t));
    if (size < 0)
        return (int)size;
    other = strstr(text, "<topology");
    if (other && other - text < 1024 && !memmem(text, (size_t)(other - text), "<machine", 8))
        rc = hkt_topology_hwloc(t, text, (size_t)size, path);
    else
        rc = hkt_topology_parse(t, text, (size_t)size, path);
    hkt_free(text);
    return rc;
}

static void write_value(FILE *f, const char *name, const char *value)
{
    fprintf(f, " %s=\"", name);
    for (; *value; value++) {
        const char *text = NULL;

        for (int i = 0; i < ENTITIES; i++)
            if (*value == entity[i].character)
                text = entity[i].text;
        if (text)
            fputs(text, f);
        else
            fputc(*value, f);
    }
    fputc('"', f);
}

static void write_classes(FILE *f, const struct hkt_topology *t)
{
    char latency[HKT_VALUE_TEXT], gap[HKT_VALUE_TEXT], rate[HKT_VALUE_TEXT];

    for (int c = 0; c < HKT_CLASSES; c++)
        if (memcmp(&t->cost[c], &hkt_class_default[c], sizeof(t->cost[c])) != 0)
            fprintf(f, "  <class name=\"%s\" latency=\"%s\" gap=\"%s\" rate=\"%s\"/>\n", hkt_class_name[c],
                    hkt_text_seconds(t->cost[c].latency, latency), hkt_text_seconds(t->cost[c].gap, gap),
                    hkt_text_rate(t->cost[c].bandwidth, false, rate));
}

static void write_links(FILE *f, const struct hkt_topology *t, int host)
{
    char rate[HKT_VALUE_TEXT];

    for (int w = 0; w < t->wires; w++) {
        const struct hkt_object *a = &t->object[t->wire[w].a], *b = &t->object[t->wire[w].b];

        if (t->wire[w].a < host || t->wire[w].a >= t->object[host].end)
            continue;
        fprintf(f, "    <link a=\"%s%d\" b=\"%s%d\" class=\"%s\"", hkt_object_name[a->kind], a->number, hkt_object_name[b->kind],
                b->number, hkt_class_name[t->wire[w].class]);
        if (t->wire[w].bandwidth > 0)
            write_value(f, "rate", hkt_text_rate(t->wire[w].bandwidth, false, rate));
        fprintf(f, "/>\n");
    }
}

/* At most HKT_OBJECTS_DEPTH calls deep. Links stand at the end of their host. */
static void write_object(FILE *f, const struct hkt_topology *t, int object, int depth)
{
    const struct hkt_object *o = &t->object[object];
    const char              *name;
    char                     value[HKT_VALUE_TEXT];

    fprintf(f, "%*s<%s", 2 * depth, "", hkt_object_name[o->kind]);
    if (o->kind == HKT_OBJECT_MACHINE)
        fprintf(f, " format=\"%d\"", FORMAT);
    for (int i = 0; (name = hkt_attribute_get(o, i, value)); i++)
        if (value[0])
            write_value(f, name, value);
    if (o->end == object + 1 && o->kind != HKT_OBJECT_HOST) {
        fprintf(f, "/>\n");
        return;
    }
    fprintf(f, ">\n");
    if (o->kind == HKT_OBJECT_MACHINE)
        write_classes(f, t);
    for (int below = object + 1; below < o->end; below = t->object[below].end)
        write_object(f, t, below, depth + 1);
    if (o->kind == HKT_OBJECT_HOST)
        write_links(f, t, object);
    fprintf(f, "%*s</%s>\n", 2 * depth, "", hkt_object_name[o->kind]);
}

int hkt_topology_save(const struct hkt_topology *t, const char *path)
{
    char        temporary[4096];
    struct stat is;
    const bool  aside = stat(path, &is) || S_ISREG(is.st_mode); /* a terminal or a pipe is written into, not replaced */
    FILE       *f;
    bool        whole;

    if (snprintf(temporary, sizeof(temporary), aside ? "%s.%d.tmp" : "%s", path, (int)getpid()) >= (int)sizeof(temporary))
        return hkt_fail(HKT_ERR_ARGUMENT, "the machine cannot be saved: the path is too long");
    f = fopen(temporary, "we");
    if (!f)
        return hkt_fail(HKT_ERR_SYSTEM, "the machine cannot be saved as %s: %s", path, strerror(errno));
    fprintf(f, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    write_object(f, t, 0, 0);
    whole = !ferror(f);
    whole = fclose(f) == 0 && whole && (!aside || rename(temporary, path) == 0);
    if (whole)
        return HKT_OK;
    if (aside)
        unlink(temporary);
    return hkt_fail(HKT_ERR_SYSTEM, "the machine cannot be saved as %s: %s", path, strerror(errno));
}
