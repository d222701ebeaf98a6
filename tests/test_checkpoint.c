/* test_checkpoint.c -- checkpoints: any layout loads what any other saved, what is damaged or missing is named, what was asked
 * for is what is written. Files that are damaged: test_checkpoint_damage.c; dying and failing while saving:
 * test_checkpoint_kill.c.
 */
#include "checkpoint_model.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the checksum */

/* Proves: it is XXH64: the specification's values, and every length to 200 with two seeds as the reference library gives them. */
START_TEST(checksum_is_xxh64)
{
    unsigned char data[200];
    uint64_t      all = 0;

    ck_assert_uint_eq(hkt_checksum("", 0, 0), 0xEF46DB3751D8E999u);
    ck_assert_uint_eq(hkt_checksum("abc", 3, 0), 0x44BC2CF5AD770999u);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * 7 + 3);
    for (size_t n = 0; n <= sizeof(data); n++)
        all = all * 31 + (hkt_checksum(data, n, 0) ^ hkt_checksum(data, n, 2654435761u));
    ck_assert_uint_eq(all, 0x94e1a940384d7924u);
}
END_TEST

/* ---- layouts */

static const struct layout layouts[] = {
    {"one", 1, 1, 1, false},         {"dp4 zero", 1, 1, 4, true},   {"tp2 pp2 dp2 zero", 2, 2, 2, true}, {"tp4", 4, 1, 1, false},
    {"pp2 dp3 zero", 1, 2, 3, true}, {"dp4 whole", 1, 1, 4, false}, {"tp2 dp2 zero", 2, 1, 2, true},
};
enum { LAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };

struct way {
    const struct layout *layout;
    const char          *folder;
    int64_t              step;
};

static void save_layout(struct rank *me)
{
    const struct way    *way        = me->arg;
    const hkt_metadata_t metadata[] = {{"loss_scale", "0x1p+16"}, {"arguments", "--a 1\n--b \\ x\r\n"}, {"empty", ""}};
    struct pieces        p;

    doing("saving %s", way->layout->name);
    pieces_make(&p, way->layout, me->rank, way->step);
    expect_ok(hkt_checkpoint_save(me->comm, way->folder, way->step, 0, p.piece, p.count, metadata, 3));
    pieces_free(&p);
}

static void load_layout(struct rank *me)
{
    const struct way *way = me->arg;
    hkt_checkpoint_t *c;
    struct pieces     p;

    doing("loading into %s", way->layout->name);
    pieces_make(&p, way->layout, me->rank, -1);
    expect_ok(hkt_checkpoint_open(&c, way->folder, way->step, me->comm));
    expect_ok(hkt_checkpoint_read(p.piece, p.count, c));
    pieces_check(&p, way->step);
    expect_ok(hkt_checkpoint_verify(c));
    expect_ok(hkt_checkpoint_close(c));
    pieces_free(&p);
}

/* Proves: whatever layout saved it, every other layout reads every element exactly: rows, columns, stages, shards that end
 * anywhere. */
START_TEST(T_C17_any_layout_loads_any)
{
    char       folder[256];
    struct way save = {&layouts[_i], folder, 7};

    scratch_make(folder, "layouts");
    world(layout_ranks(save.layout), THREADS, save_layout, &save);
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct way load = {&layouts[l], folder, 7};

        world(layout_ranks(load.layout), THREADS, load_layout, &load);
    }
    scratch_remove(folder);
}
END_TEST

/* Total size of the data files of a checkpoint, and the largest of them. */
static size_t data_bytes(const char *path, size_t *largest)
{
    DIR           *dir = opendir(path);
    struct dirent *d;
    size_t         sum = 0;

    *largest = 0;
    while (dir && (d = readdir(dir))) {
        char        file[600];
        struct stat status;

        snprintf(file, sizeof(file), "%s/%s", path, d->d_name);
        if (strstr(d->d_name, ".data") && stat(file, &status) == 0) {
            sum += (size_t)status.st_size;
            *largest = (size_t)status.st_size > *largest ? (size_t)status.st_size : *largest;
        }
    }
    if (dir)
        closedir(dir);
    return sum;
}

