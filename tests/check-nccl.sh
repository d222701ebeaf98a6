#!/bin/sh
# Proves that libnccl.so.2 is what programs built for NCCL expect: its name, every function of our nccl.h as weak ncclX and strong pncclX, no others but
# those of kernels' headers, no symbol of ours, no C++; a header that compiles alone as C and C++; and, where NVIDIA's nccl.h is installed
# (or NCCL_HEADER names one), the same values, sizes, offsets and parameter types as that.
set -eu
srcdir=${srcdir:-.}
CC=${CC:-cc}
CXX=${CXX:-c++}
MAKE=${MAKE:-make}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
header=$(cd "$srcdir/frameworks/nccl" && pwd)/nccl.h

fail() { echo "$*"; exit 1; }

$MAKE -s install-nccllibLTLIBRARIES install-libLTLIBRARIES install-ncclincludeHEADERS DESTDIR="$scratch/root" >"$scratch/log" 2>&1 ||
    { cat "$scratch/log"; fail "make install failed"; }
library=$(find "$scratch/root" -name libnccl.so.2)
[ -n "$library" ] || fail "no libnccl.so.2 was installed"

# ---- symbols
readelf -d "$library" >"$scratch/dynamic"
grep -q 'SONAME.*\[libnccl.so.2\]' "$scratch/dynamic" || fail "the soname is not libnccl.so.2"
! grep -q 'NEEDED.*stdc++' "$scratch/dynamic" || fail "it needs the C++ library"
nm -D --defined-only "$library" | awk '{ print $2, $3 }' | LC_ALL=C sort -k2 >"$scratch/symbols"
sed -n 's/^HOCKET_NCCL([^,]*, \([A-Za-z0-9]*\),.*/\1/p' "$header" | LC_ALL=C sort >"$scratch/declared"
[ "$(wc -l <"$scratch/declared")" -ge 70 ] || fail "only $(wc -l <"$scratch/declared") functions were found in nccl.h"
# of the headers for kernels, which we have not
kernels="CftBarrierCreateRequirement CommQueryProperties DevCommCreate DevCommDestroy GetCftDeviceLeInfo GetLsaDevicePointer
    GetLsaMultimemDevicePointer GetMultimemDeviceLeInfo GetMultimemDevicePointer GetPeerDeviceLeInfo GetPeerDevicePointer GinBarrierCreateRequirement
    GinInboxA2ACreateRequirement GinOutboxCreateRequirement LLA2ACalcSlots LLA2ACreateRequirement LsaBarrierCreateRequirement TeamCft TeamCftMultimem
    TeamLsa TeamRail TeamRankToLsa TeamRankToWorld TeamWorld"
for name in $(cat "$scratch/declared") $kernels; do
    grep -qx "W nccl$name" "$scratch/symbols" || fail "nccl$name is not exported as a weak symbol"
    grep -qx "T pnccl$name" "$scratch/symbols" || fail "pnccl$name is not exported as a strong symbol"
done
known=$((2 * ($(wc -l <"$scratch/declared") + $(echo "$kernels" | wc -w)) + 1)) # and ncclResetDebugInitInternal
[ "$(wc -l <"$scratch/symbols")" = $known ] || { cat "$scratch/symbols"; fail "$(wc -l <"$scratch/symbols") symbols are exported, not $known (above)"; }
! grep '@' "$scratch/symbols" || fail "symbols have versions (above); NCCL's have none"

# ---- the header alone
echo '#include "nccl.h"' >"$scratch/alone.c"
cp "$scratch/alone.c" "$scratch/alone.cc"
$CC -std=c11 -Wall -Wextra -Wpedantic -Wstrict-prototypes -Werror -DHOCKET_NCCL_WITHOUT_CUDA -I"$(dirname "$header")" -fsyntax-only "$scratch/alone.c" ||
    fail "nccl.h alone is no clean C11"
if command -v "${CXX%% *}" >/dev/null 2>&1; then
    $CXX -std=c++11 -Wall -Wextra -Wpedantic -Werror -DHOCKET_NCCL_WITHOUT_CUDA -I"$(dirname "$header")" -fsyntax-only "$scratch/alone.cc" ||
        fail "nccl.h alone is no clean C++11"
fi

# ---- a program that knows only the library's name
cat >"$scratch/load.c" <<'EOF'
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    int (*init)(void **, int, const int *);
    int (*reduce)(const void *, void *, unsigned long, int, int, void *, void *);
    int (*destroy)(void *);
    void *comm;
    float x = 3, y = 0;

    if (!library)
        return printf("%s\n", dlerror()), 1;
    *(void **)&init    = dlsym(library, "ncclCommInitAll");
    *(void **)&reduce  = dlsym(library, "ncclAllReduce");
    *(void **)&destroy = dlsym(library, "ncclCommDestroy");
    return argc != 2 || init(&comm, 1, 0) || reduce(&x, &y, 1, 7, 0, comm, 0) || y != 3 || destroy(comm);
}
EOF
# shellcheck disable=SC2086 # words are wanted
$CC ${CFLAGS:-} -o "$scratch/load" "$scratch/load.c" -ldl || fail "the program that loads the library does not build"
"$scratch/load" "$library" || fail "the program that loads the library fails: does it find libhocket beside it?"

