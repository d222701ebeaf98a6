/* option.h -- every knob there is, as rows of one table: HKT_* environment variables.
 *
 * A knob is a row here or it does not exist. hkt-info prints the table, the man page is made from it, and a variable that starts
 * with HKT_ but is no row gets a warning with the nearest name. Values are read once, at the first call of the library.
 */
#ifndef HKT_OPTION_H
#define HKT_OPTION_H

#include <stddef.h>
#include <stdint.h>

/* X(NAME, field, kind, default, min, max, unit, sentence). Kinds: INTEGER and BYTES (K, M, G suffixes), SECONDS (double), TEXT and
 * SECRET (which is never shown; min and max unused), CHOICE (unit holds the words, separated by '|'; the value is the index). */
#define HKT_OPTION_LIST(X)                                                                                              \
    X(LOG, log, CHOICE, "error", 0, 3, "error|warn|info|debug", "How much is written to stderr.")                       \
    X(TIMEOUT, timeout, SECONDS, "600", 0, 1e9, "seconds",                                                              \
      "How long a call waits for a silent rank before it names it and fails; 0 waits for ever.")                        \
    X(INIT_TIMEOUT, init_timeout, SECONDS, "60", 0.1, 1e6, "seconds", "How long making a communicator waits for missing ranks.") \
    X(SPIN, spin_us, INTEGER, "50", 0, 1000000, "microseconds",                                                         \
      "How long a wait polls, when every rank has a core of its own, before it sleeps; between hosts since bytes moved.")    \
    X(ALGORITHM, algorithm, TEXT, "", 0, 0, "name or coll:name;...",                                                    \
      "Runs the named algorithm where it can run and keeps the order asked for, instead of the fastest.")                           \
    X(TUNING, tuning, TEXT, "", 0, 0, "file",                                                                           \
      "A table that says which algorithm runs what, over the cost model; all ranks need the same.")                      \
    X(ISA, isa, TEXT, "", 0, 0, "avx512, avx2 or portable", "Instruction set of the reduction kernels; empty: the best.") \
    X(STAGING, staging, BYTES, "1M", 65536, 1073741824, "bytes",                                                        \
      "Staging memory of a rank and communicator, made at first need, for buffers other ranks cannot touch.")           \
    X(CMA, cma, CHOICE, "on", 0, 1, "off|on", "Lets ranks read each other's plain memory with process_vm_readv where the system allows it.") \
    X(NONTEMPORAL, nontemporal, BYTES, "0", 0, 1ULL << 62, "bytes",                                                     \
      "Calls that move at least this much bypass the caches; 0: by the size of the caches, then by experience.")                         \
    X(IFNAME, ifname, TEXT, "", 0, 0, "names, with * and ?; ^ first: all but these",                                     \
      "Network interfaces that ranks on other hosts are met at, a list with commas; empty: those that answer.")          \
    X(SUBNET, subnet, TEXT, "", 0, 0, "address/bits,...",                                                               \
      "Subnets that ranks on other hosts are met in, IPv4 or IPv6; empty: all.")                                        \
    X(PORTS, ports, TEXT, "", 0, 0, "first-last", "TCP ports to listen at, for firewalls; empty: any free one.")        \
    X(NETWORK, network, TEXT, "", 0, 0, "name of a transport",                                                         \
      "The only network that is used to other hosts; empty: the first that both have.")                                 \
    X(HOST, host, TEXT, "", 0, 0, "name",                                                                               \
      "Processes with the same name share memory, others go by network; empty: by machine.")                            \
    X(MACHINE, machine, TEXT, "", 0, 0, "file or text",                                                                 \
      "The machine to work for, an XML file or a line as \"2 hosts; 8 gpus nvswitch\"; empty: this one.")               \
    X(SOCKETS, sockets, INTEGER, "0", 0, 16, "sockets",                                                                 \
      "TCP sockets for large messages from one process to another; 0: one per 25 Gbit/s of the fastest link.")          \
    X(VERBS_DEVICES, verbs_devices, TEXT, "", 0, 0, "names, with * and ?, or name:port",                                 \
      "RDMA devices that are used, a list with commas; empty: all with a port that is up.")                               \
    X(VERBS_GID, verbs_gid, INTEGER, "-1", -1, 255, "index",                                                           \
      "The address (GID) of RDMA ports that is used; -1: RoCE v2 first, IPv4 before IPv6, those of one subnet.")         \
    X(VERBS_QUEUES, verbs_queues, INTEGER, "4", 1, 16, "queue pairs", "RDMA queue pairs from one process to another, one of them for what is small.") \
    X(VERBS_CLASS, verbs_class, INTEGER, "-1", -1, 255, "traffic class",                                               \
      "Traffic class of RoCE packets; -1: what is set for the port, else 106.")                                        \
    X(VERBS_LEVEL, verbs_level, INTEGER, "0", 0, 15, "service level", "Service level of InfiniBand packets, priority of RoCE ones.") \
    X(VERBS_TIMEOUT, verbs_timeout, SECONDS, "2", 0.01, 60, "seconds",                                                 \
      "How long an RDMA path does not answer before another one is taken.")                                            \
    X(FAULT, fault, TEXT, "", 0, 0, "short=B,delay=N,drop=N,kill=N", "Makes the network worse on purpose, for tests: transports/fault.c.") \
    X(RANK, rank, INTEGER, "-1", -1, 1 << 30, "rank", "This process's rank, set by the launcher.")                      \
    X(SIZE, size, INTEGER, "-1", -1, 1 << 30, "ranks", "Number of ranks, set by the launcher.")                         \
    X(ID, id, SECRET, "", 0, 0, "256 hex digits", "The unique id of the job, set by hkt-run.")                          \
    X(ROOT, root, TEXT, "", 0, 0, "host:port",                                                                          \
      "Where rank 0 can be met, the same on every rank: for starting ranks by hand. Without HKT_RANK a launcher numbers them.")         \
    X(SECRET, secret, SECRET, "", 0, 0, "text",                                                                         \
      "Keeps strangers out where ranks meet by an address (HKT_ROOT, torchrun, Slurm): any text, the same on every rank.")              \
    X(RESTART, restart, INTEGER, "0", 0, 1000000, "attempt",                                                            \
      "Which attempt of the job this is, 0 for the first; set by hkt-run --restart, for the program to read.")