/* Proves: what several ranks hold is written once, and the work is spread evenly over them. */
START_TEST(replicated_pieces_are_written_once)
{
    char       folder[256], path[300];
    struct way save = {&layouts[5], folder, 3};
    size_t     largest, sum;

    scratch_make(folder, "once");
    world(4, THREADS, save_layout, &save);
    snprintf(path, sizeof(path), "%s/step-0000000003", folder);
    sum = data_bytes(path, &largest);
    ck_assert_msg(sum >= model_bytes() && sum < model_bytes() + 28 * 64 + 4 * 8, "%zu bytes for a model of %zu", sum,
                  model_bytes());
    ck_assert_msg(largest < sum * 2 / 5, "one rank of four wrote %zu of %zu bytes", largest, sum);
    scratch_remove(folder);
}
END_TEST

static void look_at_metadata(struct rank *me)
{
    const struct way     *way = me->arg;
    hkt_checkpoint_t     *c;
    hkt_checkpoint_info_t info;
    hkt_metadata_t        datum;
    hkt_piece_t           piece;

    expect_ok(hkt_checkpoint_open(&c, way->folder, -1, NULL));
    expect_ok(hkt_checkpoint_info(&info, c));
    expect(info.step == 9 && info.ranks == 4 && info.metadata == 3 && !*info.note, "step %ld, %d ranks, %zu metadata, note %s",
           (long)info.step, info.ranks, info.metadata, info.note);
    expect_true(strcmp(hkt_checkpoint_value(c, "arguments"), "--a 1\n--b \\ x\r\n") == 0);
    expect_true(strcmp(hkt_checkpoint_value(c, "empty"), "") == 0);
    expect_true(strcmp(hkt_checkpoint_value(c, "loss_scale"), "0x1p+16") == 0);
    expect_true(!hkt_checkpoint_value(c, "loss"));
    expect_ok(hkt_checkpoint_metadatum(&datum, 1, c));
    expect_true(strcmp(datum.key, "arguments") == 0);
    expect_code(hkt_checkpoint_metadatum(&datum, 3, c), HKT_ERR_ARGUMENT);
    expect_ok(hkt_checkpoint_piece(&piece, info.pieces - 1, c));
    expect_true(strcmp(piece.name, "wte.weight") == 0 && !piece.data && piece.shape[0] == 52 && piece.kind == HKT_PIECE_MOMENT2);
    expect_code(hkt_checkpoint_piece(&piece, info.pieces, c), HKT_ERR_ARGUMENT);
    expect_ok(hkt_checkpoint_close(c));
    expect_ok(hkt_checkpoint_close(NULL));
}

/* Proves: metadata comes back byte for byte, and what a checkpoint holds can be listed. */
START_TEST(metadata_and_list)
{
    char       folder[256];
    struct way way = {&layouts[1], folder, 9};

    scratch_make(folder, "metadata");
    world(4, THREADS, save_layout, &way);
    world(1, THREADS, look_at_metadata, &way);
    scratch_remove(folder);
}
END_TEST

/* ---- what is not there */

