"""`bundle`: what somebody who is asked for help has to see, in one file."""

from __future__ import annotations

import platform
import re
import tarfile
import tempfile
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import IO, Annotated, Final, TypedDict

import typer

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.options import StoreUrl
from pulsar_meta.cli.outputs import whole_file
from pulsar_meta.cli.render.tables import Detail, write_json, write_ndjson
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.check.checkup import Checkup, checkup
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.jobs.values.snapshot import take_snapshot
from pulsar_meta.stores.base import Store

SNAPSHOT: Final = "snapshot.ndjson.zst"
FINDINGS: Final = "findings.ndjson"
VERSIONS: Final = "versions.json"


def bundle(
    shell: Shell,
    file: Annotated[Path, typer.Argument(help="Where to write it: a tar file, packed with gzip.")],
    store: StoreUrl = None,
) -> None:
    """Put into one file what somebody who is asked for help has to see: the store, its faults, versions.

    The snapshot is written as by `snapshot --redact`: passwords and other secrets are left out, names of
    topics and subscriptions are in it. Look before you send it: `tar -xzf FILE`, then any command with
    `--store snapshot:snapshot.ndjson.zst`.

    Examples:
      pulsar-meta bundle report.tar.gz --store zk://zk1:2181
    """
    with shell.store(store) as opened, tempfile.TemporaryDirectory(prefix="pulsar-meta-bundle-") as scratch:
        folder = Path(scratch)
        run, document = _write_parts(shell, opened, folder)
        with whole_file(file, "wb") as out:
            _pack(folder, out)
    shell.emit([{"file": str(file), **document}], Detail(_lines), single=True)
    shell.account(run.counts, run.not_checked)
    if not document["values"]:
        raise NotFoundError("the store has no values", source=opened.url)


class Contents(TypedDict):
    """How much is in a bundle."""

    values: int
    findings: int


class WrittenBundle(Contents):
    """A bundle that was written."""

    file: str


# What ran, in `versions.json`; `packages` are those that were installed, by name.
Versions = TypedDict(
    "Versions",
    {"pulsar-meta": str, "python": str, "platform": str, "store": str, "packages": dict[str, str]},
)


def _write_parts(shell: Shell, store: Store, folder: Path) -> tuple[Checkup, Contents]:
    """Write the files of the bundle; return the run of check, and how much there is."""
    versions = _versions(store)
    with shell.progress(unit="values") as progress, open(folder / FINDINGS, "w", encoding="utf-8") as out:
        tool = f"pulsar-meta {versions['pulsar-meta']}"
        taken = take_snapshot(store, folder / SNAPSHOT, tool=tool, redact=True, progress=progress.advance)
        run = checkup(store, None, (), CheckOptions(), progress.advance)
        findings = 0
        for finding in run.findings():
            findings += 1
            write_ndjson([finding.document()], out)
        write_ndjson([{"checked": run.counts, "not_checked": run.not_checked}], out)
    with open(folder / VERSIONS, "w", encoding="utf-8") as out:
        write_json([versions], out, single=True)
    return run, {"values": taken.sums.values, "findings": findings}


def _versions(store: Store) -> Versions:
    """Return what ran: the package, what it stands on, Python, the machine, and the store's URL, redacted."""
    needed = {re.split(r"[^\w.-]", one, maxsplit=1)[0] for one in requires("pulsar-meta") or ()}
    return {
        "pulsar-meta": version("pulsar-meta"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "store": redact(store.url),
        "packages": {name: found for name in sorted(needed) if (found := _version(name)) is not None},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _pack(folder: Path, out: IO[bytes]) -> None:
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, path.name)


def _lines(document: Document) -> list[str]:
    values, findings = document["values"], document["findings"]
    return [f"{values} values and {findings} findings in {document['file']}: look into it before you send it"]
