"""Shell scripts that operators write, run by bash."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.wire.commands import decode_commands, encode_command
from pulsar_meta.jobs.brokers.registered import STOCK
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.proto.PulsarApi_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
)
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.cli.program import environment
from tests.cli.values import CURSOR, LEDGER, PROGRAM
from tests.servers.scripted import tcp_server

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
Script = Callable[[str], str]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Return a function that runs a script in the test's directory and returns its stdout."""

    def run(text: str) -> str:
        env = environment(tmp_path / "state", PATH=f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}")
        done = subprocess.run(
            ["bash", "-c", f"set -euo pipefail\n{text}"],
            capture_output=True, text=True, cwd=tmp_path, env=env, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_values_are_read_in_the_text_of_other_tools(script: Script, tmp_path: Path) -> None:
    (tmp_path / "ledger").write_bytes(LEDGER)
    (tmp_path / "cursor").write_bytes(CURSOR)
    out = script(r"""
        # Base64 of either alphabet, wrapped and without padding.
        base64 -w 4 cursor | tr '+/' '-_' | tr -d = > cursor.base64
        pulsar-meta decode cursor.base64 --base64 -o raw | cmp - cursor
        # Escapes, as printf and etcdctl -w fields write them.
        od -An -v -tx1 cursor | tr -d '\n' | sed 's/ /\\x/g' > cursor.escaped
        pulsar-meta decode - --escaped -o raw < cursor.escaped | cmp - cursor
        # put takes the same forms.
        mkdir store
        topics=/managed-ledgers/public/default/persistent
        for form in hex base64 escaped; do
            case $form in
                hex) od -An -v -tx1 ledger ;;
                base64) base64 ledger | tr -d = ;;
                escaped) od -An -v -tx1 ledger | tr -d '\n' | sed 's/ /\\x/g' ;;
            esac > ledger.text
            pulsar-meta put $topics/$form --$form --create --yes --store dir:store < ledger.text
            pulsar-meta get topic public/default/$form --store dir:store -o raw | cmp - ledger
        done
        # encode reads the same base64 in a document.
        pulsar-meta decode cursor --type Bytes -o json | tr '+/' '-_' | tr -d = > cursor.json
        pulsar-meta encode cursor.json | cmp - cursor
        echo same
    """)
    assert out.splitlines()[-1] == "same"


def test_a_thousand_files_are_decoded_by_one_process(script: Script, tmp_path: Path) -> None:
    folder = tmp_path / "values"
    folder.mkdir()
    for number in range(1000):
        (folder / f"{number:04} [x].bin").write_bytes(LEDGER)
    out = script("""
        find values -name '*.bin' | sort > names
        pulsar-meta decode --stdin-names --type ManagedLedgerInfo -o ndjson < names > decoded
        pulsar-meta decode values/*.bin --type ManagedLedgerInfo -o ndjson | cmp - decoded
        # A file that is missing or broken is reported, and the others are decoded.
        printf '\\x0a' > broken
        printf '%s\\n' "$(head -n 1 names)" absent broken "$(tail -n 1 names)" > list
        code=0
        pulsar-meta decode --stdin-names --type ManagedLedgerInfo -o ndjson < list > some || code=$?
        grep -c '"kind": *"ManagedLedgerInfo"' some
        echo $code
    """)
    assert out.split()[-1] == "4"
    sources = [json.loads(line)["source"] for line in (tmp_path / "decoded").read_text().splitlines()]
    assert sources == (tmp_path / "names").read_text().splitlines()
    decoded = [json.loads(line) for line in (tmp_path / "some").read_text().splitlines()]
    assert [line["value"] is not None for line in decoded if line["source"].startswith("values/")] == [
        True,
        True,
    ]


def large_cursor(number: int) -> bytes:
    """Return a cursor's record with many ranges, which a codec makes smaller."""
    cursor = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=number, markDeleteEntryId=7)
    for entry in range(2000):
        added = cursor.individualDeletedMessages.add()
        added.lowerEndpoint.ledgerId = added.upperEndpoint.ledgerId = number
        added.lowerEndpoint.entryId, added.upperEndpoint.entryId = 2 * entry + 10, 2 * entry + 11
    return cursor.SerializeToString()


