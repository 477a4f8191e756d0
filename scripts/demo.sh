#!/bin/sh
# Repairs a topic and searches indexes with Spark, on the files that a real Pulsar 4.2.4 left on its disk.
# Without Java, the search runs without Spark, and the last lines say so.
set -eu
: "${BIN:=.venv/bin}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
tar -xJf fixtures/captures/pulsar-4.2.4.tar.xz -C "$work"
PATH=$(cd "$BIN" && pwd):$PATH
export PULSAR_META_STORE=rocksdb:pulsar-4.2.4/rocksdb PULSAR_META_ENTRIES=bookie-disk:pulsar-4.2.4/bookie0
export XDG_STATE_HOME=$work/state
cd "$work"

bold='' normal=''
if [ -t 1 ]; then bold='\033[1m' normal='\033[0m'; fi
say() { printf '\n%s\n' "$@"; }
run() { printf "$bold\$ pulsar-meta"; printf ' %s' "$@"; printf "$normal\n"; pulsar-meta "$@"; }

engine=spark
no_java=$(python -c 'from pulsar_meta.jobs.engine import why_no_java; print(why_no_java() or "")')
[ -z "$no_java" ] || engine=local
cursors=/managed-ledgers/public/default/persistent/marks

say "This demo works on a copy of the metadata and the entries that a Pulsar 4.2.4 broker wrote."
say "1. The broker stored this cursor compressed (PIP-146). decode shows what is in it:"
run decode $cursors/with-props
say "2. Clients of the topic marks time out, and the broker's log only says 'refCnt: 0'. check finds the cause:"
run check marks --for-version 4.2.4 || true
say "3. Run the command that check printed. Before it writes, it saves the old bytes to an undo file:"
run compress-cursors --topic marks --cursor with-props --compression none --yes --undo-file undo.ndjson
say "4. check the topic again. It finds nothing and ends with exit code 0:"
run check marks --for-version 4.2.4
say "5. undo restores the old bytes. It refuses to store what 4.2.4 can't read, unless you insist:"
run undo undo.ndjson --allow-unreadable --yes
say "6. Which entries hold the messages with these indexes? A local Spark job searches all ledgers of a topic:"
run seek orders --index 0 --index 1000 --index 1999 --engine $engine -o table

if [ -n "$no_java" ]; then
    printf '\nLEFT OUT: Spark. The same search ran in one process, with the same answers.\n%s\n' "$no_java" >&2
fi