static void ask_for_too_much(struct rank *me)
{
    const struct way *way = me->arg;
    float             data[2000];
    hkt_checkpoint_t *c;
    hkt_piece_t       p[3] = {
              {"wte.weight", HKT_PIECE_WEIGHT, HKT_FLOAT32, 2, {52, 12}, 0, 624, 0, 0, 0, data},
              {"h.9.nothing", HKT_PIECE_MASTER, HKT_FLOAT32, 1, {5}, 0, 5, 0, 0, 0, data},
              {"ln_f.weight", HKT_PIECE_MASTER, HKT_FLOAT32, 1, {6}, 0, 5, 0, 0, 0, data},
    };

    for (size_t i = 0; i < 2000; i++)
        data[i] = 5;
    expect_ok(hkt_checkpoint_open(&c, way->folder, -1, NULL));
    expect_code(hkt_checkpoint_read(p, 3, c), HKT_ERR_ARGUMENT);
    expect_said("lacks 2 of 3");
    expect_said("h.9.nothing (master): nothing of it");
    expect_said("ln_f.weight (master) has shape 5 there and 6 here");
    for (size_t i = 0; i < 2000; i++)
        expect(data[i] == 5, "something was written although something was missing");
    p[0].type = HKT_INT32;
    expect_code(hkt_checkpoint_read(p, 1, c), HKT_ERR_ARGUMENT);
    expect_said("is float32 there and int32 here");
    p[0].type  = HKT_FLOAT32;
    p[0].count = 625;
    expect_code(hkt_checkpoint_read(p, 1, c), HKT_ERR_ARGUMENT);
    expect_said("do not all lie in the tensor of shape 52x12");
    expect_ok(hkt_checkpoint_close(c));
}

static void save_half(struct rank *me)
{
    const struct way *way      = me->arg;
    float             data[10] = {0};
    hkt_piece_t       p        = {"half", HKT_PIECE_WEIGHT, HKT_FLOAT32, 1, {20}, 0, 10, 0, 0, 0, data};
    hkt_checkpoint_t *c;

    expect_ok(hkt_checkpoint_save(me->comm, way->folder, 1, 0, &p, 1, NULL, 0));
    expect_ok(hkt_checkpoint_open(&c, way->folder, 1, NULL));
    expect_code(hkt_checkpoint_verify(c), HKT_ERR_ARGUMENT);
    expect_said("half (weight): from element 10 on");
    p.first = 5;
    expect_code(hkt_checkpoint_read(&p, 1, c), HKT_ERR_ARGUMENT);
    expect_said("from element 10 on");
    expect_ok(hkt_checkpoint_close(c));
}

/* Proves: what is missing is listed by tensor and element before anything is written; other shapes and types are refused. */
START_TEST(T_C17_missing_pieces_are_listed)
{
    char       folder[256];
    struct way way = {&layouts[2], folder, 1};

    scratch_make(folder, "missing");
    world(8, THREADS, save_layout, &way);
    world(1, THREADS, ask_for_too_much, &way);
    world(1, THREADS, save_half, &way);
    scratch_remove(folder);
}
END_TEST

