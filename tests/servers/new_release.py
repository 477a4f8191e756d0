"""Capture a release, and print what the program does not understand: `make captures RELEASE=5.0.0`.

    python -m tests.servers.new_release VERSION DIRECTORY

It takes the jars that Maven resolves, makes the capture of `tests.servers.capture` and its truth in
DIRECTORY/pulsar-VERSION, and reads every value and entry of it. A folder that exists is only read. Exit code
3 means that the jars do not resolve, 1 that something was not understood.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pulsar_meta.codecs.protobuf.to_json import UNKNOWN_FIELDS
from tests.capture_report import run
from tests.seek_truth import bookie_urls
from tests.servers import capture, jars

# Empty values are parents that the store made. Text and bytes at these paths are what they should be.
_PLAIN: Final = re.compile(r"/ledgers/(INSTANCEID|LAYOUT)|/txn/tc/parallelism|/loadbalance/.*")
_number_re = re.compile(r"\d+")


def values_not_understood(folder: Path) -> Counter[str]:
    """Count faults, unknown fields and values of no kind in a capture's values; N stands for numbers."""
    found = Counter[str]()
    for snapshot in sorted(folder.glob("metadata*.ndjson")):
        text = run("decode", "--store", f"snapshot:{snapshot}", "-o", "ndjson")
        for document in map(json.loads, text.splitlines()):
            found.update(_of_value(document))
    return found


def entries_not_understood(folder: Path, topics: list[str]) -> Counter[str]:
    """Count faults and unknown fields in the entries of topics."""
    found = Counter[str]()
    sources = [part for url in bookie_urls(folder) for part in ("--entries", url)]
    words = ("--deep", "-o", "ndjson", "--store", f"snapshot:{folder / 'metadata.ndjson'}")
    for entry in map(json.loads, run("dump-entries", *topics, *words, *sources).splitlines()):
        found.update(f"entry: unknown field {name}" for name in _unknown_fields(entry, ""))
        if "error" in entry:
            found[f"entry: {_number_re.sub('N', str(entry['error']))}"] += 1
    return found


def _of_value(document: dict[str, Any]) -> Iterator[str]:
    path, kind = document["path"], document.get("kind")
    place = "/".join(_number_re.sub("N", path).split("/")[:4])
    if "error" in document:
        yield f"{place}: {_number_re.sub('N', str(document['error']['message']))}"
    elif kind in ("Text", "Bytes") and document["value"] and not _PLAIN.fullmatch(path):
        yield f"{place}: {kind}, no kind of value"
    yield from (f"{place}: {kind}: unknown field {name}" for name in _unknown_fields(document["value"], ""))


def _unknown_fields(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of unknown protobuf fields in a document."""
    if isinstance(value, list):
        for member in value:
            yield from _unknown_fields(member, path)
    elif isinstance(value, dict):
        for name, member in value.items():
            if name == UNKNOWN_FIELDS:
                yield from (f"{path}{each['number']}" for each in member)
            else:
                yield from _unknown_fields(member, f"{path}{name}.")


def main(version: str, directory: str) -> int:
    """Make the capture unless it exists, and print what is not understood in it."""
    folder = Path(directory) / f"pulsar-{version}"
    if not folder.exists():
        try:
            jars.resolve(version)
        except jars.NoJars as error:
            print(f"{version}: no capture, {error}", file=sys.stderr)
            return 3
        capture.make(version, folder)
    topics = sorted(json.loads((folder / "truth.json").read_text()))
    found = values_not_understood(folder) + entries_not_understood(folder, topics)
    for line, count in sorted(found.items()):
        print(f"{count}\t{line}")
    print(f"{folder}: {len(found)} kinds of things are not understood", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
