/* topology_value.h -- what stands in the attributes of a machine's objects as text: quantities with their unit, and one table of which
 * kind has which. Shared by the two ways to write a machine down (topology_xml.c, topology_text.c) and by what prints one. */
#ifndef HKT_TOPOLOGY_VALUE_H
#define HKT_TOPOLOGY_VALUE_H

#include "setup/topology.h"

enum { HKT_VALUE_TEXT = 64 };

/* "512KiB", "1.5GB"; "400Gb/s", "47GB/s"; "2us". The units are powers of 1000, with an i of 1024. False: it is none, or not from 0 to 2^60. */
bool hkt_value_bytes(const char *text, uint64_t *bytes);
bool hkt_value_rate(const char *text, double *bytes_per_second);
bool hkt_value_seconds(const char *text, double *seconds);
bool hkt_value_integer(const char *text, int low, int high, int *value);

/* The same the other way, exact or to 12 digits; `bits`: in bits, as networks have it. */
const char *hkt_text_bytes(uint64_t bytes, char text[HKT_VALUE_TEXT]);
const char *hkt_text_rate(double bytes_per_second, bool bits, char text[HKT_VALUE_TEXT]);
const char *hkt_text_seconds(double seconds, char text[HKT_VALUE_TEXT]);

/* Copies a name or PCI address that may go into an object: shorter than HKT_NAME_BYTES, without control characters. False: it may not, and
 * nothing is changed. */
bool hkt_value_name(const char *text, char name[HKT_NAME_BYTES]);

/* Sets an attribute by its name. NULL: done; else why not, as "such as 80GiB" or the names that the kind has. */
const char *hkt_attribute_set(struct hkt_object *o, const char *name, const char *value);

/* The i-th attribute of the table (in the order to write them in): its name, and its value in `text`, "" when the object does not have it.
 * NULL: there is none. */
const char *hkt_attribute_get(const struct hkt_object *o, int i, char text[HKT_VALUE_TEXT]);

#endif