static void refuse(struct rank *me)
{
    const struct way *way     = me->arg;
    float             data[4] = {0};
    const hkt_piece_t good    = {"a", HKT_PIECE_WEIGHT, HKT_FLOAT32, 1, {4}, 0, 4, 0, 0, 0, data};
    const hkt_piece_t bad[]   = {
          {"a b", HKT_PIECE_WEIGHT, HKT_FLOAT32, 1, {4}, 0, 4, 0, 0, 0, data},
          {"", HKT_PIECE_WEIGHT, HKT_FLOAT32, 1, {4}, 0, 4, 0, 0, 0, data},
          {NULL, HKT_PIECE_WEIGHT, HKT_FLOAT32, 1, {4}, 0, 4, 0, 0, 0, data},
          {"a", 77, HKT_FLOAT32, 1, {4}, 0, 4, 0, 0, 0, data},
          {"a", HKT_PIECE_WEIGHT, 99, 1, {4}, 0, 4, 0, 0, 0, data},
          {"a", HKT_PIECE_WEIGHT, HKT_FLOAT32, 0, {4}, 0, 4, 0, 0, 0, data},
          {"a", HKT_PIECE_WEIGHT, HKT_FLOAT32, 5, {4}, 0, 4, 0, 0, 0, data},
          {"a", HKT_PIECE_WEIGHT, HKT_FLOAT32, 1, {3}, 0, 4, 0, 0, 0, data},
          {"a", HKT_PIECE_WEIGHT, HKT_FLOAT32, 1, {4}, 0, 4, 0, 0, 0, NULL},
          {"a", HKT_PIECE_WEIGHT, HKT_FLOAT32, 1, {4}, 1, SIZE_MAX, 0, 0, 0, data},
          {"a", HKT_PIECE_WEIGHT, HKT_FLOAT32, 1, {4}, 0, 4, 0, 3, 2, data},
          {"a", HKT_PIECE_WEIGHT, HKT_FLOAT32, 1, {4}, 0, 4, 0, 0, 7, data},
          {"a", HKT_PIECE_WEIGHT, HKT_FLOAT32, 2, {SIZE_MAX, 9}, 0, 4, 0, 0, 0, data},
          {"a", HKT_PIECE_WEIGHT, HKT_FLOAT32, 1, {4}, 0, 4, 0, 1, SIZE_MAX / 2, data},
    };
    const hkt_metadata_t bad_key = {"a b", "c"};
    hkt_checkpoint_t    *c       = NULL;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        doing("invalid piece %zu", i);
        expect_code(hkt_checkpoint_save(me->comm, way->folder, 1, 0, me->rank == 1 ? &bad[i] : &good, 1, NULL, 0),
                    HKT_ERR_ARGUMENT);
        expect_said("rank 1: ");
    }
    expect_code(hkt_checkpoint_save(me->comm, way->folder, -1, 0, &good, 1, NULL, 0), HKT_ERR_ARGUMENT);
    expect_code(hkt_checkpoint_save(me->comm, way->folder, 1, -1, &good, 1, NULL, 0), HKT_ERR_ARGUMENT);
    expect_code(hkt_checkpoint_save(me->comm, NULL, 1, 0, &good, 1, NULL, 0), HKT_ERR_ARGUMENT);
    expect_code(hkt_checkpoint_save(me->comm, way->folder, 1, 0, &good, 1, &bad_key, 1), HKT_ERR_ARGUMENT);
    expect_code(hkt_checkpoint_save(me->comm, "/proc/none", 1, 0, &good, 1, NULL, 0), HKT_ERR_SYSTEM);
    expect_said("/proc/none");
    expect_code(hkt_checkpoint_open(&c, way->folder, -1, me->comm), HKT_ERR_SYSTEM);
    expect_said("no complete checkpoint");
    expect_code(hkt_checkpoint_open(&c, way->folder, 5, me->comm), HKT_ERR_ARGUMENT);
    expect_said("step 5");
    expect_code(hkt_checkpoint_open(&c, way->folder, -2, NULL), HKT_ERR_ARGUMENT);
    expect_true(!c && entries_with(way->folder, "step") == 0);
}

/* Proves: an invalid argument on one rank is an error on all, naming the rank; nobody hangs and nothing is written. */
START_TEST(invalid_arguments)
{
    char       folder[256];
    struct way way = {NULL, folder, 1};

    scratch_make(folder, "invalid");
    world(2, THREADS, refuse, &way);
    scratch_remove(folder);
}
END_TEST

/* ---- types */

