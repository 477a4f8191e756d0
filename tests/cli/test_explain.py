"""`explain` prints the explanation of a finding code, or finds it by an error message."""

from __future__ import annotations

import json
import re
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from pulsar_meta.jobs.check.codes import all_codes
from pulsar_meta.jobs.check.explanations import find_codes
from tests.cli.program import as_text, pulsar_meta_here

ERRORS = Path(__file__).parents[2] / "docs" / "errors"


def run(*arguments: str) -> CompletedProcess[str]:
    return as_text(pulsar_meta_here("explain", *arguments))


def test_a_code_is_explained_in_text() -> None:
    done = run("record-unreadable")
    assert (done.returncode, done.stderr) == (0, "")
    heading, title, *lines = done.stdout.splitlines()
    assert (heading, title) == ("error  record-unreadable", "  A record that a release can't load.")
    assert "  broker:     The topic doesn't load for any client. Trying to load it does no damage." in lines
    assert "  in logs:    IllegalReferenceCountException: refCnt: 0" in lines
    assert any(line.startswith("  repair:     pulsar-meta compress-cursors ") for line in lines)


def test_after_a_message_of_a_broker_the_next_command_is_named() -> None:
    assert "pulsar-meta check TOPIC" in run("refCnt: 0").stderr


def test_a_code_is_explained_as_one_json_document() -> None:
    document = json.loads(run("ledger-lost", "-o", "json").stdout)
    code = all_codes()["ledger-lost"]
    assert (document["code"], document["severity"]) == ("ledger-lost", code.severity)
    assert (document["meaning"], document["fix"]) == (code.sections["Meaning"], code.sections["Fix"])
    assert document["page"] == "findings/#ledger-lost"


def test_every_code_is_explained() -> None:
    documents = json.loads(run("-o", "json").stdout)
    assert [document["code"] for document in documents] == list(all_codes())
    assert run().stdout.count("\n") == len(documents)


@pytest.mark.parametrize("name", all_codes())
def test_every_message_of_a_code_finds_it(name: str) -> None:
    for message in all_codes()[name].errors:
        line = f"2026-11-21T06:06:34,799+0000 [bookkeeper-0] ERROR o.a.p.Thing - [x] {message} [y]"
        for text in (message, message.upper(), line):
            assert name in [code.name for code in find_codes(text)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("io.netty.util.IllegalReferenceCountException: refCnt: 0, decrement: 1", "record-unreadable"),
        ("refcnt:  0", "record-unreadable"),
        ("io.netty.util.IllegalReferenceCountException", "record-unreadable"),
        ("[x] Error opening metadata ledger 375 for cursor holes", "cursor-ledger"),
        ("instanceId 5f07 is not matching with 81aa", "cookie-differs"),
        ("Partition metadata not found for the partitioned topic: x", "partition-without-parent"),
    ],
)
def test_a_line_of_a_log_finds_its_code(text: str, name: str) -> None:
    assert find_codes(text)[0].name.startswith(name)


@pytest.mark.parametrize("page", sorted(ERRORS.glob("*.md")), ids=lambda page: page.stem)
def test_the_messages_on_a_page_about_an_error_find_the_codes_of_the_page(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    linked = set(re.findall(r"findings\.md#([a-z-]+)", text))
    introduction = text.partition("**Meaning.**")[0]
    for message in (introduction.splitlines()[0][2:], *re.findall(r"`([^`]+)`", introduction)):
        assert {code.name for code in find_codes(message)} & linked, message


def test_a_message_of_many_codes_lists_them() -> None:
    done = run("No such entry")
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert len(rows) > 3
    assert ["error", "entry-missing", all_codes()["entry-missing"].title] in rows


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["record-unreadible"], "did you mean record-unreadable, record-undecodable?"),
        (["orphan", "bucket"], "did you mean orphan-bucket?"),
        (["it", "is", "slow"], "run pulsar-meta explain for a list of the codes"),
        (["x"], "run pulsar-meta explain for a list of the codes"),
        (["../codes/ledger-lost"], "did you mean ledger-lost"),
    ],
)
def test_an_unknown_code_or_message_is_not_found(words: list[str], advice: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"no finding code or broker message matches {' '.join(words)!r}: {advice}" in done.stderr
