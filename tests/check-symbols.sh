#!/bin/sh
# Proves what a user of the installed library meets: only hkt_ symbols, all those of the header and no others; a header that compiles
# alone as C11 and as C++ without a warning; a pkg-config file that builds and runs an example. Installs into a folder of its own.
set -eu
srcdir=${srcdir:-.}
CC=${CC:-cc}
CXX=${CXX:-c++}
MAKE=${MAKE:-make}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() { echo "$*"; exit 1; }

# symbols_of LIBRARY: the names it exports, without versions and the names of the versions themselves.
symbols_of() { nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort; }

# compare EXPORTED DECLARED: two sorted lists must be equal and begin with hkt_.
compare() {
    ! grep -v '^hkt_' "$1" || { echo "exported, but no hkt_ name (above)"; return 1; }
    LC_ALL=C comm -23 "$1" "$2" | grep . && { echo "exported, but not in hocket.h (above)"; return 1; }
    LC_ALL=C comm -13 "$1" "$2" | grep . && { echo "in hocket.h, but not exported (above)"; return 1; }
    return 0
}

self_test() {
    printf 'hkt_a\nhkt_b\n' >"$scratch/good"
    printf 'hkt_a\nhkt_b\nother\n' >"$scratch/foreign"
    printf 'hkt_a\n' >"$scratch/few"
    compare "$scratch/good" "$scratch/good" || fail "self-test: equal lists were refused"
    for bad in "foreign good" "good few" "few good"; do
        # shellcheck disable=SC2086 # two words are wanted
        set -- $bad
        ! compare "$scratch/$1" "$scratch/$2" >/dev/null || fail "self-test: $bad passed"
    done
}

self_test
$MAKE -s install-libLTLIBRARIES install-includeHEADERS install-hocket_trainHEADERS install-pkgconfigDATA DESTDIR="$scratch/root" >"$scratch/log" 2>&1 ||
    { cat "$scratch/log"; fail "make install failed"; }
library=$(find "$scratch/root" -name libhocket.so)
include=$(dirname "$(find "$scratch/root" -name hocket.h)")

symbols_of "$library" >"$scratch/exported"
sed -n 's/^HKT_API [^(]*\(hkt_[a-z0-9_]*\)(.*/\1/p' "$srcdir/include/hocket.h" | LC_ALL=C sort >"$scratch/declared"
[ -s "$scratch/declared" ] || fail "no declaration was found in hocket.h"
compare "$scratch/exported" "$scratch/declared"

for header in $(cd "$include" && find . -name '*.h' | sed 's|^[.]/||'); do
    echo "#include <$header>" >"$scratch/alone.c"
    $CC -std=c11 -Wall -Wextra -Wpedantic -Wstrict-prototypes -Werror -I"$include" -fsyntax-only "$scratch/alone.c" || fail "$header alone is no clean C11"
    if command -v "${CXX%% *}" >/dev/null 2>&1; then
        cp "$scratch/alone.c" "$scratch/alone.cc"
        $CXX -std=c++11 -Wall -Wextra -Wpedantic -Werror -I"$include" -fsyntax-only "$scratch/alone.cc" || fail "$header alone is no clean C++11"
    fi
done

cat >"$scratch/example.c" <<'END'
#include <hocket.h>
#include <stdio.h>

int main(void)
{
    float       x[2] = {1, 2};
    hkt_comm_t *comm;

    if (hkt_version() != HKT_VERSION || hkt_comm_init_env(&comm, NULL) != HKT_OK)
        return printf("%s\n", hkt_last_error()), 1;
    if (hkt_all_reduce(x, x, 2, HKT_FLOAT32, HKT_SUM, comm, NULL) != HKT_OK || x[0] != 1 || x[1] != 2)
        return printf("%s\n", hkt_last_error()), 1;
    return hkt_comm_destroy(comm) != HKT_OK;
}
END
flags=$(PKG_CONFIG_PATH=$(dirname "$(find "$scratch/root" -name hocket.pc)") PKG_CONFIG_SYSROOT_DIR=$scratch/root \
    PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 pkg-config --cflags --libs hocket) ||
    fail "pkg-config does not know hocket"
# shellcheck disable=SC2086 # words are wanted
$CC ${CFLAGS:-} -o "$scratch/example" "$scratch/example.c" $flags || fail "the example does not build with: $flags"
LD_LIBRARY_PATH=$(dirname "$library") "$scratch/example" || fail "the example does not run"
