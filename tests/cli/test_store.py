"""`ls`, `get`, `tree` and `top` on a real standalone's database and on a snapshot."""

from __future__ import annotations

import csv
import json
import os
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.cli.app import main
from pulsar_meta.cli.render.text import size
from pulsar_meta.codecs.documents.document import encode_document
from tests.peak_memory import RANGE, cursor_of, put

Run = Callable[..., tuple[int, bytes, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Return a function that runs the program and returns (exit code, stdout, stderr)."""

    def call(*arguments: str) -> tuple[int, bytes, str]:
        monkeypatch.setattr(sys, "argv", ["pulsar-meta", *arguments])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = 0 if ended.code is None else int(ended.code)
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return call


@pytest.fixture
def capture_424(capture: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = capture("pulsar-4.2.4")
    monkeypatch.setenv("PULSAR_META_STORE", f"rocksdb:{folder / 'rocksdb'}")
    return folder


@pytest.fixture
def records(capture_424: Path) -> dict[str, dict[str, Any]]:
    lines = (capture_424 / "metadata.ndjson").read_text("utf-8").splitlines()
    return {record["path"]: record for record in map(json.loads, lines)}


def answer(out: bytes) -> Any:
    return json.loads(out)


def test_plain_ls_prints_names(run: Run, capture_424: Path) -> None:
    code, out, err = run("ls")
    assert (code, out, err) == (0, b"admin\ncounters\nledgers\nmanaged-ledgers\nschemas\n", "")


def test_ls_of_a_topic_lists_its_cursors(run: Run, records: dict[str, dict[str, Any]]) -> None:
    code, out, _ = run("ls", "topic", "marks", "-o", "json")
    paths = {document["path"] for document in answer(out)}
    below = "/managed-ledgers/public/default/persistent/marks/"
    assert (code, paths) == (0, {path for path in records if path.startswith(below)})
    assert "odd/name with %2F & ü" in [document.get("decoded") for document in answer(out)]


def test_ls_long_shows_the_details_of_each_value(run: Run, records: dict[str, dict[str, Any]]) -> None:
    _, out, _ = run("ls", "-l", "/admin", "-o", "ndjson")
    for document in map(json.loads, out.splitlines()):
        record = records.get(document["path"])
        if record is None:
            assert "size" not in document
        else:
            value = b64decode(record["value"])
            assert (document["size"], document["version"]) == (len(value), record["version"])
            assert document["modified"] == record["modified"]


@pytest.mark.parametrize("command", ["ls", "get", "tree"])
def test_an_empty_path_ends_with_3(command: str, run: Run, capture_424: Path) -> None:
    code, out, err = run(command, "/nowhere")
    assert (code, out) == (3, b"")
    assert "nothing at /nowhere" in err


@pytest.mark.parametrize(
    "words", [["orders"], ["topic"], ["topic", "a/b"], ["ledger", "x"], ["moon", "x"], ["a", "/b"]]
)
def test_invalid_paths_end_with_2(words: list[str], run: Run, capture_424: Path) -> None:
    assert run("get", *words)[0] == 2


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["topic", "orders"], "/managed-ledgers/public/default/persistent/orders"),
        (["topic", "we ird:näme"], "/managed-ledgers/public/default/persistent/we+ird%3An%C3%A4me"),
        (
            ["cursor", "public/default/marks", "odd/name with %2F & ü"],
            "/managed-ledgers/public/default/persistent/marks/odd%2Fname+with+%252F+%26+%C3%BC",
        ),
        (["ledger", "18"], "/ledgers/00/0000/L0018"),
        (["/admin/clusters/standalone"], "/admin/clusters/standalone"),
        (["namespace", "public/default"], "/admin/policies/public/default"),
    ],
)
def test_get_accepts_names(words: list[str], path: str, run: Run, records: dict[str, dict[str, Any]]) -> None:
    code, raw, _ = run("get", *words, "-o", "raw")
    assert (code, raw) == (0, b64decode(records[path]["value"]))
    code, out, _ = run("get", *words, "-o", "json")
    assert (code, answer(out)["path"], answer(out)["version"]) == (0, path, records[path]["version"])
    assert answer(out)["value"] is not None


@pytest.mark.parametrize(
    "words",
    [
        "get topic ordrs", "ls topic ordrs", "tree topic ordrs", "top topic ordrs", "properties ordrs",
        "set-property ordrs 1 a=b --dry-run", "compress-cursors --topic ordrs --compression lz4 --dry-run",
    ],
)  # fmt: skip
def test_a_missing_topic_has_the_same_message_everywhere(words: str, run: Run, capture_424: Path) -> None:
    code, _, err = run(*words.split())
    assert code == 3
    missing = "no topic persistent://public/default/ordrs; did you mean persistent://public/default/orders?\n"
    assert err.endswith(f": {missing}")


def test_a_partitioned_topic_means_its_partitions(run: Run, capture_424: Path) -> None:
    base = "/managed-ledgers/public/default/persistent/parted"
    paths = [f"{base}-partition-{number}" for number in range(3)]
    code, out, _ = run("get", "topic", "parted", "-o", "json")
    assert (code, [document["path"] for document in answer(out)]) == (0, paths)
    code, out, _ = run("tree", "topic", "parted", "-o", "json")
    assert (code, [node["path"] for node in answer(out)]) == (0, paths)
    code, out, _ = run("top", "topic", "parted", "-o", "json")
    assert (code, answer(out)["total"]["count"]) == (0, 3)
    assert run("ls", "topic", "parted")[0] == 0
    assert run("get", "topic", "parted", "-o", "raw")[:2] == (2, b"")
    code, out, err = run("get", "cursor", "parted", "nobody")
    assert (code, out, err.count("has no cursor nobody")) == (3, b"", 3)
    code, _, err = run("get", base)
    assert code == 3
    assert "persistent://public/default/parted-partition-0" in err


@pytest.mark.parametrize("place", [["topic", "\udcff"], ["/a/\udcff"], ["cursor", "t", "\ud800"]])
@pytest.mark.parametrize("command", ["get", "ls", "tree", "top"])
def test_names_that_are_not_utf8_are_usage_errors(
    command: str, place: list[str], run: Run, capture_424: Path
) -> None:
    code, out, err = run(command, *place, "-o", "ndjson")
    assert (code, out) == (2, b"")
    assert "names and paths are UTF-8" in json.loads(err)["message"]


def test_get_of_a_parent_tells_that_there_are_values_below(run: Run, capture_424: Path) -> None:
    code, _, err = run("get", "/admin")
    assert (code, " children" in err) == (3, True)


def test_get_of_a_broken_value_ends_with_4(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "managed-ledgers/t/n/persistent/x"
    folder.mkdir(parents=True)
    (folder / ".value").write_bytes(b"\x47\x78\x00\x00\x00\x04\x08\x01\x10\x64broken")
    code, out, err = run("get", "topic", "t/n/x", "--store", f"dir:{tmp_path}")
    assert (code, out) == (4, b"")
    assert err.startswith("pulsar-meta: ")
    code, out, _ = run("get", "topic", "t/n/x", "--store", f"dir:{tmp_path}", "-o", "json")
    assert (code, answer(out)["value"]) == (4, None)
    assert run("get", "topic", "t/n/x", "--store", f"dir:{tmp_path}", "-o", "raw")[0] == 0


def test_passwords_are_hidden_by_default(run: Run, capture_424: Path, tmp_path: Path) -> None:
    document = answer(run("get", "ledger", "18", "-o", "json")[1])
    document["value"]["password"] = "c2VjcmV0"
    folder = tmp_path / document["path"][1:]
    folder.mkdir(parents=True)
    (folder / ".value").write_bytes(encode_document(document).data)
    command = ("get", "ledger", "18", "--store", f"dir:{tmp_path}", "-o", "json")
    assert b"c2VjcmV0" not in run(*command)[1]
    assert answer(run(*command, "--show-passwords")[1])["value"]["password"] == "c2VjcmV0"


def test_tree_has_every_value_below_its_parent(run: Run, records: dict[str, dict[str, Any]]) -> None:
    _, out, _ = run("tree", "-o", "ndjson")
    documents = [json.loads(line) for line in out.splitlines()]
    assert {document["path"] for document in documents if "size" in document} == set(records)
    assert len({document["path"] for document in documents}) == len(documents)
    above: list[str] = []
    for document in documents:
        del above[document["depth"] :]
        parent = document["path"].rpartition("/")[0] or "/"
        assert not above or above[-1] == parent
        above.append(document["path"])


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_tree_with_depth_shows_only_the_upper_levels(depth: int, run: Run, capture_424: Path) -> None:
    complete = [json.loads(line) for line in run("tree", "/managed-ledgers", "-o", "ndjson")[1].splitlines()]
    code, out, _ = run("tree", "/managed-ledgers", "-o", "ndjson", "--depth", str(depth))
    documents = [json.loads(line) for line in out.splitlines()]
    assert (code, documents) == (0, [document for document in complete if document["depth"] <= depth])


def test_tree_lines(run: Run, capture_424: Path) -> None:
    _, out, _ = run("tree", "/managed-ledgers/public/zero")
    assert out.decode().splitlines()[:3] == [
        "/managed-ledgers/public/zero",
        "  persistent",
        "    __change_events  20 bytes",
    ]


def test_top_counts_everything(run: Run, records: dict[str, dict[str, Any]]) -> None:
    sizes = {path: len(b64decode(record["value"])) for path, record in records.items()}
    code, out, _ = run("top", "-n", "7", "-o", "json")
    sizes_found = answer(out)
    assert code == 0
    assert sizes_found["total"]["count"] == len(sizes)
    assert sizes_found["total"]["size"] == sum(sizes.values())
    for part in ("histogram", "namespaces"):
        assert sum(row["count"] for row in sizes_found[part]) == len(sizes)
        assert sum(row["size"] for row in sizes_found[part]) == sum(sizes.values())
    assert [value["size"] for value in sizes_found["biggest"]] == sorted(sizes.values(), reverse=True)[:7]
    first = sizes_found["biggest"][0]
    assert first["name"] == "persistent://public/default/marks huge"
    assert (first["codec"], first["kind"], first["holds"]["acked_ranges"]) == (
        "lz4",
        "ManagedCursorInfo",
        2000,
    )
    assert first["raw_size"] > first["size"]


def test_top_can_sort_by_raw_size(run: Run, capture_424: Path) -> None:
    sizes_found = answer(run("top", "--raw-size", "-n", "50", "-o", "json")[1])
    raw = [value["raw_size"] for value in sizes_found["biggest"]]
    assert raw == sorted(raw, reverse=True)


def test_top_can_be_limited_to_a_namespace(run: Run, capture_424: Path) -> None:
    sizes_found = answer(run("top", "/managed-ledgers/public/zero", "-o", "json")[1])
    assert [row["namespace"] for row in sizes_found["namespaces"]] == ["public/zero"]


def test_top_prints_rows_to_a_pipe_and_tables_to_a_terminal(run: Run, capture_424: Path) -> None:
    code, out, _ = run("top", "-n", "1")
    (line,) = out.decode().splitlines()
    assert code == 0
    assert line.endswith("marks/huge")
    assert "\tManagedCursorInfo\t" in line


class Page(HTMLParser):
    """The elements of a page, their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_top_writes_a_page_with_charts(run: Run, capture_424: Path, tmp_path: Path) -> None:
    file = tmp_path / "sizes.html"
    code, out, err = run("top", "-n", "7", "-o", "html", "--output", str(file))
    assert (code, out, err) == (0, b"", "")
    page, document = Page(file.read_text()), answer(run("top", "-n", "7", "-o", "json")[1])
    assert not page.open
    # Each size class has two bars; each namespace has one bar over a pale one.
    assert page.tags["svg"] == 2 * len(document["histogram"]) + len(document["namespaces"])
    for value in document["biggest"]:
        assert value["path"] in page.text
        assert size(value["size"]) in page.text
    for row in document["namespaces"]:
        assert row["namespace"] in page.text
    assert not page.tags.keys() & {"script", "link", "img", "iframe"}
    assert not page.attributes & {"src", "href", "style"}
    assert "http" not in page.text


def test_a_page_shows_names_as_text(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    evil = store / "<script>alert(1)<" / "a&b\x1b[2J" / ".value"
    evil.parent.mkdir(parents=True)
    evil.write_bytes(bytes(1_200_000))
    code, out, _ = run("top", "--store", f"dir:{store}", "-o", "html")
    page = Page(out.decode())
    assert code == 0
    assert not page.tags["script"]
    assert "/<script>alert(1)</a&b\\x1b[2J" in page.text
    assert "1 over 1 MiB" in page.text


def test_other_commands_draw_no_page(run: Run, capture_424: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    for words in (["ls"], ["tree"], ["get", "topic", "orders"], ["check-readable", "--for-version", "4.0.7"]):
        code, out, err = run(*words, "-o", "html", "--output", str(file))
        assert (code, out) == (2, b"")
        assert "invalid -o html: choose table, plain, json" in err
    assert not file.exists()


def test_top_reports_values_that_it_cannot_decode(run: Run, tmp_path: Path) -> None:
    topic = "/managed-ledgers/public/default/persistent/orders"
    put(tmp_path, topic, b"")
    put(tmp_path, f"{topic}/cut", cursor_of(RANGE, 9)[:-3])
    put(tmp_path, f"{topic}/headless", b"\x47\x78\x00\x00")
    store = ("--store", f"dir:{tmp_path / 'store'}")
    code, out, err = run("top", *store)
    assert (code, len(out.splitlines())) == (4, 3)
    cut, headless, unknown = err.splitlines()
    assert cut.startswith(f"pulsar-meta: {topic}/cut: envelope: zstd: ")
    assert headless.startswith(f"pulsar-meta: {topic}/headless: envelope: found 4 bytes")
    assert unknown.startswith("pulsar-meta: 1 value of unknown uncompressed size: the header can't be")
    code, _, err = run("top", *store, "-n", "0", "-o", "json")
    assert (code, [json.loads(line)["error"] for line in err.splitlines()]) == (4, ["decode"])


def test_top_of_an_empty_store_ends_with_3(run: Run, tmp_path: Path) -> None:
    for words in (("top",), ("top", "/a")):
        code, out, err = run(*words, "--store", f"dir:{tmp_path}")
        assert (code, out, "nothing at /" in err) == (3, b"", True)


def test_an_unreachable_store_ends_with_6(run: Run) -> None:
    for command in (["ls"], ["get", "/a"], ["tree"], ["top"]):
        code, out, err = run(*command, "--store", "zk://127.0.0.1:1?timeout=0.3")
        assert (code, out) == (6, b"")
        assert "cannot connect to 127.0.0.1:1" in err


def test_a_missing_store_option_ends_with_2(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULSAR_META_STORE", raising=False)
    monkeypatch.setenv("PULSAR_META_CONFIG", os.devnull)
    assert run("ls")[0] == 2


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (5 << 20, "5 MiB"),
        (3 << 50, "3072 TiB"),
    ],
)
def test_sizes_are_printed_with_units(count: int, text: str) -> None:
    assert size(count) == text


def test_get_accepts_the_names_that_ls_prints(run: Run, capture_424: Path) -> None:
    """Cursors and topics are listed by name, not as the store encodes them."""
    _, out, _ = run("ls", "topic", "marks")
    names = out.decode().splitlines()
    assert "odd/name with %2F & ü" in names
    for name in names:
        assert run("get", "cursor", "marks", name)[0] == 0
    code, out, _ = run("ls", "namespace", "public/default")
    topics = out.decode().splitlines()
    assert code == 0
    assert "persistent://public/default/marks" in topics
    for topic in topics:
        assert run("get", "topic", topic)[0] == 0
    code, out, err = run("ls", "namespace", "public/defalt")
    assert (code, out) == (3, b"")
    assert "did you mean /admin/policies/public/default?" in err
    assert run("get", "namespace", "public/default")[0] == 0


def test_top_has_headings_only_in_a_table(run: Run, capture_424: Path) -> None:
    _, out, _ = run("top", "-n", "7", "-o", "json")
    biggest = answer(out)["biggest"]
    code, out, err = run("top", "-n", "7")
    rows = [line.split("\t") for line in out.decode().splitlines()]
    assert (code, err) == (0, "")
    assert [(row[0], row[1], row[5]) for row in rows] == [
        (str(value["size"]), str(value["raw_size"]), value["path"]) for value in biggest
    ]
    _, out, _ = run("top", "-n", "7", "-o", "csv")
    assert out.decode().splitlines()[0].startswith("path,")
    assert len(out.splitlines()) == 8
    _, out, _ = run("get", "topic", "marks", "-o", "csv")
    names, row = csv.reader(out.decode().splitlines())
    assert dict(zip(names, row, strict=True))["path"] == "/managed-ledgers/public/default/persistent/marks"
    assert json.loads(row[-1])["ledgerInfo"]
    _, out, _ = run("top", "-n", "7", "-o", "table")
    assert out.startswith(b"361 values, ")
    for heading in (b"stored (bytes)", b"namespace", b"share", b"kind"):
        assert heading in out


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["managed-ledgers/public"], "/managed-ledgers/public"),
        (["orders"], "topic orders"),
        (["topci", "orders"], "topic orders"),
    ],
)
def test_a_misspelled_place_gets_a_suggestion(
    run: Run, capture_424: Path, words: list[str], suggestion: str
) -> None:
    for command in ("get", "ls", "tree", "top"):
        code, out, err = run(command, *words)
        assert (code, out) == (2, b"")
        assert f"did you mean {suggestion}?" in err


def test_get_tells_that_a_cursors_state_is_in_its_ledger(run: Run, capture: Callable[[str], Path]) -> None:
    """The state with the acknowledgements is in the cursor ledger, so the record shows none."""
    store = f"snapshot:{capture('pulsar-4.2.4-killed') / 'metadata.ndjson'}"
    code, out, _ = run("get", "cursor", "last-words", "reader", "--store", store)
    assert code == 0
    assert b"0 entries" not in out
    assert b"not in this record, but in the cursor's ledger" in out


def test_quoted_words_are_suggested_without_quotes(run: Run, tmp_path: Path) -> None:
    code, out, err = run("get", "cursor marks holes", "--store", f"dir:{tmp_path}")
    assert (code, out) == (2, b"")
    assert "did you mean cursor marks holes without quotes?" in err
