/* run_output.h -- what the ranks print: through pipes, line by line, each line behind the rank's number (hkt-run
 * --tag).
 *
 * Nothing here blocks: a reader that is slow makes the ranks wait, as without hkt-run, but never the launcher, which
 * must see signals and dying ranks. stdout and stderr stay apart. Lines are never mixed and nothing is lost; a line
 * longer than 1 MiB is cut, and a carriage return ends a line too, so that progress bars move.
 */
#ifndef HKT_RUN_OUTPUT_H
#define HKT_RUN_OUTPUT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

struct run_output;

struct run_output *run_output_open(int ranks); /* NULL with errno */

/* In the child: stdout and stderr of rank `rank` become its pipes. */
void run_output_attach(const struct run_output *out, int rank);

/* In the launcher, when the rank has been started. */
void run_output_started(struct run_output *out, int rank);

/* Fills at most run_output_polls() entries and returns how many; run_output_serve() takes them back after poll(). */
size_t run_output_polls(const struct run_output *out);
size_t run_output_poll(struct run_output *out, struct pollfd *fds);
void   run_output_serve(struct run_output *out, const struct pollfd *fds, size_t count);

/* Takes everything that rank has written, up to now, and ends its last line. */
void run_output_drain(struct run_output *out, int rank);

/* A line of the launcher itself, to stderr, in order with the others. */
void run_output_say(struct run_output *out, const char *line);

/* Writes what is left, waiting as long as the reader takes, and frees. */
void run_output_close(struct run_output *out);

#endif
