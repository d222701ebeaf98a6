/* plan_machine.c -- which machine to plan for: a preset, a file of `key = value` lines, this computer measured, and on
 * top of any of them the flags.
 */
#include "plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Keys of a file and the fields they set; `link` lines stand apart. */
static double *field_of(hkt_plan_machine_t *m, const char *key)
{
    const struct {
        const char *key;
        double     *field;
    } fields[] = {{"memory", &m->memory},   {"peak", &m->peak},     {"achieved", &m->achieved}, {"half", &m->half},
                  {"traffic", &m->traffic}, {"launch", &m->launch}, {"host", &m->host},         {"update", &m->update}};

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (strcmp(fields[i].key, key) == 0)
            return fields[i].field;
    return NULL;
}

/* Names that a file or a flag has given: the machine points here. */
static char names[HKT_PLAN_LINKS + 1][32];

static const char *keep(int slot, const char *name)
{
    snprintf(names[slot], sizeof(names[slot]), "%s", name);
    return names[slot];
}

/* "NAME SPAN BYTES/S SECONDS", whose parts stand between any of `between`. */
static bool parse_link(hkt_plan_machine_t *m, char *text, const char *between, double bandwidth_unit,
                       double latency_unit)
{
    char            *part[4], *rest = NULL, *end[3];
    int              n = 0;
    hkt_plan_link_t *l;

    for (char *word = strtok_r(text, between, &rest); word; word = strtok_r(NULL, between, &rest)) {
        if (n == 4)
            return false;
        part[n++] = word;
    }
    if (n != 4 || m->links == HKT_PLAN_LINKS)
        return false;
    l            = &m->link[m->links];
    l->span      = (int)strtol(part[1], &end[0], 10);
    l->bandwidth = strtod(part[2], &end[1]) * bandwidth_unit;
    l->latency   = strtod(part[3], &end[2]) * latency_unit;
    if (*end[0] || *end[1] || *end[2])
        return false;
    l->name = keep(m->links++, part[0]);
    return true;
}

static void read_line(hkt_plan_machine_t *m, char *line, int number, const char *path, const struct flags *flags)
{
    char   *equals = strchr(line, '='), *value, *end;
    char    key[32];
    double *field;

    line[strcspn(line, "#\n")] = 0;
    if (line[strspn(line, " \t")] == 0)
        return;
    if (!equals || sscanf(line, " %31[a-z]", key) != 1)
        flags_fail(flags, "%s:%d: \"key = value\" is expected, \"%s\" found", path, number, line);
    value = equals + 1 + strspn(equals + 1, " \t");
    if (strcmp(key, "name") == 0) {
        value[strcspn(value, " \t")] = 0;
        m->name                      = keep(HKT_PLAN_LINKS, value);
        return;
    }
    if (strcmp(key, "link") == 0) {
        if (!parse_link(m, value, " \t", 1, 1))
            flags_fail(flags, "%s:%d: link = NAME SPAN BYTES/S SECONDS is expected, at most %d times", path, number,
                       HKT_PLAN_LINKS);
        return;
    }
    if (strcmp(key, "point") == 0) {
        hkt_plan_point_t *p = &m->point[m->points];

        if (m->points == HKT_PLAN_POINTS || sscanf(value, "%lf %lf", &p->tokens, &p->slower) != 2)
            flags_fail(flags, "%s:%d: point = TOKENS FACTOR is expected, at most %d times", path, number,
                       HKT_PLAN_POINTS);
        m->points++;
        return;
    }
    field = field_of(m, key);
    if (!field)
        flags_fail(flags,
                   "%s:%d: no key is called \"%s\" (name, memory, peak, achieved, half, traffic, launch, host, update, "
                   "link, point)",
                   path, number, key);
    *field = strtod(value, &end);
    if (end == value || end[strspn(end, " \t")])
        flags_fail(flags, "%s:%d: %s: a number is expected, \"%s\" found", path, number, key, value);
}

static void read_file(hkt_plan_machine_t *m, const char *path, const struct flags *flags)
{
    FILE *file = fopen(path, "re");
    char  line[256];

    if (!file)
        flags_fail(flags, "--machine-file %s: %s", path, strerror(errno));
    *m = (hkt_plan_machine_t){.name = path};
    for (int number = 1; fgets(line, sizeof(line), file); number++)
        read_line(m, line, number, path, flags);
    fclose(file);
}

void plan_machine(hkt_plan_machine_t *m, const struct plan_machine_flags *asked, const struct flags *flags)
{
    if (asked->file)
        read_file(m, asked->file, flags);
    else if (strcmp(asked->name, "cpu-this") == 0 ? plan_measure(m) : hkt_plan_machine(m, asked->name))
        flags_fail(flags, "--machine %s: %s; cpu-this measures this computer", asked->name, hkt_last_error());
    if (asked->memory > 0)
        m->memory = asked->memory * (1 << 30);
    if (asked->peak > 0)
        m->peak = asked->peak * 1e12;
    if (asked->achieved > 0)
        m->achieved = asked->achieved * 1e12;
    if (asked->node > 0 && m->links > 1)
        m->link[0].span = (int)asked->node;
    for (int i = 0; i < asked->link.count; i++) {
        char text[128];

        if (i == 0)
            m->links = 0;
        snprintf(text, sizeof(text), "%s", asked->link.item[i]);
        if (!parse_link(m, text, ":", 1e9, 1e-6))
            flags_fail(flags, "--link %s: NAME:SPAN:GB/s:us is expected, at most %d times, the last with span 0",
                       asked->link.item[i], HKT_PLAN_LINKS);
    }
}

void plan_machine_write(FILE *out, const hkt_plan_machine_t *m)
{
    fprintf(out,
            "# A device: bytes that a plan may use, FLOP/s advertised and reached by large products, their half "
            "dimension,\n"
            "# bytes/s of its memory, seconds to start a kernel, bytes/s to memory outside (0: none).\n"
            "name = %s\nmemory = %.4g\npeak = %.4g\nachieved = %.4g\nhalf = %.4g\ntraffic = %.4g\nlaunch = %.3g\nhost "
            "= %.4g\n"
            "# Links, fastest first: name, devices joined (0: all), bytes/s of a device, seconds of a message.\n",
            m->name, m->memory, m->peak, m->achieved, m->half, m->traffic, m->launch, m->host);
    for (int i = 0; i < m->links; i++)
        fprintf(out, "link = %s %d %.4g %.3g\n", m->link[i].name, m->link[i].span, m->link[i].bandwidth,
                m->link[i].latency);
    if (m->points)
        fprintf(out,
                "# Steps that were tried: tokens of a micro-batch, times the formulas' seconds; the optimizer's.\n"
                "update = %.4g\n",
                m->update);
    for (int i = 0; i < m->points; i++)
        fprintf(out, "point = %.6g %.4g\n", m->point[i].tokens, m->point[i].slower);
}
