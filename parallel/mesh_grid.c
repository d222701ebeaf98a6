/* mesh_grid.c -- the pure part of the mesh: which ranks form which groups.
 *
 * Every axis has a stride, the product of the sizes of the faster axes, and a rank is the sum of its coordinates times
 * the strides. A group of a mask is what one gets by walking the axes of the mask and holding the others; both walks
 * are the same function, a number written in the mixed radix of some axes. So there is no list to keep, and any world
 * size costs nothing. */
#include <parallel/rules.h>

#include <string.h>

static const char *const axis_name[HKT_AXES] = {
    [HKT_AXIS_TP] = "tp", [HKT_AXIS_CP] = "cp", [HKT_AXIS_DP] = "dp", [HKT_AXIS_PP] = "pp"};

/* ---- making ------------------------------------------------------------------------------------------------------ */

static int axis_of(const char *word, size_t n)
{
    for (int a = 0; a < HKT_AXES; a++)
        if (strlen(axis_name[a]) == n && !memcmp(axis_name[a], word, n))
            return a;
    return -1;
}

/* The axes of the string, then those that it leaves out. */
static void read_order(hkt_grid_t *grid, const char *order, struct hkt_rules *rules)
{
    unsigned seen = 0;
    int      n    = 0;

    for (const char *at = order; at;) {
        const char  *end    = strchr(at, '-');
        const size_t length = end ? (size_t)(end - at) : strlen(at);
        const int    axis   = axis_of(at, length);

        if (axis < 0)
            hkt_rules_add(rules,
                          "\"%.*s\" in the order \"%.60s\" is no axis (valid: tp, cp, dp, pp, with '-' between them)",
                          (int)(length < 20 ? length : 20), at, order);
        else if (seen & 1u << axis)
            hkt_rules_add(rules, "the order \"%.60s\" names %s twice", order, axis_name[axis]);
        else
            grid->order[n++] = (hkt_axis_t)axis;
        seen |= axis < 0 ? 0 : 1u << axis;
        at = end ? end + 1 : NULL;
    }
    for (int a = 0; a < HKT_AXES; a++)
        if (!(seen & 1u << a)) {
            grid->order[n++] = (hkt_axis_t)a;
            if (grid->size[a] > 1)
                hkt_rules_add(rules, "the order \"%.60s\" leaves out %s, whose size is %d (valid: 1, or name it)",
                              order, axis_name[a], grid->size[a]);
        }
}

/* "1, 2, 4 for tp": the sizes of an axis with which the others fit the world. False, and nothing, where there is none.
 */
static bool valid_sizes(struct hkt_rules *rules, const hkt_grid_t *grid, hkt_axis_t axis, bool derived)
{
    int64_t others = 1;
    int     n      = 0;

    for (int a = 0; a < HKT_AXES; a++)
        others *= a == (int)axis || (derived && a == HKT_AXIS_DP) || others > grid->world ? 1 : grid->size[a];
    if (others > grid->world || grid->world % others)
        return false;
    for (int64_t k = 1; k <= grid->world / others; k++) /* with dp derived any divisor will do, else exactly the rest */
        if (derived ? grid->world / others % k == 0 : k == grid->world / others)
            hkt_rules_more(rules, "%s%lld", n++ ? ", " : "", (long long)k);
    hkt_rules_more(rules, " for %s; ", axis_name[axis]);
    return true;
}

static void check_world(hkt_grid_t *grid, bool derived, struct hkt_rules *rules)
{
    int64_t product = 1;
    bool    any     = false;

    for (int a = 0; a < HKT_AXES; a++)
        product *= (derived && a == HKT_AXIS_DP) || product > INT32_MAX ? 1 : grid->size[a];
    if (derived && product <= grid->world && grid->world % product == 0) {
        grid->size[HKT_AXIS_DP] = (int)(grid->world / product);
        return;
    }
    if (!derived && product == grid->world)
        return;
    hkt_rules_add(rules, "%s is %s%lld, which %s the %d ranks of the world (valid, each with the others as they are: ",
                  derived ? "tp * cp * pp" : "tp * cp * dp * pp", product > INT32_MAX ? "more than " : "",
                  (long long)product, derived ? "does not divide" : "is not", grid->world);
    for (int a = 0; a < HKT_AXES; a++)
        if (!(derived && a == HKT_AXIS_DP))
            any |= valid_sizes(rules, grid, (hkt_axis_t)a, derived);
    hkt_rules_more(rules, "%s)", any ? "dp 0 is derived" : "none, more than one has to change");
}

int hkt_grid_init(hkt_grid_t *grid, int world, const int size[HKT_AXES], const char *order)
{
    hkt_grid_t       made    = {.world = world};
    struct hkt_rules rules   = {0};
    const bool       derived = size && size[HKT_AXIS_DP] == 0;
    bool             sane    = world >= 1;
    int              stride  = 1;

    if (!grid || !size)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_grid_init: %s is NULL", grid ? "size" : "grid");
    if (world < 1)
        hkt_rules_add(&rules, "the world is %d ranks (valid: 1 or more)", world);
    for (int a = 0; a < HKT_AXES; a++) {
        made.size[a] = size[a];
        if (size[a] >= 1 || (derived && a == HKT_AXIS_DP))
            continue;
        sane = false;
        hkt_rules_add(&rules, "%s is %d (valid: 1 or more%s)", axis_name[a], size[a],
                      a == HKT_AXIS_DP ? ", or 0 for what is left" : "");
    }
    if (sane)
        check_world(&made, derived, &rules);
    read_order(&made, order ? order : "tp-cp-dp-pp", &rules);
    TRY(hkt_rules_end(&rules, "the mesh"));
    for (int i = 0; i < HKT_AXES; i++) {
        made.stride[made.order[i]] = stride;
        stride *= made.size[made.order[i]];
    }
    *grid = made;
    return HKT_OK;
}

