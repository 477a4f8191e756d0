#!/bin/sh
# Runs the main job on the shipped fixtures: decodes a cursor record and searches indexes on a real bookie's disk.
# Without Java, the search runs in one process instead of Spark, and the last lines tell so.
set -eu
: "${BIN:=.venv/bin}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
tar -xJf fixtures/captures/pulsar-4.2.4.tar.xz -C "$work"
capture=$work/pulsar-4.2.4

show() { printf '\n\033[1m$ pulsar-meta'; printf ' %s' "$@"; printf '\033[0m\n'; }
run() { show "$@" | sed "s|$capture|capture|g"; "$BIN/pulsar-meta" "$@"; }

engine=spark
no_java=$("$BIN/python" -c 'from pulsar_meta.jobs.java import why_no_java; print(why_no_java() or "")')
[ -z "$no_java" ] || engine=local

echo "pulsar-4.2.4: the metadata database and the bookie's disk that a real broker left behind."
run decode --store "rocksdb:$capture/rocksdb" /managed-ledgers/public/default/persistent/marks/holes
run seek orders --index 0 --index 1000 --index 1999 --engine $engine \
    --store "rocksdb:$capture/rocksdb" --entries "bookie-disk:$capture/bookie0" -o table

if [ -n "$no_java" ]; then
    printf '\nLEFT OUT: Spark. The same search ran in one process, with the same answers.\n%s\n' "$no_java" >&2
fi
