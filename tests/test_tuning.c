/* test_tuning.c -- the table of algorithms: what it says, what it refuses and where, the hash that ranks compare. */
#include "base/memory.h"
#include "hocket.h"
#include "language/tuning.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char good[] = "# collective ranks hosts bytes algorithm\n"
                           "all_reduce\t2-8  1    0-64K   oneshot   # small\n"
                           "\n"
                           "all_reduce  *    2-   1M-     hierarchical direct circulant\r\n"
                           "broadcast   16   *    *       tree\n"
                           "*           *    *    *       direct";

static struct hkt_tuning parse(const char *text)
{
    struct hkt_tuning t;

    ck_assert_msg(hkt_tuning_parse(&t, text, "file") == 0, "%s", hkt_last_error());
    return t;
}

static const char *found(const struct hkt_tuning *t, enum hkt_coll coll, int ranks, int hosts, double bytes)
{
    const struct hkt_shape        shape = {.coll = coll, .size = ranks};
    const struct hkt_tuning_rule *rule  = hkt_tuning_find(t, &shape, hosts, bytes);

    return rule ? rule->algorithm->name : "none";
}

START_TEST(test_rules)
{
    struct hkt_tuning t = parse(good);

    ck_assert_uint_eq(t.count, 4);
    ck_assert_str_eq(found(&t, HKT_COLL_ALL_REDUCE, 8, 0, 65536), "oneshot");
    ck_assert_str_eq(found(&t, HKT_COLL_ALL_REDUCE, 8, 1, 65537), "direct");
    ck_assert_str_eq(found(&t, HKT_COLL_ALL_REDUCE, 9, 1, 8), "direct");
    ck_assert_str_eq(found(&t, HKT_COLL_ALL_REDUCE, 64, 2, 1048576), "hierarchical");
    ck_assert_str_eq(found(&t, HKT_COLL_BROADCAST, 16, 4, 8), "tree");
    ck_assert_str_eq(found(&t, HKT_COLL_ALL_TO_ALL, 16, 4, 8), "direct");
    ck_assert_str_eq(t.rule[1].outer->name, "circulant");
    ck_assert_int_eq(t.rule[1].line, 4);
    hkt_tuning_free(&t);
    t = parse("");
    ck_assert_str_eq(found(&t, HKT_COLL_ALL_REDUCE, 2, 1, 8), "none");
    ck_assert_uint_eq(t.hash, 0);
    t = parse("* * * * pairwise"); /* * is what the algorithm can */
    ck_assert_str_eq(found(&t, HKT_COLL_ALL_REDUCE, 2, 1, 8), "none");
    ck_assert_str_eq(found(&t, HKT_COLL_ALL_TO_ALL, 2, 1, 8), "pairwise");
    hkt_tuning_free(&t);
}
END_TEST

/* Each names its line and column, and nothing is kept. */
static const struct {
    const char *text, *says;
} bad[] = {
    {"allreduce * * * ring", "file, line 1, column 1: collective \"allreduce\""},
    {"barrier * * * ring", "line 1, column 1"},
    {"\n# x\nall_reduce 8-2 * * ring", "line 3, column 12: ranks \"8-2\": the range ends before it begins"},
    {"all_reduce 0 * * ring", "column 12: ranks \"0\": counts begin at 1"},
    {"all_reduce 2x * * ring", "column 12: ranks \"2x\""},
    {"all_reduce 2K * * ring", "column 12: ranks \"2K\""},
    {"all_reduce -2 * * ring", "column 12"},
    {"all_reduce 2-3-4 * * ring", "column 12"},
    {"all_reduce * * 1Q ring", "column 16: bytes \"1Q\""},
    {"all_reduce * * 99999999999999999999 ring", "column 16"},
    {"all_reduce * * 99999999999999T ring", "column 16"},
    {"all_reduce * * * rings", "column 18: algorithm \"rings\": there is no such algorithm"},
    {"broadcast * * * circulant", "column 17: algorithm \"circulant\": it does not do this collective"},
    {"all_reduce * * *", "column 17: the line ends before it says the algorithm"},
    {"all_reduce", "column 11: the line ends before it says the ranks"},
    {"all_reduce * * * ring direct", "column 23: inner \"direct\": only hierarchical"},
    {"all_reduce * * * hierarchical direct", "column 31"},
    {"all_reduce * 2 * hierarchical direct hierarchical", "column 38: outer"},
    {"all_reduce * * * hierarchical direct ring x", "column 43: \"x\" is one word too many"},
};