static void save_floats(struct rank *me)
{
    const struct way *way    = me->arg;
    float             data[] = {1,          1.00390625f, 1.01171875f, 65519, 65520, 1e-8f, 0x1p-24f,
                                0x1.8p-24f, -0.0f,       INFINITY,    NAN,   3e38f, 2049,  2051};
    const size_t      n      = sizeof(data) / sizeof(data[0]);
    uint16_t          half[14], bfloat[14];
    float             back[14];
    hkt_piece_t       p             = {"x", HKT_PIECE_WEIGHT, HKT_FLOAT32, 1, {n}, 0, n, 0, 0, 0, data};
    const uint16_t    want_half[]   = {0x3c00, 0x3c04, 0x3c0c, 0x7bff, 0x7c00, 0,      1,
                                       2,      0x8000, 0x7c00, 0x7e00, 0x7c00, 0x6800, 0x6802};
    const uint16_t    want_bfloat[] = {0x3f80, 0x3f80, 0x3f82, 0x4780, 0x4780, 0x322c, 0x3380,
                                       0x33c0, 0x8000, 0x7f80, 0x7fc0, 0x7f62, 0x4500, 0x4500};
    hkt_checkpoint_t *c;

    expect_ok(hkt_checkpoint_save(me->comm, way->folder, 1, 0, &p, 1, NULL, 0));
    expect_ok(hkt_checkpoint_open(&c, way->folder, 1, NULL));
    p.type = HKT_FLOAT16;
    p.data = half;
    expect_ok(hkt_checkpoint_read(&p, 1, c));
    p.type = HKT_BFLOAT16;
    p.data = bfloat;
    expect_ok(hkt_checkpoint_read(&p, 1, c));
    expect_ok(hkt_checkpoint_close(c));
    for (size_t i = 0; i < n; i++)
        expect(half[i] == want_half[i] && bfloat[i] == want_bfloat[i], "%g is %04x as half, %04x as bfloat", (double)data[i],
               half[i], bfloat[i]);
    expect_ok(hkt_checkpoint_save(me->comm, way->folder, 2, 0, &p, 1, NULL, 0));
    expect_ok(hkt_checkpoint_open(&c, way->folder, 2, NULL));
    p.type = HKT_FLOAT32;
    p.data = back;
    expect_ok(hkt_checkpoint_read(&p, 1, c));
    expect_ok(hkt_checkpoint_close(c));
    expect_true(back[0] == 1 && back[2] == 1.015625f && back[9] == INFINITY && isnan(back[10]) && signbit(back[8]));
}

/* All halves, saved as halves, read as floats and saved again. */
static void every_half(struct rank *me)
{
    const struct way *way  = me->arg;
    uint16_t         *half = malloc(65536 * 2), *again = malloc(65536 * 2);
    float            *wide = malloc(65536 * 4);
    hkt_piece_t       p    = {"h", HKT_PIECE_WEIGHT, HKT_FLOAT16, 1, {65536}, 0, 65536, 0, 0, 0, half};
    hkt_checkpoint_t *c;

    for (size_t i = 0; i < 65536; i++)
        half[i] = (uint16_t)i;
    for (int turn = 0; turn < 2; turn++) {
        expect_ok(hkt_checkpoint_save(me->comm, way->folder, turn, 0, &p, 1, NULL, 0));
        expect_ok(hkt_checkpoint_open(&c, way->folder, turn, NULL));
        p.type = turn ? HKT_FLOAT16 : HKT_FLOAT32;
        p.data = turn ? (void *)again : (void *)wide;
        expect_ok(hkt_checkpoint_read(&p, 1, c));
        expect_ok(hkt_checkpoint_close(c));
    }
    for (uint32_t i = 0; i < 65536; i++) {
        const int    exponent = i >> 10 & 31, fraction = i & 1023;
        const double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);

        if (exponent < 31)
            expect((double)wide[i] == (i & 0x8000 ? -size : size), "half %04x is %g", i, (double)wide[i]);
        expect(again[i] == i || (isnan(wide[i]) && (again[i] & 0x7e00) == 0x7e00), "half %04x comes back as %04x", i, again[i]);
    }
    free(half);
    free(again);
    free(wide);
}

/* Proves: a checkpoint in one float type is read in another, exactly or rounded to nearest even once, all special values kept. */
START_TEST(types_convert)
{
    char       folder[256];
    struct way way = {NULL, folder, 1};

    scratch_make(folder, "types");
    world(1, THREADS, save_floats, &way);
    world(1, THREADS, every_half, &way);
    scratch_remove(folder);
}
END_TEST

/* ---- which one is opened, which ones stay */