def test_value_files_are_compressed_in_place_and_undone(script: Script, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"cursor-{number}.bin").write_bytes(large_cursor(number))
    (tmp_path / "small.bin").write_bytes(CURSOR)
    (tmp_path / "ledger.bin").write_bytes(LEDGER)
    out = script("""
        mkdir before
        cp -p *.bin before
        pulsar-meta compress-cursors *.bin --compression zstd --dry-run > plan.ndjson || test $? = 1
        diff -r before . | grep -v '^Only in'  && exit 9
        # The ledger list is no cursor: the others are written, and the exit code is 1.
        compress="pulsar-meta compress-cursors --compression zstd --any-gain"
        $compress *.bin --undo-file undo.ndjson --yes || test $? = 1
        cmp ledger.bin before/ledger.bin
        for file in cursor-*.bin small.bin; do
            pulsar-meta decode $file --type ManagedCursorInfo -o raw | cmp - before/$file
            pulsar-meta decode $file --type ManagedCursorInfo -o json | grep -q '"codec": *"zstd"'
        done
        pulsar-meta compress-ledgers ledger.bin --compression lz4 --any-gain --copy-to copies
        pulsar-meta decode copies/ledger.bin --type ManagedLedgerInfo -o raw | cmp - ledger.bin
        # Undo needs no store, even if another one is configured.
        PULSAR_META_STORE=dir:elsewhere pulsar-meta undo undo.ndjson --yes
        for file in *.bin; do cmp $file before/$file; done
        # Copies are never written over a file.
        pulsar-meta compress-ledgers ledger.bin --compression lz4 --any-gain --copy-to copies || test $? = 2
        echo restored
    """)
    assert out.splitlines()[-1] == "restored"
    assert len((tmp_path / "plan.ndjson").read_text().splitlines()) == 6


def test_a_snapshot_is_rewritten_to_a_new_snapshot(script: Script, tmp_path: Path) -> None:
    with open_store(f"dir:{tmp_path}/store", read_only=False) as store:
        for number in range(3):
            store.put(f"/managed-ledgers/a/b/persistent/t/sub-{number}", large_cursor(number), ABSENT)
        store.put("/managed-ledgers/a/b/persistent/t", LEDGER, ABSENT)
        store.put("/admin/policies/a/b", b"{}", ABSENT)
    script("""
        pulsar-meta snapshot all.ndjson --store dir:store
        cp all.ndjson before.ndjson
        lz4="pulsar-meta compress-cursors --compression lz4"
        $lz4 --topic a/b/t --store snapshot:all.ndjson --copy-to new.ndjson.zst
        cmp all.ndjson before.ndjson
        pulsar-meta get cursor a/b/t sub-1 --store snapshot:new.ndjson.zst -o json | grep -q '"codec": *"lz4"'
        pulsar-meta compress-cursors --compression none --store snapshot:new.ndjson.zst --copy-to plain.ndjson
        pulsar-meta diff snapshot:all.ndjson snapshot:plain.ndjson
        pulsar-meta convert-cursor --all --to ranges --store snapshot:all.ndjson --copy-to converted.ndjson
        pulsar-meta diff snapshot:all.ndjson snapshot:converted.ndjson
    """)


def test_frames_are_searched_and_verified_in_a_pipe_without_a_store(
    script: Script, tmp_path: Path, capture: Callable[[str], Path]
) -> None:
    (tmp_path / "captured").symlink_to(capture("pulsar-4.2.4"))
    script("""
        bookie="--entries bookie-disk:captured/bookie0"
        pulsar-meta dump-entries 18 $bookie -o raw > frames
        pulsar-meta dump-entries 18 $bookie --format '{index} {entry_id} {broker_timestamp}' > entries
        read -r index entry time < <(sed -n 3p entries)
        # A ledger on a disk, and the same entries on a pipe, which has no ledger ids.
        test "$(pulsar-meta seek 18 --index $index $bookie | cut -d: -f1-2)" = 18:$entry
        test "$(pulsar-meta seek --index $index --entries frames:- < frames | cut -d: -f2)" = $entry
        cat frames | pulsar-meta seek --time $time --entries frames:- | grep -q '^0:'
        pulsar-meta dump-entries --index $index --entries frames:- -o raw < frames > one
        pulsar-meta dump-entries 18 --index $index $bookie -o raw | cmp - one
        pulsar-meta verify-entries --entries frames:- < frames
        pulsar-meta verify-entries --index $index --entries frames:- < frames 2>&1 | grep -q ' 1 entr'
        pulsar-meta verify-entries 18 --time $time $bookie
        # An index that no entry has.
        pulsar-meta seek 18 --index 999999999 $bookie || test $? = 3
    """)