START_TEST(test_refusals)
{
    struct hkt_tuning t;
    char              text[256];

    snprintf(text, sizeof(text), "* * * * direct\n%s", bad[_i].text);
    ck_assert_int_eq(hkt_tuning_parse(&t, bad[_i].text, "file"), HKT_ERR_ARGUMENT);
    ck_assert_msg(strstr(hkt_last_error(), bad[_i].says) != NULL, "%s: says '%s', not '%s'", bad[_i].text, hkt_last_error(), bad[_i].says);
    ck_assert_int_eq(hkt_tuning_parse(&t, text, "file"), HKT_ERR_ARGUMENT);
    ck_assert(!t.rule && !t.count && !t.hash);
}
END_TEST

/* Of what is said: not of spaces, remarks or how a number is written. */
START_TEST(test_hash)
{
    static const char *const other[] = {"all_reduce 2-8 1 0-64K oneshot", "all_reduce 2-8 1 0-65536 ring", "all_reduce 2-9 1 0-65536 oneshot",
                                        "broadcast 2-8 1 0-65536 oneshot", "all_reduce 2-8 * 0-65536 oneshot"};
    struct hkt_tuning        a       = parse("  all_reduce   2-8 1  0-64K oneshot # remark\n\n");

    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
        struct hkt_tuning b;

        if (i == 3) {
            ck_assert_int_eq(hkt_tuning_parse(&b, other[i], "file"), HKT_ERR_ARGUMENT); /* oneshot broadcasts nothing */
            continue;
        }
        b = parse(other[i]);
        ck_assert_int_eq(a.hash == b.hash, i == 0);
        hkt_tuning_free(&b);
    }
    hkt_tuning_free(&a);
}
END_TEST

START_TEST(test_files)
{
    char              path[] = "/tmp/hkt-tuning-XXXXXX";
    const int         fd     = mkstemp(path);
    FILE *const       f      = fdopen(fd, "w");
    struct hkt_tuning t;

    ck_assert_ptr_nonnull(f);
    fputs(good, f);
    fclose(f);
    ck_assert_int_eq(hkt_tuning_read(&t, path), 0);
    ck_assert_uint_eq(t.count, 4);
    hkt_tuning_free(&t);
    ck_assert_int_eq(truncate(path, 2 << 20), 0); /* with zeros behind */
    ck_assert_int_eq(hkt_tuning_read(&t, path), HKT_ERR_ARGUMENT);
    ck_assert_int_eq(truncate(path, 400), 0);
    ck_assert_int_eq(hkt_tuning_read(&t, path), HKT_ERR_ARGUMENT);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(hkt_tuning_read(&t, path), HKT_ERR_SYSTEM);
    ck_assert_int_eq(hkt_tuning_read(&t, "/tmp"), HKT_ERR_SYSTEM);
}
END_TEST

START_TEST(test_memory)
{
    int rc = HKT_ERR_MEMORY;

    for (long n = 1; rc == HKT_ERR_MEMORY; n++) {
        struct hkt_tuning t;

        hkt_alloc_fail_at(n);
        rc = hkt_tuning_parse(&t, good, "file");
        hkt_alloc_fail_at(0);
        ck_assert_int_eq(rc == 0, n == 2);
        hkt_tuning_free(&t);
    }
}
END_TEST

int main(void)
{
    Suite   *s = suite_create("tuning");
    TCase   *c = tcase_create("tuning");
    SRunner *r;
    int      failed;

    tcase_add_test(c, test_rules);
    tcase_add_loop_test(c, test_refusals, 0, (int)(sizeof(bad) / sizeof(bad[0])));
    tcase_add_test(c, test_hash);
    tcase_add_test(c, test_files);
    tcase_add_test(c, test_memory);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