enum hkt_option_kind { HKT_OPTION_INTEGER, HKT_OPTION_BYTES, HKT_OPTION_SECONDS, HKT_OPTION_TEXT, HKT_OPTION_SECRET, HKT_OPTION_CHOICE };

typedef int64_t     hkt_value_INTEGER;
typedef int64_t     hkt_value_CHOICE;
typedef uint64_t    hkt_value_BYTES;
typedef double      hkt_value_SECONDS;
typedef const char *hkt_value_TEXT;
typedef const char *hkt_value_SECRET;

struct hkt_options {
#define HKT_OPTION_FIELD(NAME, field, kind, ...) hkt_value_##kind field;
    HKT_OPTION_LIST(HKT_OPTION_FIELD)
#undef HKT_OPTION_FIELD
};

struct hkt_option_row {
    const char          *name; /* "HKT_LOG" */
    enum hkt_option_kind kind;
    const char          *initial;
    double               min, max;
    const char          *unit, *doc;
    size_t               offset; /* into struct hkt_options */
};

extern const struct hkt_option_row hkt_option_table[];
extern const size_t                hkt_option_count;

/* The values; parses the environment the first time. Never NULL. A value that cannot be read or is out of range gets a warning that
 * names the range, and the default. Any thread. */
const struct hkt_options *hkt_options(void);

/* Writes the value in force as text (for hkt-info). */
void hkt_option_print(const struct hkt_option_row *row, char *text, size_t size);

#endif
