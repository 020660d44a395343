#!/bin/sh
# Is this machine able to build logcore? Quiet if it is; else one line that names what is missing.
#
#     tools/check-machine.sh python3
set -eu
python=$1

missing() {
    echo "logcore: $1" >&2
    exit 1
}

command -v "$python" >/dev/null 2>&1 ||
    missing "no Python: '$python' is not on PATH (Python 3.10 or newer is needed; name another with make PYTHON=…)"

found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') ||
    missing "'$python' does not start (Python 3.10 or newer is needed; name another with make PYTHON=…)"

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    missing "'$python' is Python $found, too old: 3.10 or newer is needed (name another with make PYTHON=…)"

"$python" -c 'import venv, ensurepip' >/dev/null 2>&1 ||
    missing "Python $found has no venv module (Debian: apt install python$found-venv)"

"$python" - <<'END' || missing "Python $found has no Python.h (Debian: apt install python$found-dev; Fedora: dnf install python3-devel)"
import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
END

# The compiler that the build will call: $CC, else the one this Python was built with, else cc.
compiler=${CC:-$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("CC") or "cc")')}
# shellcheck disable=SC2086 # CC may hold options.
set -- $compiler
command -v "$1" >/dev/null 2>&1 ||
    missing "no C compiler: '$1' is not on PATH (Debian: apt install gcc libc6-dev; name another with CC=…)"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo '#include <stdint.h>
#include <stdlib.h>
int main(void) { return EXIT_SUCCESS; }' >"$scratch/probe.c"
"$@" "$scratch/probe.c" -o "$scratch/probe" >/dev/null 2>&1 ||
    missing "the C compiler '$compiler' cannot compile a program of one line (Debian: apt install gcc libc6-dev)"
