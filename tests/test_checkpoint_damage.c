/* test_checkpoint_damage.c -- checkpoints with flipped bits, cut off, or full of nonsense: refused by name and place, never
 * loaded, never a crash.
 */
#include "checkpoint_model.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct layout saved = {"tp2 dp2 zero", 2, 1, 2, true}, whole = {"one", 1, 1, 1, false};

static void save_step(struct rank *me)
{
    struct pieces p;

    pieces_make(&p, &saved, me->rank, 7);
    expect_ok(hkt_checkpoint_save(me->comm, me->arg, 7, 0, p.piece, p.count, NULL, 0));
    pieces_free(&p);
}

static void change_byte(const char *path, off_t at)
{
    const int     fd = open(path, O_RDWR);
    unsigned char byte;

    expect(fd >= 0 && pread(fd, &byte, 1, at) == 1, "%s", path);
    byte ^= 0x40;
    expect_true(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

static off_t size_of(const char *path)
{
    struct stat status;

    expect(stat(path, &status) == 0, "%s", path);
    return status.st_size;
}

static void damage_data(struct rank *me)
{
    const char       *folder = me->arg;
    struct pieces     p;
    char              path[600];
    hkt_checkpoint_t *c;

    snprintf(path, sizeof(path), "%s/step-0000000007/rank-00002.data", folder);
    pieces_make(&p, &whole, 0, -1);
    for (off_t at = 0; at < size_of(path); at += 37) {
        int rc;

        change_byte(path, at);
        expect_ok(hkt_checkpoint_open(&c, folder, 7, NULL));
        rc = hkt_checkpoint_read(p.piece, p.count, c);
        expect(rc == HKT_ERR_SYSTEM, "a changed byte %ld gives %d", (long)at, rc);
        expect_said("rank-00002.data is damaged");
        expect_said("offset");
        expect_code(hkt_checkpoint_verify(c), HKT_ERR_SYSTEM);
        expect_ok(hkt_checkpoint_close(c));
        change_byte(path, at);
    }
    expect_ok(hkt_checkpoint_open(&c, folder, 7, NULL));
    expect_ok(hkt_checkpoint_read(p.piece, p.count, c));
    pieces_check(&p, 7);
    expect_true(truncate(path, size_of(path) - 8) == 0); /* behind an open checkpoint */
    expect_ok(hkt_checkpoint_close(c));
    expect_code(hkt_checkpoint_open(&c, folder, 7, NULL), HKT_ERR_SYSTEM);
    expect_said("rank-00002.data has");
    expect_true(unlink(path) == 0);
    expect_code(hkt_checkpoint_open(&c, folder, 7, NULL), HKT_ERR_SYSTEM);
    expect_said("rank-00002.data");
    pieces_free(&p);
}

static void damage_manifest(struct rank *me)
{
    const char       *folder = me->arg;
    char              path[600];
    hkt_checkpoint_t *c;

    snprintf(path, sizeof(path), "%s/step-0000000007/manifest", folder);
    for (off_t at = 0; at < size_of(path); at += 11) {
        change_byte(path, at);
        expect_code(hkt_checkpoint_open(&c, folder, 7, NULL), HKT_ERR_SYSTEM);
        expect_said("manifest");
        change_byte(path, at);
    }
    for (off_t size = size_of(path) - 1; size >= 0; size -= size > 300 ? 97 : 1) {
        expect_true(truncate(path, size) == 0);
        expect_code(hkt_checkpoint_open(&c, folder, 7, NULL), HKT_ERR_SYSTEM);
    }
}

/* A manifest with a right checksum and one character of its text changed: refused or understood, never a crash. */
static void nonsense_manifest(struct rank *me)
{
    const char *folder = me->arg;
    char        path[600], text[20000], end[32];
    FILE       *f;
    size_t      size;
    int         refused = 0;

    snprintf(path, sizeof(path), "%s/step-0000000007/manifest", folder);
    f    = fopen(path, "rb");
    size = fread(text, 1, sizeof(text), f) - 21;
    fclose(f);
    for (size_t i = 0; i < 3000; i++) {
        static const char with[] = "0 9-x\n\t\0~piece";
        const size_t      at     = mix(i) % size;
        const char        was    = text[at];
        hkt_checkpoint_t *c;
        float             data[8];
        hkt_piece_t       p = {"ln_f.weight", HKT_PIECE_MASTER, HKT_FLOAT32, 1, {5}, 0, 5, 0, 0, 0, data};

        text[at] = with[mix(i + 7000) % (sizeof(with) - 1)];
        snprintf(end, sizeof(end), "end %016llx\n", (unsigned long long)hkt_checksum(text, size, 0));
        f = fopen(path, "wb");
        expect_true(fwrite(text, 1, size, f) == size && fwrite(end, 1, 21, f) == 21);
        fclose(f);
        text[at] = was;
        if (hkt_checkpoint_open(&c, folder, 7, NULL) < 0) {
            refused++;
            continue;
        }
        (void)hkt_checkpoint_read(&p, 1, c);
        (void)hkt_checkpoint_verify(c);
        expect_ok(hkt_checkpoint_close(c));
    }
    expect(refused > 500, "only %d of 3000 were refused", refused);
}

/* Proves: a flipped bit anywhere in a data file or the manifest is found and named with file and offset; cut files are refused; a
 * manifest of nonsense does no harm. */
START_TEST(damage_is_named)
{
    rank_fn *const how[] = {damage_data, damage_manifest, nonsense_manifest};
    char           folder[256];

    scratch_make(folder, "damage");
    world(4, THREADS, save_step, folder);
    world(1, THREADS, how[_i], folder);
    scratch_remove(folder);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, damage_is_named, 3, 60);
}

int main(void)
{
    return run_suite("checkpoint_damage", add);
}
