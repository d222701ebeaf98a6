/* capability.c -- lines that must be equal, words that may differ. See capability.h. */
#include "capability.h"

#include "base/error.h"
#include "base/option.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const char *const equal_options[] = {"HKT_ALGORITHM", "HKT_STAGING"}; /* they decide what ranks expect of each other */

static pthread_mutex_t         lock = PTHREAD_MUTEX_INITIALIZER;
static struct hkt_capabilities added; /* by the layers above */

/* Takes a line that begins with "name=" out of a text. */
static void drop_line(char *text, const char *name)
{
    const size_t n = strlen(name);

    for (char *line = text; *line; line += strcspn(line, "\n") + 1)
        if (strncmp(line, name, n) == 0 && line[n] == '=') {
            char *const next = line + strcspn(line, "\n") + 1;

            memmove(line, next, strlen(next) + 1);
            return;
        }
}

int hkt_capability_must(const char *name, const char *value)
{
    int    rc = 0;
    size_t at;

    pthread_mutex_lock(&lock);
    drop_line(added.must, name);
    at = strlen(added.must);
    if (at + strlen(name) + strlen(value) + 3 > sizeof(added.must))
        rc = hkt_fail(HKT_ERR_ARGUMENT, "there is no room for the capability %s=%s", name, value);
    else
        snprintf(added.must + at, sizeof(added.must) - at, "%s=%s\n", name, value);
    pthread_mutex_unlock(&lock);
    return rc;
}

int hkt_capability_may(const char *name)
{
    int    rc = 0;
    size_t at;

    pthread_mutex_lock(&lock);
    at = strlen(added.may);
    if (hkt_capabilities_have(added.may, name))
        rc = 0;
    else if (at + strlen(name) + 2 > sizeof(added.may))
        rc = hkt_fail(HKT_ERR_ARGUMENT, "there is no room for the capability %s", name);
    else
        snprintf(added.may + at, sizeof(added.may) - at, "%s ", name);
    pthread_mutex_unlock(&lock);
    return rc;
}

void hkt_capabilities_own(struct hkt_capabilities *own)
{
    size_t at;

    pthread_mutex_lock(&lock);
    *own = added;
    pthread_mutex_unlock(&lock);
    at = strlen(own->must);
    hkt_options();
    for (size_t i = 0; i < hkt_option_count; i++)
        for (size_t k = 0; k < sizeof(equal_options) / sizeof(equal_options[0]); k++)
            if (strcmp(hkt_option_table[i].name, equal_options[k]) == 0 && at + 80 < sizeof(own->must)) {
                char value[48]; /* a longer one differs within its beginning, or is not seen to */

                hkt_option_print(&hkt_option_table[i], value, sizeof(value));
                at += (size_t)snprintf(own->must + at, sizeof(own->must) - at, "%s=%s\n", equal_options[k], value);
            }
}

/* The value of the first `n` bytes of `name`, and its length; "" when there is none. */
static const char *value_of(const char *text, const char *name, int n, int *length)
{
    for (const char *line = text; *line; line += strcspn(line, "\n") + (line[strcspn(line, "\n")] == '\n'))
        if (strncmp(line, name, (size_t)n) == 0 && line[n] == '=') {
            *length = (int)strcspn(line + n + 1, "\n");
            return line + n + 1;
        }
    *length = 0;
    return "";
}

bool hkt_capabilities_differ(const struct hkt_capabilities *here, const struct hkt_capabilities *there, char *text, size_t size)
{
    for (int side = 0; side < 2; side++) /* a line that only one of them has counts as well */
        for (const char *line = side ? there->must : here->must; *line; line += strcspn(line, "\n") + (line[strcspn(line, "\n")] == '\n')) {
            const int         n = (int)strcspn(line, "=\n");
            int               na, nb;
            const char *const a = value_of(here->must, line, n, &na), *const b = value_of(there->must, line, n, &nb);

            if (na != nb || memcmp(a, b, (size_t)na) != 0) {
                snprintf(text, size, "%.*s is \"%.*s\" here and \"%.*s\" there", n, line, na, a, nb, b);
                return true;
            }
        }
    return false;
}

bool hkt_capabilities_have(const char may[HKT_MAY], const char *name)
{
    const size_t n = strlen(name);

    for (const char *w = may; *w; w += strcspn(w, " ") + (w[strcspn(w, " ")] == ' '))
        if (strncmp(w, name, n) == 0 && w[n] == ' ')
            return true;
    return false;
}

void hkt_capabilities_intersect(char may[HKT_MAY], const char other[HKT_MAY])
{
    char kept[HKT_MAY] = "", word[HKT_MAY];

    for (const char *w = may; *w; w += strcspn(w, " ") + (w[strcspn(w, " ")] == ' ')) {
        snprintf(word, sizeof(word), "%.*s", (int)strcspn(w, " "), w);
        if (hkt_capabilities_have(other, word)) {
            strcat(kept, word);
            strcat(kept, " ");
        }
    }
    memcpy(may, kept, HKT_MAY);
}
