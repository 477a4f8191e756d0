#!/bin/sh
# The main job on the shipped fixtures: what a cursor record says, and where indexes are on a real bookie's disk.
set -eu
: "${BIN:=.venv/bin}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
tar -xJf fixtures/captures/pulsar-4.2.4.tar.xz -C "$work"
capture=$work/pulsar-4.2.4

show() { printf '\n\033[1m$ pulsar-meta'; printf ' %s' "$@"; printf '\033[0m\n'; }
run() { show "$@" | sed "s|$capture|capture|g"; "$BIN/pulsar-meta" "$@"; }

echo "pulsar-4.2.4: the metadata database and the bookie's disk that a real broker left behind."
run decode --store "rocksdb:$capture/rocksdb" /managed-ledgers/public/default/persistent/marks/holes
run seek orders --index 0 --index 1000 --index 1999 --engine spark \
    --store "rocksdb:$capture/rocksdb" --entries "bookie-disk:$capture/bookie0" -o table
