/* planner_presets.c -- models and machines by name. Models are the published ones; of a machine, `memory`, `peak` and
 * the bandwidths come from its data sheet less what never can be had (context, fragmentation, headers), and `achieved`
 * is what large products are known to reach.
 */
#include <parallel/planner.h>

#include <string.h>

/* GPT as Megatron's papers have it: tied, learned positions, biases, dropout, unblocked attention. */
#define MEGATRON(name, heads, hidden, layers)                                                                          \
    {                                                                                                                  \
        name, layers, hidden, heads, heads, 4 * (hidden), 51200, 128, 2048, 2048, true, false, true, false, true,      \
            false                                                                                                      \
    }

static const hkt_plan_model_t models[] = {
    {"gpt2-124m", 12, 768, 12, 12, 3072, 50257, 128, 1024, 1024, true, false, true, false, true, false},
    {"gpt2-1.5b", 48, 1600, 25, 25, 6400, 50257, 128, 1024, 1024, true, false, true, false, true, false},
    MEGATRON("1.7b", 24, 2304, 24),
    MEGATRON("3.6b", 32, 3072, 30),
    MEGATRON("7.5b", 32, 4096, 36),
    MEGATRON("18.4b", 48, 6144, 40),
    MEGATRON("39.1b", 64, 8192, 48),
    MEGATRON("76.1b", 80, 10240, 60),
    MEGATRON("145.6b", 96, 12288, 80),
    MEGATRON("310.1b", 128, 16384, 96),
    MEGATRON("529.6b", 128, 20480, 105),
    MEGATRON("1t", 160, 25600, 128),
    MEGATRON("22b", 64, 6144, 48),
    MEGATRON("175b", 96, 12288, 96),
    {"bloom-176b", 70, 14336, 112, 112, 57344, 250880, 128, 2048, 0, true, false, true, true, false, false},
    {"llama-7b", 32, 4096, 32, 32, 11008, 32000, 128, 4096, 0, false, true, false, false, false, true},
    {"llama-70b", 80, 8192, 64, 8, 28672, 32000, 128, 4096, 0, false, true, false, false, false, true},
    {"llama-405b", 126, 16384, 128, 8, 53248, 128256, 128, 8192, 0, false, true, false, false, false, true},
};

static const hkt_plan_machine_t machines[] = {
    {"a100-80g-dgx",
     78e9,
     312e12,
     265e12,
     128,
     1.55e12,
     4e-6,
     12e9,
     2,
     {{"nvlink", 8, 235e9, 6e-6}, {"infiniband", 0, 22e9, 12e-6}},
     0,
     {{0, 0}},
     0},
    /* BLOOM's: four Omni-Path links for the eight devices of a node */
    {"a100-80g-opa",
     78e9,
     312e12,
     265e12,
     128,
     1.55e12,
     4e-6,
     12e9,
     2,
     {{"nvlink", 8, 235e9, 6e-6}, {"omni-path", 0, 5.5e9, 15e-6}},
     0,
     {{0, 0}},
     0},
    {"h100-dgx",
     78e9,
     989e12,
     680e12,
     256,
     2.5e12,
     4e-6,
     24e9,
     2,
     {{"nvlink", 8, 370e9, 6e-6}, {"infiniband", 0, 45e9, 12e-6}},
     0,
     {{0, 0}},
     0},
    {"h200",
     140e9,
     989e12,
     680e12,
     256,
     3.7e12,
     4e-6,
     24e9,
     2,
     {{"nvlink", 8, 370e9, 6e-6}, {"infiniband", 0, 45e9, 12e-6}},
     0,
     {{0, 0}},
     0},
    {"v100",
     31e9,
     125e12,
     95e12,
     128,
     0.75e12,
     5e-6,
     6e9,
     2,
     {{"nvlink", 8, 120e9, 8e-6}, {"infiniband", 0, 5.5e9, 15e-6}},
     0,
     {{0, 0}},
     0},
    /* One core a device, its threads' memory shared: a rough figure; hkt-plan --machine cpu-this measures. */
    {"cpu", 2e9, 100e9, 80e9, 16, 8e9, 1e-6, 1e9, 1, {{"memory", 0, 4e9, 2e-6}}, 0, {{0, 0}}, 0},
};

enum { MODELS = sizeof(models) / sizeof(models[0]), MACHINES = sizeof(machines) / sizeof(machines[0]) };

const char *hkt_plan_model_name(int index)
{
    return index >= 0 && index < MODELS ? models[index].name : NULL;
}

const char *hkt_plan_machine_name(int index)
{
    return index >= 0 && index < MACHINES ? machines[index].name : NULL;
}

/* Index of a name; or the error with all names there are. */
static int find(const char *what, const char *name, const char *(*name_of)(int))
{
    char   list[512] = "";
    size_t n         = 0;

    for (int i = 0; name_of(i); i++) {
        if (name && strcmp(name_of(i), name) == 0)
            return i;
        if (n < sizeof(list))
            n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", i ? ", " : "", name_of(i));
    }
    return hkt_error_set(HKT_ERR_ARGUMENT, "there is no %s \"%s\"; those known are %s", what, name ? name : "(null)",
                         list);
}

int hkt_plan_model(hkt_plan_model_t *model, const char *name)
{
    const int i = find("model", name, hkt_plan_model_name);

    TRY(i);
    *model = models[i];
    return 0;
}

int hkt_plan_machine(hkt_plan_machine_t *machine, const char *name)
{
    const int i = find("machine", name, hkt_plan_machine_name);

    TRY(i);
    *machine = machines[i];
    return 0;
}

const char *hkt_recompute_name(int recompute)
{
    static const char *const names[] = {"none", "selective", "full"};

    return recompute >= 0 && recompute < HKT_RECOMPUTES ? names[recompute] : "?";
}

const char *hkt_plan_part_name(int part)
{
    static const char *const names[] = {"products", "memory traffic", "kernel starts", "TP", "CP", "PP",
                                        "DP",       "optimizer",      "bubble"};

    return part >= 0 && part < HKT_PLAN_PARTS ? names[part] : "?";
}
