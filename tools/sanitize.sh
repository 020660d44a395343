#!/bin/sh
# Runs a command with the runtime of the sanitize build (LOGCORE_SANITIZE=1) in place:
#
#     tools/sanitize.sh .venv-sanitize/bin/python -m pytest tests/fuzz
#
# The interpreter itself is not instrumented, so AddressSanitizer's runtime has to be loaded before it, and the C++
# runtime with it: AddressSanitizer looks for the exception functions that other extension modules use when it starts.
# Leaks are not looked for (the interpreter leaves memory behind at exit by design), and Python's own small-object
# allocator is replaced by malloc, which AddressSanitizer guards, so that an overrun of a bytes object is seen too.
set -eu
compiler=${CC:-cc}

runtime=
for name in libasan.so "libclang_rt.asan-$(uname -m).so" libclang_rt.asan.so; do
    # A compiler that does not have the file answers with its bare name.
    # shellcheck disable=SC2086 # CC may hold options.
    path=$($compiler -print-file-name="$name")
    if [ "$path" != "$name" ] && [ -e "$path" ]; then
        runtime=$(readlink -f "$path")
        break
    fi
done
if [ -z "$runtime" ]; then
    echo "logcore: '$compiler' has no AddressSanitizer runtime (Debian: it comes with gcc; Fedora: dnf install libasan libubsan)" >&2
    exit 1
fi
# shellcheck disable=SC2086
cxx=$($compiler -print-file-name=libstdc++.so.6)
if [ -e "$cxx" ]; then
    runtime="$runtime $(readlink -f "$cxx")"
fi

export LD_PRELOAD="$runtime"
export PYTHONMALLOC=malloc
export ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:${UBSAN_OPTIONS:-}"
exec "$@"
