#!/bin/sh
# Proves that includes go down the layers of tests/layers.txt only, and that the check itself sees what it must see.
set -eu
srcdir=${srcdir:-.}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# check ROOT TABLE: prints every include that breaks a rule; fails when there is one.
check() {
    (cd "$1" && find src algorithms transports parallel trainer frameworks -name '*.[ch]' 2>/dev/null | LC_ALL=C sort) >"$scratch/files"
    (cd "$1" && find include src algorithms transports parallel trainer frameworks -name '*.h' 2>/dev/null || true) >"$scratch/headers"
    awk -v root="$1" -v table="$2" '
    function row(file,   i) { # of the table, 0 when there is none
        for (i = 1; i <= rows; i++)
            if (file ~ pattern[i])
                return i
        return 0
    }
    # The file that an #include means: beside the includer, in include/, in src/, or generated at the top.
    function resolve(from, name,   dir) {
        dir = from
        sub(/[^\/]*$/, "", dir)
        if ((dir name) in exists) return dir name
        if (("include/" name) in exists) return "include/" name
        if (("src/" name) in exists) return "src/" name
        return name
    }
    function complain(text) { print text; bad = 1 }
    function judge(file, line, name, quoted,   to, f, t) {
        to = resolve(file, name)
        if (!quoted && to !~ /^include\//)
            return # a header of the system
        f = row(file)
        t = row(to)
        if (!t)
            complain(file ":" line ": includes " name ", which is no file of ours or not in layers.txt")
        else if (layer[t] > layer[f])
            complain(file ":" line ": layer " layer[f] " includes " to " of layer " layer[t])
        else if (rule[f] == "apart" && t == f && to != file)
            complain(file ":" line ": includes its neighbour " to)
        else if (rule[f] == "public" && t != f && layer[t])
            complain(file ":" line ": includes " to ", but may use only the public headers")
    }
    BEGIN {
        while ((getline text < table) > 0) {
            if (text ~ /^#/ || split(text, word, " ") != 3)
                continue
            rows++
            layer[rows] = word[1] + 0
            rule[rows] = word[2]
            gsub(/\./, "[.]", word[3])
            gsub(/\*/, ".*", word[3])
            pattern[rows] = "^" word[3] "$"
        }
        if (!rows)
            complain("no rows in " table)
    }
    FILENAME ~ /headers$/ { exists[$0] = 1; next }
    {
        if (!row($0))
            complain($0 ": not in layers.txt")
        n = 0
        while ((getline text < (root "/" $0)) > 0) {
            n++
            if (text !~ /^[ \t]*#[ \t]*include[ \t]*["<]/)
                continue
            quoted = text ~ /include[ \t]*"/
            sub(/^[^"<]*["<]/, "", text)
            sub(/[">].*$/, "", text)
            judge($0, n, text, quoted)
        }
        close(root "/" $0)
        seen++
    }
    END {
        if (!seen)
            complain("no sources under " root)
        exit bad
    }' "$scratch/headers" "$scratch/files"
}

sample() { # FILE LINE...
    mkdir -p "$scratch/tree/$(dirname "$1")"
    file=$scratch/tree/$1
    shift
    printf '%s\n' "$@" >"$file"
}

must_find() { # TEXT
    grep -q "$1" "$scratch/said" || { echo "self-test: '$1' was not found"; exit 1; }
}

self_test() {
    sample include/hocket.h ''
    sample src/base/error.h '#include "hocket.h"'
    sample src/language/schedule.h '#include "base/error.h"' '#include <stddef.h>'
    sample src/net/transport.h '#include "language/schedule.h"'
    sample algorithms/ring.c '#include "language/schedule.h"'
    sample transports/shm.c '#include "net/transport.h"'
    sample trainer/train.c '#include "model.h"' '#include <hocket.h>' '#include <stdio.h>'
    sample trainer/model.h ''
    sample parallel/mesh.c '#include "common.h"' '#include <hocket.h>'
    sample parallel/common.h ''
    check "$scratch/tree" "$srcdir/tests/layers.txt" || { echo "self-test: a good tree was refused"; exit 1; }

    sample src/base/log.c '#include "error.h"' '#include "language/schedule.h"'
    sample algorithms/tree.c '#include "../algorithms/ring.h"'
    sample algorithms/both.c '#include "ring.h"'
    sample algorithms/ring.h ''
    sample transports/tcp.c '#include "run/plan.h"'
    sample src/run/plan.h ''
    sample trainer/data.c '#include "base/error.h"'
    sample parallel/bucket.c '#include "base/error.h"'
    sample src/extra.c ''
    sample src/face/api.c '#include "missing.h"'
    if check "$scratch/tree" "$srcdir/tests/layers.txt" >"$scratch/said"; then
        echo "self-test: a bad tree passed"
        exit 1
    fi
    must_find 'src/base/log.c:2: layer 1 includes src/language/schedule.h of layer 2'
    must_find 'algorithms/both.c:1: includes its neighbour'
    must_find 'algorithms/tree.c:1: '
    must_find 'transports/tcp.c:1: layer 5 includes src/run/plan.h of layer 7'
    must_find 'trainer/data.c:1: .*may use only the public headers'
    must_find 'parallel/bucket.c:1: .*may use only the public headers'
    must_find 'src/extra.c: not in layers.txt'
    must_find 'src/face/api.c:1: includes missing.h, which is no file of ours'
    [ "$(wc -l <"$scratch/said")" = 8 ] || { cat "$scratch/said"; echo "self-test: more was found than is wrong"; exit 1; }
}

self_test
check "$srcdir" "$srcdir/tests/layers.txt"