static void open_which(struct rank *me)
{
    const struct way     *way = me->arg;
    hkt_checkpoint_t     *c;
    hkt_checkpoint_info_t info;
    float                 x = 1;
    const hkt_piece_t     p = {"x", HKT_PIECE_WEIGHT, HKT_FLOAT32, 1, {1}, 0, 1, 0, 0, 0, &x};
    char                  path[600];

    for (int64_t step = 1; step <= 5; step++)
        expect_ok(hkt_checkpoint_save(me->comm, way->folder, step * 10, 3, &p, 1, NULL, 0));
    expect(entries_with(way->folder, "step-") == 3, "%d are there", entries_with(way->folder, "step-"));
    expect_ok(hkt_checkpoint_save(me->comm, way->folder, 40, 3, &p, 1, NULL, 0)); /* again */
    expect_ok(hkt_checkpoint_open(&c, way->folder, -1, me->comm));
    expect_ok(hkt_checkpoint_info(&info, c));
    expect(info.step == 40 && strstr(info.path, "step-0000000040.1"), "%s was opened", info.path);
    expect_ok(hkt_checkpoint_close(c));
    expect_true(entries_with(way->folder, "step-0000000040") == 1 && entries_with(way->folder, "step-") == 3);

    expect_ok(hkt_barrier(me->comm, NULL));
    snprintf(path, sizeof(path), "%s/step-0000000040.1/manifest", way->folder);
    if (me->rank == 0)
        expect_true(truncate(path, 30) == 0);
    expect_ok(hkt_checkpoint_open(&c, way->folder, -1, me->comm));
    expect_ok(hkt_checkpoint_info(&info, c));
    expect(info.step == 50 && strstr(info.note, "step-0000000040.1 passed over") && strstr(info.note, "cut off"), "%s: %s",
           info.path, info.note);
    expect_ok(hkt_checkpoint_close(c));
    expect_code(hkt_checkpoint_open(&c, way->folder, 40, me->comm), HKT_ERR_SYSTEM);
    expect_ok(hkt_checkpoint_open(&c, way->folder, 30, me->comm));
    expect_ok(hkt_checkpoint_close(c));
    expect_code(hkt_checkpoint_open(&c, way->folder, 10, me->comm), HKT_ERR_ARGUMENT);

    snprintf(path, sizeof(path), "%s/latest", way->folder);
    if (me->rank == 0)
        expect_true(unlink(path) == 0);
    expect_ok(hkt_checkpoint_open(&c, way->folder, -1, me->comm));
    expect_ok(hkt_checkpoint_info(&info, c));
    expect_true(info.step == 50);
    expect_ok(hkt_checkpoint_close(c));
}

/* Proves: `latest` is obeyed, a broken one is passed over and that is said, the newest `keep` stay, a step can be saved again. */
START_TEST(latest_keep_and_fallback)
{
    char       folder[256];
    struct way way = {NULL, folder, 0};

    scratch_make(folder, "keep");
    world(2, THREADS, open_which, &way);
    scratch_remove(folder);
}
END_TEST

static void different_folders(struct rank *me)
{
    const struct way *way = me->arg;
    char              mine[300];
    hkt_checkpoint_t *c = NULL;
    hkt_comm_t       *alone;
    float             x = (float)me->rank;
    const hkt_piece_t p = {me->rank ? "y" : "x", HKT_PIECE_WEIGHT, HKT_FLOAT32, 1, {1}, 0, 1, 0, 0, 0, &x};

    snprintf(mine, sizeof(mine), "%s/%d", way->folder, me->rank);
    expect_code(hkt_checkpoint_save(me->comm, mine, 1, 0, &p, 1, NULL, 0), HKT_ERR_SYSTEM);
    expect_said("not every host sees the folder");
    expect_ok(hkt_comm_split(&alone, me->comm, me->rank, 0, NULL));
    expect_ok(hkt_checkpoint_save(alone, mine, 1, 0, &p, 1, NULL, 0));
    expect_ok(hkt_comm_destroy(alone));
    expect_code(hkt_checkpoint_open(&c, mine, -1, me->comm), HKT_ERR_MISMATCH);
    expect_said("not what rank 0 has");
    expect_true(!c);
}

