#!/bin/sh
# Proves that functions fit a screen: at most 60 lines and 5 parameters, files at most 600 lines. Relies on the project's format: the
# braces of a function, and nothing else, stand alone in the first column. What the public headers declare may have more parameters,
# and what stands below a comment that says whose callback it is.
set -eu
srcdir=${srcdir:-.}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# check ROOT: prints what is too long; fails when there is something.
check() {
    (cd "$1" && find include src algorithms transports parallel trainer frameworks tests -name "*.[ch]" 2>/dev/null | LC_ALL=C sort) >"$scratch/files"
    awk -v root="$1" -v lines=60 -v parameters=5 -v length_max=600 '
    function complain(text) { print text; bad = 1 }
    # Number of parameters in the signature (text up to the brace): the commas of the first parenthesis after a name.
    function count(text,   i, c, depth, n) {
        gsub(/__attribute__ *\(\([^()]*(\([^()]*\))?[^()]*\)\)/, "", text)
        n = text ~ /\( *(void)? *\)/ ? 0 : 1
        for (i = index(text, "("); i <= length(text); i++) {
            c = substr(text, i, 1)
            depth += (c == "(") - (c == ")")
            n += c == "," && depth == 1
            if (depth == 0)
                break
        }
        return n
    }
    function name_of(text) {
        gsub(/__attribute__ *\(\([^()]*(\([^()]*\))?[^()]*\)\)/, "", text)
        text = substr(text, 1, index(text, "(") - 1)
        sub(/ *$/, "", text)
        sub(/^.*[ *]/, "", text)
        return text
    }
    function finish(file, line) {
        functions++
        if (line - start + 1 > lines)
            complain(file ":" start ": " name " has " line - start + 1 " lines, more than " lines)
        if (count(signature) > parameters && !(name in public) && !called_back)
            complain(file ":" start ": " name " has " count(signature) " parameters, more than " parameters)
    }
    function scan(file,   text, n, body) {
        signature = ""
        before    = ""
        for (text = ""; (getline text < (root "/" file)) > 0; before = text) {
            n++
            if (text == "{" && !body && signature ~ /\(/) {
                name = name_of(signature)
                body = 1
            } else if (text == "}" && body) {
                finish(file, n)
                body = 0
                signature = ""
            } else if (!body && (text ~ /^[A-Za-z_]/ || (signature != "" && text ~ /^[ \t]/))) {
                if (signature == "") {
                    start       = n
                    called_back = before ~ /callback of/
                }
                signature = signature " " text
                if (text ~ /[;{}]/) # a declaration or a table, no function
                    signature = ""
            } else if (!body) {
                signature = ""
            }
        }
        close(root "/" file)
        if (n > length_max)
            complain(file ": has " n " lines, more than " length_max)
    }
    BEGIN {
        while ((getline header < ARGV[1]) > 0)
            while (header ~ /^include/ && (getline text < (root "/" header)) > 0)
                if (match(text, /hkt_[a-z0-9_]+\(/))
                    public[substr(text, RSTART, RLENGTH - 1)] = 1
        close(ARGV[1])
    }
    { scan($0) }
    END {
        if (NR && !functions)
            complain("no function was found: is the format still the one this check relies on?")
        exit bad
    }' "$scratch/files"
}

sample() { # FILE LINES: a function of so many lines, braces and signature counted
    echo 'static int sample_'"$2"'(int a, int (*b)(int, int),'
    echo '                    int c, int d, int e)'
    echo '{'
    i=4
    while [ $i -lt "$2" ]; do
        echo '    a += 1; /* { } */'
        i=$((i + 1))
    done
    echo '}'
} >>"$scratch/tree/$1"

must_find() { # TEXT
    grep -q "$1" "$scratch/said" || { echo "self-test: '$1' was not found"; exit 1; }
}

self_test() {
    mkdir -p "$scratch/tree/src" "$scratch/tree/include"
    echo 'HKT_API int hkt_public(int a, int b, int c, int d, int e, int f);' >"$scratch/tree/include/hocket.h"
    sample src/good.c 60
    printf '%s\n' 'int hkt_public(int a, int b, int c, int d, int e, int f)' '{' '}' 'static const int table[] = {' '    1,' '};' \
        'int __attribute__((format(printf, 2, 3))) none(void)' '{' '}' >>"$scratch/tree/src/good.c"
    check "$scratch/tree" || { echo "self-test: a good tree was refused"; exit 1; }

    sample src/long.c 61
    printf '%s\n' 'static void' 'wide(int a, int b, int c,' '     int d, int e, int f)' '{' '}' >"$scratch/tree/src/wide.c"
    sample src/file.c 60
    i=0
    while [ $i -lt 541 ]; do echo; i=$((i + 1)); done >>"$scratch/tree/src/file.c"
    if check "$scratch/tree" >"$scratch/said"; then
        echo "self-test: a bad tree passed"
        exit 1
    fi
    must_find 'src/long.c:1: sample_61 has 61 lines'
    must_find 'src/wide.c:1: wide has 6 parameters'
    must_find 'src/file.c: has 601 lines'
    [ "$(wc -l <"$scratch/said")" = 3 ] || { cat "$scratch/said"; echo "self-test: more was found than is wrong"; exit 1; }
}

self_test
check "$srcdir"
