/* topology_leaves.c -- which leaf switch every NIC is plugged into, from a table of lines "HOST NIC SWITCH". See topology.h. No host can find
 * that out by itself; whoever runs the network knows it. */
#include "topology.h"

#include "base/error.h"
#include "base/memory.h"
#include "hocket.h"
#include "setup/topology_value.h"

#include <string.h>

enum { WORDS = 3 };

struct table {
    struct hkt_topology *t;
    char (*name)[HKT_NAME_BYTES]; /* of the switches, by number */
    int switches, room;
};

/* "*", the object's name, or its number. */
static bool means(const char *word, const struct hkt_object *o)
{
    int number;

    return strcmp(word, "*") == 0 || strcmp(word, o->name) == 0 || (hkt_value_integer(word, 0, HKT_OBJECTS_MOST, &number) && number == o->number);
}

/* The number of the switch, a new one when its name is new. */
static int number_of(struct table *table, const char *name)
{
    for (int i = 0; i < table->switches; i++)
        if (strcmp(table->name[i], name) == 0)
            return i;
    if (table->switches == table->room) {
        const int more = table->room ? 2 * table->room : 64;
        void     *larger = hkt_realloc(table->name, (size_t)more * sizeof(*table->name));

        if (!larger)
            return HKT_ERR_MEMORY;
        table->name = larger;
        table->room = more;
    }
    memcpy(table->name[table->switches], name, strlen(name) + 1);
    return table->switches++;
}

/* The words of a line, each shorter than a name may be. Their number; -1: too many, or too long. */
static int split(const char *line, size_t length, char word[WORDS][HKT_NAME_BYTES])
{
    int n = 0;

    for (size_t at = 0;;) {
        size_t size = 0;

        while (at < length && strchr(" \t\r", line[at]))
            at++;
        if (at == length || line[at] == '#')
            return n;
        while (at + size < length && !strchr(" \t\r", line[at + size]))
            size++;
        if (n == WORDS || size >= HKT_NAME_BYTES)
            return -1;
        memcpy(word[n], line + at, size);
        word[n++][size] = 0;
        at += size;
    }
}

/* Plugs in all that the line means; how many they are. */
static int plug(struct table *table, char word[WORDS][HKT_NAME_BYTES])
{
    struct hkt_topology *t = table->t;
    const int            leaf = number_of(table, word[2]);
    int                  count = 0;

    if (leaf < 0)
        return leaf;
    for (int host = 1; host < t->objects; host = t->object[host].end)
        for (int o = host; means(word[0], &t->object[host]) && o < t->object[host].end; o++)
            if (t->object[o].kind == HKT_OBJECT_NIC && means(word[1], &t->object[o])) {
                t->object[o].leaf = leaf;
                count++;
            }
    return count;
}

int hkt_topology_leaves(struct hkt_topology *t, const char *text, const char *name)
{
    struct table table  = {.t = t};
    int          number = 1, rc = 0;

    for (const char *line = text; *line && rc >= 0; number++) {
        const size_t length = strcspn(line, "\n");
        char         word[WORDS][HKT_NAME_BYTES];
        const int    n = split(line, length, word);

        if (n == WORDS)
            rc = plug(&table, word);
        if ((n && n != WORDS) || (n == WORDS && rc == 0))
            rc = hkt_fail(HKT_ERR_ARGUMENT, "%s:%d: %s", name, number,
                          n == WORDS ? "no NIC of the machine is meant by this line"
                                     : "a host, a NIC ('*' for all) and a leaf switch are expected, each shorter than 32 bytes");
        line += length + (line[length] == '\n');
    }
    hkt_free(table.name);
    return rc < 0 ? rc : HKT_OK;
}
