/* info_launcher.c -- hkt-info --launcher: which launcher hkt_comm_init_env() would use here, why, and what the environment says to it.
 * Only looks: nothing is said to any server. */
#include "info.h"
#include "setup/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What must not end in a bug report. */
static bool is_secret(const char *variable)
{
    return strcmp(variable, "HKT_ID") == 0 || strcmp(variable, "HKT_SECRET") == 0;
}

static void print_variables(const char *names)
{
    char name[64];

    for (; *names; names += strspn(names, " ")) {
        const size_t n = strcspn(names, " ");
        const char  *value;

        snprintf(name, sizeof(name), "%.*s", (int)n, names);
        value = getenv(name);
        printf("    %-28s %s\n", name, !value ? "-" : is_secret(name) ? "(set)" : value);
        names += n;
    }
}

int info_launcher(void)
{
    const struct hkt_launcher *found = hkt_launcher_find();

    for (int i = 0; i < hkt_launcher_count; i++) {
        const struct hkt_launcher *l = &hkt_launchers[i];

        printf("%-10s %-8s present when %s\n", l->name, l == found ? "is used" : l->present() ? "present" : "absent", l->mark);
        if (l == found)
            print_variables(l->variables);
    }
    if (!found)
        printf("%-10s %-8s hkt_comm_init_env() makes a communicator of one rank\n", "none", "is used");
    return 0;
}