/* Proves: ranks that do not see one folder are told so, when saving and when loading; they never load different weights. */
START_TEST(folder_that_is_not_shared)
{
    char       folder[256];
    struct way way = {NULL, folder, 0};

    scratch_make(folder, "shared");
    world(2, THREADS, different_folders, &way);
    scratch_remove(folder);
}
END_TEST

/* ---- beside the training */

static void save_beside(struct rank *me)
{
    const struct way  *way = me->arg;
    struct pieces      p;
    hkt_saver_t       *saver;
    hkt_checkpoint_t  *c;
    hkt_ledger_t      *ledger;
    hkt_ledger_entry_t entry;

    expect_ok(hkt_ledger_create(&ledger));
    expect_ok(hkt_saver_create(&saver, me->comm, way->folder, 2, ledger));
    expect_ok(hkt_saver_wait(saver));
    for (int64_t step = 1; step <= 4; step++) {
        const hkt_metadata_t metadata = {"k", step == 2 ? "two" : "other"};

        pieces_make(&p, way->layout, me->rank, step);
        expect_ok(hkt_saver_begin(saver, step, p.piece, p.count, &metadata, 1));
        memset(p.memory, 0xff, model_bytes()); /* the training goes on */
        pieces_free(&p);
    }
    expect_ok(hkt_saver_wait(saver));
    pieces_make(&p, way->layout, me->rank, -1);
    for (int64_t step = 3; step <= 4; step++) {
        expect_ok(hkt_checkpoint_open(&c, way->folder, step, me->comm));
        expect_ok(hkt_checkpoint_read(p.piece, p.count, c));
        pieces_check(&p, step);
        expect_true(strcmp(hkt_checkpoint_value(c, "k"), "other") == 0);
        expect_ok(hkt_checkpoint_close(c));
    }
    expect_ok(hkt_saver_begin(saver, -5, p.piece, p.count, NULL, 0));
    expect_code(hkt_saver_wait(saver), HKT_ERR_ARGUMENT);
    expect_said("neither may be negative");
    expect_ok(hkt_saver_begin(saver, 5, p.piece, p.count, NULL, 0)); /* a failed one is reported once */
    expect_ok(hkt_ledger_read(&entry, HKT_BYTES_OTHER, ledger));
    expect(entry.takes == 1 && entry.now <= model_bytes(), "the copy took %zu bytes in %zu pieces", entry.now, entry.takes);
    expect_ok(hkt_saver_destroy(saver));
    expect_ok(hkt_saver_destroy(NULL));
    expect_ok(hkt_ledger_destroy(ledger));
    pieces_free(&p);
}

/* Proves: a save beside the training holds what was there when it began, its memory is taken once, its error is reported. */
START_TEST(saves_beside_training)
{
    char       folder[256];
    struct way way = {&layouts[6], folder, 0};

    scratch_make(folder, "beside");
    world(4, _i % 2, save_beside, &way);
    scratch_remove(folder);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, checksum_is_xxh64, 1, 10);
    ADD(s, T_C17_any_layout_loads_any, LAYOUTS, 60);
    ADD(s, replicated_pieces_are_written_once, 1, 20);
    ADD(s, metadata_and_list, 1, 20);
    ADD(s, T_C17_missing_pieces_are_listed, 1, 20);
    ADD(s, invalid_arguments, 1, 30);
    ADD(s, types_convert, 1, 20);
    ADD(s, latest_keep_and_fallback, 1, 30);
    ADD(s, folder_that_is_not_shared, 1, 30);
    ADD(s, saves_beside_training, 2, 30);
}

int main(void)
{
    return run_suite("checkpoint", add);
}
