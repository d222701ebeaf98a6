/* machines.h -- what the suites about machines share: recorded ones, text of what is found, random ones. */
#ifndef TEST_MACHINES_H
#define TEST_MACHINES_H

#include "setup/graph.h"

#include <stddef.h>

/* The recorded machines in tests/topologies: NAME.xml, and NAME.expected with what is found in it. */
extern const char *const recorded[];
enum { RECORDED = 6 };

/* A file of tests/topologies, read whole; the caller frees it. */
char *read_recorded(const char *name, const char *suffix, size_t *size);

/* The graph of so many ranks where hkt_graph_place() puts them (0: one for each GPU, else core). Fails the test when it cannot be made. */
void graph_of(struct hkt_graph *g, const struct hkt_topology *t, int ranks);

/* The same from a line of text. */
void machine_of(struct hkt_topology *t, const char *text);

/* Both as text; the caller frees it. */
char *print_machine(const struct hkt_topology *t);
char *print_graph(const struct hkt_graph *g);

/* The XML that would be saved; the caller frees it. */
char *xml_of(const struct hkt_topology *t, size_t *size);

/* Fails the test unless rings and trees are what they say: permutations with hosts in one piece, trees over all ranks. */
void check_graph(const struct hkt_graph *g);

#endif
