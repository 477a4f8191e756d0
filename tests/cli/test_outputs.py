"""Outputs: files are replaced atomically, streams may be closed, and text cannot control a terminal."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.cli import streams
from pulsar_meta.cli.render import tables
from pulsar_meta.cli.render.text import harmless, json_line, message_line, one_line
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from tests.cli.program import MAIN, environment, pulsar_meta, pulsar_meta_here

# The clear-screen sequence, its C1 form, a right-to-left override, an isolate and a line separator.
HOSTILE = "a\x1b[2Jb\x9b2Jc\u202ed\u2066e\u2028f\x7f"
STEERING = set(HOSTILE) - set("abcdef[2J")


def write(path: Path, text: str = "new") -> None:
    with streams.atomic_file(path, "w") as out:
        out.write(text)


@pytest.mark.parametrize("text", [" " * 500_000, " \n" * 250_000, "a " * 250_000])
def test_the_time_for_a_message_grows_with_its_length(text: str) -> None:
    assert "\n" not in message_line(text)


def test_a_file_keeps_the_mode_of_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("old")
    target.chmod(0o600)
    write(target)
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    target, link, dangling = folder / "target", tmp_path / "link", tmp_path / "dangling"
    target.write_text("old")
    link.symlink_to("elsewhere/target")
    dangling.symlink_to("elsewhere/made")
    write(link)
    write(dangling)
    assert link.is_symlink()
    assert target.read_text() == (folder / "made").read_text() == "new"
    assert sorted(path.name for path in folder.iterdir()) == ["made", "target"]


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    for device in (Path("/dev/null"), tmp_path / "null"):
        if not device.exists():
            device.symlink_to("/dev/null")
        write(device)
        assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
        assert streams.index_path(device) is None
    assert streams.index_path(tmp_path / "f") == tmp_path / "f.idx"


def test_an_open_stream_is_written_and_not_replaced(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w+") as stream:
        for folder in ("/dev/fd", "/proc/self/fd"):
            if not Path(folder).exists():
                continue
            name = f"{folder}/{stream.fileno()}"
            assert streams.index_path(Path(name)) is None
            write(Path(name))
            assert stream.read() == "new"
            stream.truncate(0)
            stream.seek(0)


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no files in memory here")
def test_a_file_in_memory_is_replaced_atomically() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        target = Path(folder) / "out"
        target.write_text("old")
        with pytest.raises(UsageError), streams.atomic_file(target, "w") as out:
            out.write("half")
            raise UsageError("broken midway")
        assert target.read_text() == "old"


def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write(pipe)
    reader.join(10)
    assert read == ["new"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_planted_part_file_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, victim = tmp_path / "out", tmp_path / "victim"
    victim.write_text("precious")
    names = iter([b"\xaa", b"\xbb"])
    monkeypatch.setattr("os.urandom", lambda size: next(names))
    (tmp_path / ".out.aa.part").symlink_to(victim)
    with pytest.raises(UsageError, match="cannot write"):
        write(target)
    write(target)
    assert (target.read_text(), victim.read_text()) == ("new", "precious")


def test_a_file_name_of_maximum_length_can_be_written(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 255)
    write(target)
    assert target.read_text() == "new"


@pytest.mark.parametrize("name", ["", "/", "."])
def test_a_directory_is_no_output(name: str, tmp_path: Path) -> None:
    value = tmp_path / "value.json"
    value.write_text('"x"')
    done = pulsar_meta("decode", value, "--output", name, env=environment(tmp_path))
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert b"this is a directory" in done.stderr


@pytest.mark.parametrize("words", ["snapshot -", "bundle -", "ls --output -", "rebuild --output -"])
def test_a_dash_is_no_file_to_write(
    words: str, tmp_path: Path, capture: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store, disks = capture("pulsar-4.2.4") / "metadata.ndjson", capture("pulsar-4.2.4") / "bookie0"
    given = ("--entries", f"bookie-disk:{disks}") if "rebuild" in words else ("--store", f"snapshot:{store}")
    done = pulsar_meta(*words.split(), *given, env=environment(tmp_path))
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (2, b"", [])
    assert b'cannot write to "-"' in done.stderr


def test_a_read_error_is_not_reported_as_a_write_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), streams.atomic_file(tmp_path / "out", "w"):
        (tmp_path / "missing").read_text()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [
        ("<&-", "decode -", 6),
        (">&-", "decode {value}", 2),
        (">&-", "decode {value} --output {out}", 0),
        ("2>&-", "decode {value}", 0),
        ("2>&-", "decode /no/such/file", 3),
        ("<&- >&- 2>&-", "decode /no/such/file", 2),
    ],
)
def test_streams_may_be_closed(closed: str, arguments: str, code: int, tmp_path: Path) -> None:
    value, out = tmp_path / "value.json", tmp_path / "out"
    value.write_text('"x"')
    words = [word.format(value=value, out=out) for word in arguments.split()]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *MAIN, *words],
        capture_output=True, env=environment(tmp_path), timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert b"Traceback" not in done.stderr
    assert done.stderr.count(b"\n") <= 1
    # The file that got a closed stream's number was not written to.
    assert value.read_text() == '"x"'


def test_every_kind_of_text_is_made_harmless() -> None:
    for made in (harmless(HOSTILE), one_line(HOSTILE), message_line(HOSTILE), json_line({"a": HOSTILE})):
        assert not STEERING & set(made)
        assert "\\x1b" in made or "\\u001b" in made
        assert "\\u202e" in made
    assert json.loads(json_line({"a": HOSTILE})) == {"a": HOSTILE}
    assert harmless("a\tb\nc") == "a\tb\nc"
    assert one_line("a\tb\\") == "a\\tb\\\\"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("form", ["csv", "json", "ndjson", "plain", "table"])
def test_no_format_can_control_a_terminal(form: str) -> None:
    view = tables.View(("a",), lambda document: [document["a"]], fields=("a",))
    out = Terminal()
    documents = [{"a": HOSTILE}]
    match form:
        case "json":
            tables.write_json(documents, out, single=False)
        case "ndjson":
            tables.write_ndjson(documents, out)
        case "csv":
            tables.write_csv(documents, out, view)
        case "plain":
            tables.write_plain(documents, out, view)
        case _:
            tables.write_table(documents, out, view)
    assert not (STEERING - {"\x1b"}) & set(out.getvalue())
    assert "\x1b[2J" not in out.getvalue()


def test_csv_in_a_file_keeps_all_characters() -> None:
    out = io.StringIO()
    view = tables.View((), lambda document: (), fields=("a",))
    tables.write_csv([{"a": HOSTILE}], out, view)
    assert HOSTILE in out.getvalue()


def test_json_on_a_terminal_is_indented() -> None:
    documents: list[dict[str, object]] = [{"a": {"b": 1}}, {"a": 2}]
    out = Terminal()
    tables.write_json(documents, out, single=False)
    assert json.loads(out.getvalue()) == documents
    assert '    "b": 1\n' in out.getvalue()


def test_messages_are_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(verbose=True)
    for report in (shell.note, shell.warn, shell.detail):
        report(f"one\n{HOSTILE}")
        message = capsys.readouterr().err
        assert message.count("\n") == 1
        assert not STEERING & set(message)


def test_control_characters_in_a_path_are_escaped_in_an_error(tmp_path: Path) -> None:
    done = pulsar_meta("decode", f"/no/{HOSTILE}", env=environment(tmp_path))
    assert done.returncode == 3
    assert not STEERING & set(done.stderr.decode())
    done = pulsar_meta("decode", f"/no/{HOSTILE}", "-o", "json", env=environment(tmp_path))
    assert not STEERING & set(done.stderr.decode())
    assert HOSTILE in json.loads(done.stderr)["source"]


@pytest.mark.parametrize(
    ("words", "columns"),
    [
        ("explain", "severity\tcode\tmeaning"),
        ("explain -o plain", "severity\tcode\tmeaning"),
        ("schema", "name\tof"),
    ],
)
def test_a_header_names_the_columns_of_plain_output(words: str, columns: str) -> None:
    with_header = pulsar_meta_here(*words.split(), "--header").stdout.decode()
    assert with_header == columns + "\n" + pulsar_meta_here(*words.split()).stdout.decode()


def test_the_header_of_entries_does_not_depend_on_processes(capture: Callable[[str], Path]) -> None:
    folder = capture("pulsar-4.2.4")
    words = ["orders", "--store", f"snapshot:{folder}/metadata.ndjson", "--entries", f"bookie-disk:{folder}"]
    heading, *lines = pulsar_meta_here("dump-entries", *words, "--header").stdout.splitlines()
    assert heading.split(b"\t")[:2] == [b"position", b"index"]
    assert len(lines) == 163
    in_processes = pulsar_meta_here("dump-entries", *words, "--header", "--jobs", "2").stdout.splitlines()
    assert in_processes == [heading, *lines]


def test_text_has_no_header() -> None:
    done = pulsar_meta_here("explain", "ledger-lost", "--header")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"--header needs columns" in done.stderr
    assert pulsar_meta_here("explain", "-o", "json", "--header").stdout.startswith(b"[{")
