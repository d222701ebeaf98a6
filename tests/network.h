/* network.h -- three hosts made of network namespaces: the calling process is in host a; hosts b and c are namespaces held by children. They have
 * nothing but their loopback until network_run() makes more. Needs root (or the like), ip(8) and nsenter(1).
 */
#ifndef TEST_NETWORK_H
#define TEST_NETWORK_H

#include <stdbool.h>

/* Makes them; false, and a line that says why, where that is not allowed. The children end with the calling process. */
bool network_open(void);

/* Runs a shell command in a host; the test fails when the command does. */
void network_run(char host, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The calling process goes there, and calls itself so. */
void network_enter(char host);

/* A cable from host a to another: interface `name` on both, without addresses, up. */
void network_cable(char host, const char *name);

#endif
