# build.sh -- for scripts: the fake driver, a few kernels and their test, in a folder, outside of make. Needs srcdir, CC, CXX, core.

# fakecuda_driver FOLDER FLAG...: libcuda.so.1 and kernel_case.o, which no change of a kernel concerns.
fakecuda_driver() {
    to=$1
    shift
    objects=
    for part in device entry event fault graph ipc launch memory operation queue settings share simt stream vmm kernel_case; do
        # shellcheck disable=SC2086 # CC may hold several words
        $CC -std=c11 -O1 -D_GNU_SOURCE -pthread -fPIC -fvisibility=hidden -w "$@" -I"$srcdir/include" -I"$srcdir/src" -c \
            -o "$to/$part.o" "$srcdir/tests/fakecuda/$part.c" || return 1
        [ $part = kernel_case ] || objects="$objects $to/$part.o"
    done
    # shellcheck disable=SC2086
    $CC -shared -pthread "$@" -Wl,-soname,libcuda.so.1 -o "$to/libcuda.so.1" $objects
}

# fakecuda_kernels FOLDER KERNELS FLAG...: libfakekernels.so from the folder of kernels given. Not optimised: it is made
# again and again, and runs for a moment.
fakecuda_kernels() {
    to=$1
    from=$2
    shift 2
    # shellcheck disable=SC2086
    $CXX -std=c++17 -O0 -fPIC -fvisibility=hidden -ffp-contract=off -w "$@" -I"$from" -I"$srcdir/include" -I"$srcdir/src" \
        -I"$srcdir/tests/fakecuda" -shared -o "$to/libfakekernels.so" "$srcdir/tests/fakecuda/kernels_few.cc" "$to/libcuda.so.1"
}

# fakecuda_test FOLDER FLAG...: the program `ranks`.
fakecuda_test() {
    to=$1
    shift
    # shellcheck disable=SC2086
    $CC -std=c11 -O1 -g -D_GNU_SOURCE -pthread -w "$@" -I"$srcdir/include" -I"$srcdir/src" -o "$to/ranks" \
        "$srcdir/tests/fakecuda/test_kernels_ranks.c" "$to/kernel_case.o" "$to/libcuda.so.1" $core -lm
}

# fakecuda_build FOLDER FLAG...
fakecuda_build() {
    fakecuda_driver "$@" && fakecuda_test "$@" || return 1
    folder=$1
    shift
    fakecuda_kernels "$folder" "$srcdir/src" "$@"
}