/* ---- walking ----------------------------------------------------------------------------------------------------- */

static unsigned others(unsigned mask)
{
    return HKT_MASK_ALL & ~mask;
}

/* `number` in the mixed radix of the axes of a mask, the fastest first, as an offset in ranks. */
static int offset(const hkt_grid_t *grid, unsigned mask, int number)
{
    int at = 0;

    for (int i = 0; i < HKT_AXES; i++) {
        const hkt_axis_t a = grid->order[i];

        if (!(mask & 1u << a))
            continue;
        at += number % grid->size[a] * grid->stride[a];
        number /= grid->size[a];
    }
    return at;
}

/* The inverse: the coordinates of a rank on the axes of a mask as one number. */
static int number(const hkt_grid_t *grid, unsigned mask, int rank)
{
    int n = 0, radix = 1;

    for (int i = 0; i < HKT_AXES; i++) {
        const hkt_axis_t a = grid->order[i];

        if (!(mask & 1u << a))
            continue;
        n += rank / grid->stride[a] % grid->size[a] * radix;
        radix *= grid->size[a];
    }
    return n;
}

static int product(const hkt_grid_t *grid, unsigned mask)
{
    int n = 1;

    for (int a = 0; a < HKT_AXES; a++)
        n *= mask & 1u << a ? grid->size[a] : 1;
    return n;
}

static int check_mask(const char *call, const hkt_grid_t *grid, unsigned mask)
{
    if (!grid || grid->world < 1)
        return hkt_error_set(HKT_ERR_ARGUMENT, "%s: the grid was not made by hkt_grid_init()", call);
    if (mask > HKT_MASK_ALL)
        return hkt_error_set(HKT_ERR_ARGUMENT, "%s: mask 0x%x has bits of no axis; HKT_MASK_* together", call, mask);
    return HKT_OK;
}

static int check_range(const char *call, const char *what, int value, int end)
{
    if (value >= 0 && value < end)
        return HKT_OK;
    return hkt_error_set(HKT_ERR_ARGUMENT, "%s: %s is %d; 0 to %d", call, what, value, end - 1);
}

int hkt_grid_coordinates(int at[HKT_AXES], const hkt_grid_t *grid, int rank)
{
    TRY(check_mask("hkt_grid_coordinates", grid, 0));
    TRY(check_range("hkt_grid_coordinates", "rank", rank, grid->world));
    for (int a = 0; a < HKT_AXES; a++)
        at[a] = rank / grid->stride[a] % grid->size[a];
    return HKT_OK;
}

int hkt_grid_rank(int *rank, const hkt_grid_t *grid, const int at[HKT_AXES])
{
    int sum = 0;

    TRY(check_mask("hkt_grid_rank", grid, 0));
    for (int a = 0; a < HKT_AXES; a++) {
        TRY(check_range("hkt_grid_rank", axis_name[a], at[a], grid->size[a]));
        sum += at[a] * grid->stride[a];
    }
    *rank = sum;
    return HKT_OK;
}

int hkt_grid_groups(int *count, int *size, const hkt_grid_t *grid, unsigned mask)
{
    TRY(check_mask("hkt_grid_groups", grid, mask));
    *count = product(grid, others(mask));
    *size  = product(grid, mask);
    return HKT_OK;
}

int hkt_grid_group(int *ranks, const hkt_grid_t *grid, unsigned mask, int group)
{
    int size, first;

    TRY(check_mask("hkt_grid_group", grid, mask));
    TRY(check_range("hkt_grid_group", "group", group, product(grid, others(mask))));
    size  = product(grid, mask);
    first = offset(grid, others(mask), group);
    for (int i = 0; i < size; i++)
        ranks[i] = first + offset(grid, mask, i);
    return HKT_OK;
}

int hkt_grid_locate(int *group, int *member, const hkt_grid_t *grid, unsigned mask, int rank)
{
    TRY(check_mask("hkt_grid_locate", grid, mask));
    TRY(check_range("hkt_grid_locate", "rank", rank, grid->world));
    *group  = number(grid, others(mask), rank);
    *member = number(grid, mask, rank);
    return HKT_OK;
}

int hkt_grid_embedding(int ranks[2], int *n, const hkt_grid_t *grid, int group)
{
    TRY(check_mask("hkt_grid_embedding", grid, HKT_MASK_PP));
    TRY(check_range("hkt_grid_embedding", "group", group, product(grid, others(HKT_MASK_PP))));
    ranks[0] = offset(grid, others(HKT_MASK_PP), group);
    ranks[1] = ranks[0] + (grid->size[HKT_AXIS_PP] - 1) * grid->stride[HKT_AXIS_PP];
    *n       = grid->size[HKT_AXIS_PP] > 1 ? 2 : 1;
    return HKT_OK;
}
