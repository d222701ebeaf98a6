/* transport.c -- the table of transports, from TRANSPORT_SOURCES in Makefile.am. */
#include "net/transport.h"

#define X(name) extern const struct hkt_transport hkt_transport_##name;
#include "transports.list"
#undef X

const struct hkt_transport *const hkt_transports[] = {
#define X(name) &hkt_transport_##name,
#include "transports.list"
#undef X
    NULL};