# ---- against NVIDIA's header
# facts HEADER WITH: values and layouts, one a line.
facts() {
    {
        echo "#include \"$1\""
        echo '#include <stddef.h>'
        echo '#include <stdio.h>'
        echo '#define SAY(name, value) printf("%s %lld%c", name, (long long)(value), 10)'
        echo 'int main(void) {'
        for e in $values; do
            grep -q "\\b$e\\b" "$1" && echo "SAY(\"$e\", $e);"
        done
        for type in $types; do
            grep -q "\\b$type\\b" "$1" && echo "SAY(\"sizeof $type\", sizeof($type));"
        done
        for m in $members; do
            grep -q "\\b${m#*.}\\b" "$1" && echo "SAY(\"$m\", offsetof(${m%.*}, ${m#*.}));"
        done
        echo 'return 0; }'
    } >"$scratch/facts.c"
    # shellcheck disable=SC2086
    $CC -std=gnu11 -w $2 -o "$scratch/facts" "$scratch/facts.c" && "$scratch/facts" | LC_ALL=C sort
}
values=$(sed -n 's/^ *\(nccl[A-Z][A-Za-z0-9]*\) = .*/\1/p' "$header" | sort -u; grep -o 'nccl\(Char\|Int\|Half\|Float\|Double\) =' "$header" | tr -d ' =' | sort -u
    sed -n 's/^#define \(NCCL_\(WIN\|CTA\|SHRINK\|REVOKE\|SUSPEND\|SPLIT\|CONFIG_UNDEF_INT\|UNIQUE_ID\|API_MAGIC\)[A-Z_]*\) .*/\1/p' "$header")
values=$(for v in $values; do case $v in ncclNumResults | NCCL_WIN_REQUIRED_ALIGNMENT) ;; *) echo "$v" ;; esac; done)
types="ncclUniqueId ncclResult_t ncclDataType_t ncclRedOp_t ncclScalarResidence_t ncclSimInfo_t ncclWaitSignalDesc_t ncclEncryptionConfig_t ncclComm_t
    ncclWindow_t ncclCommMemStat_t"
members=$(for m in size magic version blocking cgaClusterSize minCTAs maxCTAs netName splitShare trafficClass commName collnetEnable CTAPolicy shrinkShare \
    nvlsCTAs nChannelsPerNetPeer nvlinkCentricSched graphUsageMode numRmaCtx maxP2pPeers graphStreamOrdering launchOrderImplicit numRmaSig rmaEagerInit \
    hostCftMode nvlsHostMode; do echo "ncclConfig_t.$m"; done
    for m in size estimatedTime; do echo "ncclSimInfo_t.$m"; done
    for m in ext forceAlgSelection userProfilerTag launchCompletionEvent; do echo "ncclCollConfig_t.$m"; done)
compared=0
for theirs in ${NCCL_HEADER:-} /usr/include/nccl.h /usr/local/include/nccl.h /usr/local/cuda/include/nccl.h; do
    [ -f "$theirs" ] || continue
    ! grep -q HOCKET_NCCL "$theirs" || continue
    facts "$theirs" "-I$(dirname "$theirs") -I/usr/local/cuda/include" >"$scratch/theirs" || { echo "note: $theirs does not compile here"; continue; }
    facts "$header" -DHOCKET_NCCL_WITHOUT_CUDA >"$scratch/ours" || fail "the facts of our header do not compile"
    [ "$(wc -l <"$scratch/theirs")" -gt 50 ] || fail "only $(wc -l <"$scratch/theirs") facts were found in $theirs"
    ! LC_ALL=C comm -23 "$scratch/theirs" "$scratch/ours" | grep -v '^sizeof ncclConfig_t\|^sizeof ncclCollConfig_t' ||
        fail "$theirs has these, ours has not the same"
    # the same function with the same parameters: both declarations in one file
    {
        echo "#include \"$theirs\""
        sed -n '/^HOCKET_NCCL(/,/)$/p' "$header" | tr '\n' ' ' | sed 's/HOCKET_NCCL(/\nHOCKET_NCCL(/g' | while read -r line; do
            name=$(echo "$line" | sed -n 's/^HOCKET_NCCL([^,]*, \([A-Za-z0-9]*\),.*/\1/p')
            case $name in '' | ResetDebugInit) continue ;; esac
            ! grep -q " nccl$name *(" "$theirs" || echo "$line"
        done
    } >"$scratch/both.c"
    sed -i '1a #define HOCKET_NCCL(result, name, parameters) result nccl##name parameters;\n#define HOCKET_NCCL_END ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream' "$scratch/both.c"
    [ "$(grep -c '^HOCKET_NCCL(' "$scratch/both.c")" -gt 30 ] || fail "too few functions are compared with $theirs"
    $CC -std=gnu11 -w -I"$(dirname "$theirs")" -I/usr/local/cuda/include -fsyntax-only "$scratch/both.c" || fail "a function differs from that in $theirs"
    echo "the same as $theirs: $(wc -l <"$scratch/theirs") facts, $(grep -c '^HOCKET_NCCL(' "$scratch/both.c") functions"
    compared=$((compared + 1))
done
[ $compared -gt 0 ] || echo "NVIDIA's nccl.h is not installed: not compared"
