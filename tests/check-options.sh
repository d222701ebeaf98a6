#!/bin/sh
# Proves that a knob is a row of the option table or does not exist: every HKT_ variable that a source reads, a script sets or a text
# mentions is a row of src/base/option.h (or a name of the C interface, where a text speaks of that).
set -eu
srcdir=${srcdir:-.}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# check ROOT: prints every name that is no option; fails when there is one.
check() {
    sed -n 's/^ *X(\([A-Z_0-9]*\), [a-z_0-9]*, [A-Z]*,.*/HKT_\1/p' "$1/src/base/option.h" | LC_ALL=C sort -u >"$scratch/rows"
    [ -s "$scratch/rows" ] || { echo "no rows in src/base/option.h"; return 1; }
    (
        cd "$1"
        # names in C: read or set by name
        find src algorithms transports parallel trainer tests bench -name '*.[ch]' -exec \
            sed -n 's/.*\(getenv\|setenv\|putenv\)("\(HKT_[A-Z_0-9]*\).*/\2/p' {} + 2>/dev/null
        # scripts: set or read
        find quickstart .ci src parallel trainer tests bench ! -name '*.[ch]' ! -name 'check-options.sh' -type f -exec \
            sed -n 's/.*\(^\|[ ({"]\)\(HKT_[A-Z_0-9]*\)=.*/\2/p; s/.*\${\{0,1\}\(HKT_[A-Z_0-9]*\).*/\1/p' {} + 2>/dev/null |
            grep -Ev '^HKT_(WARNINGS|ABI|ISA)$' # of the build
        :
    ) | LC_ALL=C sort -u >"$scratch/used"
    # texts: also the names of the C interface and of the sources
    (cd "$1" && find README.md NEWS.md CONTRIBUTING.md docs -type f -exec grep -Eoh '\bHKT_[A-Z_0-9]+' {} + 2>/dev/null) |
        LC_ALL=C sort -u >"$scratch/told"
    (cd "$1" && find include src -name "*.[ch]" -exec grep -Eoh "\bHKT_[A-Z_0-9]+" {} +) |
        LC_ALL=C sort -u >"$scratch/names"
    bad=0
    for name in $(LC_ALL=C comm -23 "$scratch/used" "$scratch/rows"); do
        echo "$name is used as an option, but is no row of src/base/option.h"
        bad=1
    done
    LC_ALL=C sort -u "$scratch/rows" "$scratch/names" >"$scratch/known"
    for name in $(LC_ALL=C comm -23 "$scratch/told" "$scratch/known"); do
        case $name in
        *_) continue ;; # "HKT_ERR_*"
        esac
        echo "$name is documented, but is neither a row of src/base/option.h nor a name in the sources"
        bad=1
    done
    return $bad
}

must_find() { # TEXT
    grep -q "$1" "$scratch/said" || { echo "self-test: '$1' was not found"; exit 1; }
}

self_test() {
    tree=$scratch/tree
    mkdir -p "$tree/src/base" "$tree/include" "$tree/docs" "$tree/bench"
    printf '    X(LOG, log, CHOICE, "error")\n    X(SPIN, spin_us, INTEGER, "50")\n' >"$tree/src/base/option.h"
    echo 'enum { HKT_SUM };' >"$tree/include/hocket.h"
    # shellcheck disable=SC2016 # the text is wanted as it stands
    printf 'HKT_LOG=info prog\necho $HKT_SPIN\n' >"$tree/bench/run.sh"
    echo 'x = getenv("HKT_LOG");' >"$tree/src/good.c"
    echo 'HKT_SUM, HKT_LOG and HKT_ERR_*' >"$tree/docs/good.md"
    check "$tree" || { echo "self-test: a good tree was refused"; exit 1; }

    echo 'HKT_LOUD=1 prog' >>"$tree/bench/run.sh"
    echo 'x = getenv("HKT_HIDDEN");' >"$tree/src/bad.c"
    echo 'Set HKT_TOLD to 1.' >"$tree/docs/bad.md"
    if check "$tree" >"$scratch/said"; then
        echo "self-test: a bad tree passed"
        exit 1
    fi
    must_find 'HKT_LOUD is used'
    must_find 'HKT_HIDDEN is used'
    must_find 'HKT_TOLD is documented'
    [ "$(wc -l <"$scratch/said")" = 3 ] || { cat "$scratch/said"; echo "self-test: more was found than is wrong"; exit 1; }
}

self_test
check "$srcdir"
