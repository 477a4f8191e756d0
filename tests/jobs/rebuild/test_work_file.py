"""The work file of a rebuild: facts about ledgers are read back unchanged, or the file is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import ConflictError, DecodeError, PulsarMetaError, UsageError
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.rebuild.scan import LedgerScan, WorkFile, local_scanner, work_file_head


def never(ledger_ids: Iterable[int]) -> Iterator[LedgerScan]:
    raise AssertionError(f"looked at again: {ledger_ids}")


@pytest.fixture
def disks(capture: Callable[[str], Path], tmp_path: Path) -> list[str]:
    return [f"bookie-disk:{shutil.copytree(capture('transactions-4.2.4'), tmp_path / 'disks')}"]


def opened(
    path: Path, disks: list[str], *, resume: bool = True, lost: tuple[str, ...] = (), password: bytes = b""
) -> WorkFile:
    head = work_file_head(disks, lost, password, tool="x", taken="now")
    return WorkFile(path, head, password, resume=resume)


def test_scans_are_read_back_unchanged(disks: list[str], tmp_path: Path) -> None:
    path, faults = tmp_path / "found.work", list[PulsarMetaError]()
    torn = DecodeError("torn", offset=7, source="log"), UsageError("odd")
    with open_entries(disks) as source, opened(path, disks, resume=False) as work:
        ledgers = source.ledgers()
        here = local_scanner(source, faults.append, password=b"", lost=())
        scans = list(work.keeping(here, faults.append)(ledgers))
        with_faults = LedgerScan(scans[0].examined, scans[0].kind, scans[0].clues, torn)
        list(work.keeping(lambda ids: iter([with_faults]), faults.append)([10**15]))
    assert path.stat().st_mode & 0o777 == 0o600
    assert {type(scan.clues).__name__ for scan in scans} > {"DataClues", "LogClues", "CursorClues"}
    with opened(path, disks) as work:
        assert list(work.keeping(never, faults.append)(ledgers[1:])) == scans[1:]
        scan = next(work.keeping(never, faults.append)([ledgers[0]]))
        assert [(type(fault), str(fault), fault.source) for fault in scan.faults] == [
            (DecodeError, "log: torn (at byte 7)", "log"),
            (UsageError, "odd", None),
        ]
        assert faults == list(scan.faults)
        with pytest.raises(ConflictError):
            opened(path, disks)
        work.remove()
    assert not path.exists()


@pytest.fixture
def begun(disks: list[str], tmp_path: Path) -> Path:
    path = tmp_path / "found.work"
    with open_entries(disks) as source, opened(path, disks, resume=False) as work:
        scanner = work.keeping(local_scanner(source, print, password=b"", lost=()), print)
        list(scanner(source.ledgers()[:3]))
    return path


def test_other_disks_or_options_are_refused(disks: list[str], begun: Path) -> None:
    with pytest.raises(UsageError, match="--resume"):
        opened(begun, disks, resume=False)
    with pytest.raises(UsageError, match="lost changed"):
        opened(begun, disks, lost=("bk:1",))
    with pytest.raises(UsageError, match="password changed"):
        opened(begun, disks, password=b"x")
    log = next(Path(disks[0].partition(":")[2]).rglob("*.log"))
    log.touch()
    with pytest.raises(UsageError, match="disks changed"):
        opened(begun, disks)


def test_a_truncated_line_is_scanned_again(disks: list[str], begun: Path) -> None:
    lines = begun.read_bytes().splitlines(keepends=True)
    begun.write_bytes(b"".join(lines)[:-5])
    with opened(begun, disks) as work:
        assert work.kept == 2
    begun.write_bytes(lines[0][:9])
    with opened(begun, disks) as work:
        assert work.kept == 0
    assert begun.read_bytes().startswith(b'{"rebuild":4')
    begun.write_bytes(begun.read_bytes().replace(b'"taken"', b'"token"'))
    with pytest.raises(DecodeError, match="start time is missing"):
        opened(begun, disks)


EXAMINED = '["ExaminedLedger",1,2,3,4,null,[],[],[],null,false,[]]'


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "{}",
        '{"ledger":["LedgerScan"]}',
        '{"ledger":["os.system","x"]}',
        '{"ledger":["LedgerScan",["ExaminedLedger",1,2,"3",4,null,[],[],[],null,false],"data",null,[]]}',
        '{"ledger":["LedgerScan",["ExaminedLedger",1,2,3,4,null,[],[],[],"%",false],"data",null,[]]}',
        f'{{"ledger":["LedgerScan",{EXAMINED},"no such kind",null,[]]}}',
        f'{{"ledger":["LedgerScan",{EXAMINED},"data",["Kind"],[]]}}',
        f'{{"ledger":["LedgerScan",{EXAMINED},"data",null,[["Exit",1,2,3]]]}}',
        f'{{"ledger":["LedgerScan",{EXAMINED},"data",null,[5]]}}',
    ],
)
def test_lines_that_no_rebuild_wrote_are_refused(disks: list[str], begun: Path, line: str) -> None:
    begun.write_text(f"{begun.read_text()}{line}\n")
    with pytest.raises(DecodeError, match="line 5"):
        opened(begun, disks)