def serve_lookups(client: socket.socket) -> None:
    """Answer like a 4.2.4 broker: topics that end in an odd digit are served by broker b1, others by b2."""
    while data := client.recv(65536):
        for frame in decode_commands(data):
            client.sendall(encode_command(lookup_answer(frame.command)))


def lookup_answer(command: BaseCommand) -> BaseCommand:
    if command.type == BaseCommand.CONNECT:
        hello = BaseCommand(type=BaseCommand.CONNECTED)
        hello.connected.server_version, hello.connected.protocol_version = "Pulsar 4.2.4", 21
        hello.connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
        return hello
    if command.type == BaseCommand.PARTITIONED_METADATA:
        reply = BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE)
        reply.partitionMetadataResponse.request_id = 1
        reply.partitionMetadataResponse.response = CommandPartitionedTopicMetadataResponse.Success
        return reply
    number = int(command.lookupTopic.topic[-1]) % 2 or 2
    reply = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
    reply.lookupTopicResponse.request_id = 1
    reply.lookupTopicResponse.response = CommandLookupTopicResponse.Connect
    reply.lookupTopicResponse.brokerServiceUrl = f"pulsar://b{number}:6650"
    reply.lookupTopicResponse.authoritative = True
    return reply


def test_many_topics_are_looked_up_and_counted_by_broker_and_rack(script: Script, tmp_path: Path) -> None:
    with open_store(f"dir:{tmp_path}/store", read_only=False) as store:
        for number in range(1, 6):
            store.put(f"/managed-ledgers/my/ns/persistent/t{number}", LEDGER, ABSENT)
        for broker, rack in (("b1", "A"), ("b2", "B")):
            registered = {
                "pulsarServiceUrl": f"pulsar://{broker}:6650",
                "webServiceUrl": f"http://{broker}:8080",
                "loadManagerClassName": STOCK,
                "properties": {"lookup.rack": rack},
            }
            store.put(f"/loadbalance/brokers/{broker}:8080", json.dumps(registered).encode(), ABSENT)
    with tcp_server(serve_lookups) as port:
        script(f"""
            lookup="pulsar-meta lookup --service-url pulsar://127.0.0.1:{port}"
            $lookup my/ns --store dir:store > lines 2> summary
            test $(wc -l < lines) = 5
            printf 'persistent://my/ns/t4\\tpulsar://b2:6650\\tB\\n' | cmp - <(grep t4 lines)
            grep -qx 'pulsar://b1:6650 (rack A): 3 topics' summary
            grep -qx 'rack B: 2 topics' summary
            printf 'my/ns/t1\\nmy/ns/t2\\n' > names
            $lookup --stdin -o ndjson < names 2> summary | grep -c '"status": *"found"'
            grep -q 'pulsar://b1:6650: 1 topic' summary
            # One name still shows every hop.
            $lookup my/ns/t1 | grep -q '^hop 1'
            # A namespace needs a store.
            $lookup my/ns || test $? = 2
        """)


def test_plan_batches_finds_the_keys_and_says_what_a_filter_could_skip(script: Script) -> None:
    out = script("""
        # Ten batches of ten messages: the region changes once, the id with each message.
        for n in $(seq 0 99); do
            flush=$([ $((n % 10)) = 0 ] && echo true || echo false)
            region=$([ $n -lt 50 ] && echo eu || echo us)
            echo '{"payload": "x", "flush": '$flush', "properties": {"region": "'$region'", "id": "'$n'"}}'
        done > messages
        pulsar-meta pack-entries messages > frames
        plan="pulsar-meta plan-batches 0 --entries frames:frames"
        $plan --where region=eu | tee /dev/stderr | grep -q 'skip 0 of 10 entries today, and 5 of 10 after'
        $plan -o json
    """)
    plan = json.loads(out)
    assert plan["keys"] == ["region"]
    assert plan["properties"] == [
        {"key": "region", "messages": 100, "changes": 1},
        {"key": "id", "messages": 100, "changes": 99},
    ]
    assert plan["before"]["batches"] == plan["after"]["batches"] == 10
    assert "filter" not in plan
