# tool.sh -- what the scripts that test tools share; sourced. What the last command printed is in $dir/out and $dir/err.
src=${srcdir:-.}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failures=0
test=

fail() {
    echo "FAIL: ${test:+$test: }$*"
    failures=$((failures + 1))
}

# Says what the following lines prove.
proves() {
    test=$1
    echo "- $test"
}

# expect STATUS COMMAND...
expect() {
    wanted=$1
    shift
    "$@" >"$dir/out" 2>"$dir/err" </dev/null
    status=$?
    [ $status = "$wanted" ] || { fail "exit status $status instead of $wanted: $*"; cat "$dir/out" "$dir/err"; }
}

# said FILE PATTERN
said() {
    grep -q -e "$2" "$dir/$1" || { fail "'$2' is not in what was printed:"; cat "$dir/$1"; }
}

not_said() {
    ! grep -q -e "$2" "$dir/$1" || { fail "'$2' was printed:"; cat "$dir/$1"; }
}

equal() {
    [ "$1" = "$2" ] || fail "$3: '$1' instead of '$2'"
}

# page_is_whole TOOL COMMAND: the manual page of the tool has every flag of -h and no other.
page_is_whole() {
    "$2" -h | grep -o -e '^ *-.*' | grep -o -e '--[a-z_-]*' | sort -u >"$dir/flags"
    sed 's/\\-/-/g' "$src/docs/man/$1.1" | grep '^\.B' | grep -o -e '--[a-z_-]*' | sort -u >"$dir/page"
    cmp -s "$dir/flags" "$dir/page" || fail "$1.1: $(diff "$dir/flags" "$dir/page" | grep '^[<>]' | tr '\n' ' ')"
}

# The end of the script.
finish() {
    [ $failures = 0 ] || { echo "$failures failures"; exit 1; }
    echo "all good"
}
