"""A missing or unreadable file gives the same exit code and the same message in every command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import environment, pulsar_meta_here

READERS = {
    "encode": "encode {file}",
    "put": "put /a --file {file} --raw --version 0",
    "strip-metadata": "strip-metadata {file}",
    "attach-metadata": "attach-metadata {file}",
    "pack-entries": "pack-entries {file} --keys a",
    "lookup-properties": "lookup-properties {file}",
    "seek": "seek orders --index-file {file}",
    "undo": "undo {file}",
    "lookup": "lookup x --client-conf {file}",
    "compress-ledgers": "compress-ledgers --from-conf {file}",
    "compress-cursors": "compress-cursors --plan {file}",
}


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize(
    ("kind", "code", "text"), [("missing", 3, "no such file"), ("folder", 6, "cannot be read: ")]
)
def test_unreadable_files_give_the_same_code_and_message(
    command: str, kind: str, code: int, text: str, tmp_path: Path
) -> None:
    file = tmp_path / kind
    if kind == "folder":
        file.mkdir()
    env = environment(tmp_path / "state", PULSAR_META_STORE=f"dir:{tmp_path}")
    done = pulsar_meta_here(*READERS[command].format(file=file).split(), env=env)
    message = done.stderr.decode()
    assert (done.returncode, done.stdout) == (code, b"")
    assert message.startswith(f"pulsar-meta: {file}: {text}")
    assert message.count("\n") == 1


def test_decode_gives_the_same_message_for_a_missing_file(tmp_path: Path) -> None:
    done = pulsar_meta_here("decode", tmp_path / "missing", env=environment(tmp_path))
    assert (done.returncode, done.stderr.decode()) == (3, f"pulsar-meta: {tmp_path}/missing: no such file\n")


@pytest.mark.parametrize(
    "words", ["compress-cursors --compression none --stdin --dry-run", "seek --index-file -"]
)
def test_an_error_names_the_line_that_is_not_utf8(words: str, tmp_path: Path) -> None:
    env = environment(
        tmp_path / "state", PULSAR_META_STORE=f"dir:{tmp_path}", PULSAR_META_ENTRIES="frames:/nowhere"
    )
    done = pulsar_meta_here(*words.split(), env=env, stdin=b"a\t1\n\xff\t2\n")
    assert (done.returncode, done.stderr) == (2, b"pulsar-meta: stdin: line 2 is not UTF-8\n")
