/* agree.c -- see agree.h. Requests are compared as text, so that the message can show the two that differ. */
#include <parallel/agree.h>

#include <string.h>

struct proposal {
    int32_t code;
    char    request[256];
};

static int compare(const struct proposal *all, int n, int rank, const char *call)
{
    for (int r = 0; r < n; r++)
        if (all[r].code && r != rank)
            return hkt_error_set(all[r].code, "%s: rank %d has an error, so no rank goes on; it says which", call, r);
    for (int r = 1; r < n; r++)
        if (strcmp(all[r].request, all[0].request))
            return hkt_error_set(HKT_ERR_MISMATCH,
                                 "%s: rank 0 asks for %s, rank %d for %s; all ranks must ask for the same", call,
                                 all[0].request, r, all[r].request);
    return HKT_OK;
}

int hkt_agree(hkt_comm_t *comm, int rc, const char *call, const char *request)
{
    struct proposal mine = {.code = rc};
    char            sentence[1024];
    void           *all = NULL;
    int             n, rank, code;

    snprintf(sentence, sizeof(sentence), "%s", hkt_last_error());
    snprintf(mine.request, sizeof(mine.request), "%s", request);
    TRY(hkt_comm_size(comm, &n));
    TRY(hkt_comm_rank(comm, &rank));
    TRY(hkt_ledger_take(&all, (size_t)n * sizeof(mine), HKT_BYTES_OTHER, false, NULL));
    code = hkt_all_gather(&mine, all, sizeof(mine), HKT_UINT8, comm, NULL);
    if (!code && !rc)
        code = compare(all, n, rank, call);
    (void)hkt_ledger_give(all, NULL);
    return rc ? hkt_error_set(rc, "%s", sentence) : code;
}
