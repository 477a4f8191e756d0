"""Run a rewrite, from the values that a command selects to the report.

`run` decides about each value (`rules`, in a separate process for many values: `worker`), checks the
`guards`, records the old bytes (`undo_log`), sends the new ones (`apply`) and reports. `preview` does the
same up to the undo records. `undo_path` finds the undo file with which a run resumes.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from pulsar_meta.codecs.errors import GuardError, PulsarMetaError, UsageError
from pulsar_meta.jobs.rewrite.apply import EPHEMERAL, READ_GROUP, Batches, Sender, Speed, Stop, chunks
from pulsar_meta.jobs.rewrite.decision import NAMED, Anew, Change, Decided, Rule, Summary, by_rule, skip
from pulsar_meta.jobs.rewrite.guards import Guards, Overrides
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.rewrite.run_files import StoreIdentity, check_identity, read_identity
from pulsar_meta.jobs.rewrite.undo_log import UndoLog, is_finished, is_unused, read_header
from pulsar_meta.jobs.rewrite.worker import decide_ahead
from pulsar_meta.stores.base import Store, Versioned, current


def undo_directory() -> Path:
    """Return the directory of undo files (not made yet). Source: XDG Base Directory Specification 0.8.

    Raises UsageError if the user has no home directory, as in some containers, and none is named.
    """
    named, home = os.environ.get("XDG_STATE_HOME", ""), os.path.expanduser("~")
    if os.path.isabs(named):
        return Path(named, "pulsar-meta", "undo")
    if not os.path.isabs(home):
        raise UsageError("you have no home directory for undo files: set XDG_STATE_HOME")
    return Path(home, ".local", "state", "pulsar-meta", "undo")


def new_undo_path(command: str) -> Path:
    """Return the name of an undo file that no other run has."""
    now = time.time_ns()
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now // 10**9))
    return undo_directory() / f"{stamp}.{now % 10**9:09d}-{command}-{os.getpid()}.ndjson"


def undo_paths() -> Iterator[Path]:
    """Yield the undo files in the state directory, the newest first."""
    directory = undo_directory()
    if directory.is_dir():
        yield from sorted(directory.glob("*.ndjson"), reverse=True)


def undo_path(command: str, store: StoreIdentity, *, named: Path | None, resume: bool) -> Path:
    """Return the undo file of a run: the named one, that of the killed run to resume, or a new one.

    Raises UsageError if there is nothing to resume.
    """
    if named is not None:
        return named
    if not resume:
        return new_undo_path(command)
    unused = None
    for path in undo_paths():
        if _continues(path, command, store):
            return path
        if unused is None and f"-{command}-" in path.name and is_unused(path):
            unused = path
    if unused is not None:
        return unused
    raise UsageError(
        f"--resume: no unfinished {command} of this store in {undo_directory()} (--undo-file names one)"
    )


def _continues(path: Path, command: str, store: StoreIdentity) -> bool:
    try:
        header = read_header(path)
        check_identity(header["store"], store, source=str(path), allowed=False)
    except PulsarMetaError:
        return False
    return header.get("command") == command and not is_finished(path)


def _ignore(text: str) -> None:
    """Drop a message."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The writes that a command wants.

    `decided` is called once for each pass over the store; `decide` decides again about a value that has
    changed since. If `single`, a refusal of the only value ends the run. If `with_new`, the plan contains
    the new values. `codec` is the codec that the run applies, if that is its purpose. `counters` has the
    minimums of sequential nodes below these paths, which are set before the first value is written;
    `further` returns more of them for the changes that are about to be sent. Counters never decrease, not
    even by undo.
    """

    command: str
    decided: Callable[[Batches], Generator[Decided]]
    decide: Anew
    single: bool = False
    with_new: bool = False
    codec: str | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    further: Callable[[Sequence[Change]], Mapping[str, int]] = lambda changes: {}


def rewrite_values(
    command: str,
    values: Callable[[], Iterable[Versioned]],
    rule: Rule,
    *,
    first: Rule | None = None,
    codec: str | None = None,
) -> Rewrite:
    """Make a rewrite that applies `rule` to many values, and decides ahead if there are many.

    `first`: the rule for values as they are first met.
    """
    chosen = first or rule
    return Rewrite(
        command,
        lambda batches: decide_ahead(values(), chosen, ahead=batches.width > 1),
        by_rule(rule),
        codec=codec,
    )


def rewrite_one(command: str, store: Store, path: str, rule: Rule) -> Rewrite:
    """Make a rewrite that applies `rule` to the value at `path`."""

    def decided(batches: Batches) -> Generator[Decided]:
        seen = current(store, path)
        yield seen, rule(seen)

    return Rewrite(command, decided, by_rule(rule), single=True, with_new=True)


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a run.

    `versions` are the releases that will read the values, by default those of the registered brokers. Without
    `undo_file`, a new file in the state directory is used. `resume` continues a run that was killed.
    """

    overrides: Overrides = field(default_factory=Overrides)
    versions: tuple[str, ...] = ()
    undo_file: Path | None = None
    resume: bool = False
    speed: Speed = field(default_factory=Speed)

    def guards(self, store: Store) -> Guards:
        """Return the guards of a store under these terms."""
        return Guards.of(store, self.overrides, Readers.of(store, self.versions))


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is kept informed: of values left alone, of the progress, and of a run that an error ends."""

    warn: Callable[[str], None] = _ignore
    progress: Callable[[int, Summary], None] = lambda count, summary: None
    halted: Callable[[Path, BaseException], None] = lambda undo_file, error: None


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run. `written` is True if the undo file exists; `signal` is what stopped it early."""

    summary: Summary
    undo_path: Path | None = None
    written: bool = False
    signal: int | None = None

    @property
    def undo_file(self) -> str | None:
        """The undo file's name, None if nothing was written."""
        return str(self.undo_path) if self.written else None


def run(store: Store, rewrite: Rewrite, terms: Terms, listener: Listener) -> Report:
    """Make the writes that the guards allow, and report.

    Raises UsageError if the undo file exists, GuardError while a migration runs, and UnreachableError if the
    connection is lost. The undo file then has all values written so far, and `listener.halted` gets its name.
    """
    identity = read_identity(store)
    path = undo_path(rewrite.command, identity, named=terms.undo_file, resume=terms.resume)
    undo = UndoLog(path, rewrite.command, identity, resume=terms.resume, codec=rewrite.codec)
    summary = Summary()
    guards = terms.guards(store)
    with stop_on_signals() as stop, closing(undo), Batches(store, terms.speed.concurrency) as batches:
        sender = Sender(
            batches,
            guards,
            undo,
            rewrite.decide,
            terms.speed,
            stop,
            summary,
            listener.warn,
            lambda count: listener.progress(count, summary),
            rewrite.single,
            lambda changes: _forward(store, rewrite.further(changes), summary),
        )
        try:
            guards.check_migration()
            # Before the values: a store must never name an id that its generator has yet to give out.
            _forward(store, rewrite.counters, summary)
            with closing(rewrite.decided(batches)) as decided:
                sender.send(decided)
        except BaseException as error:
            if undo.written:
                listener.halted(path, error)
            raise
        return Report(summary, path, undo.written, stop.signal)


def preview(
    store: Store,
    rewrite: Rewrite,
    terms: Terms,
    summary: Summary,
    warn: Callable[[str], None] = _ignore,
    *,
    strict: bool = False,
) -> Iterator[Decided]:
    """Yield the decisions that a run would come to now. Values that a guard would refuse are skipped.

    `strict`: it raises GuardError instead. A migration is left aside.
    """
    guards = terms.guards(store)
    summary.counters = dict(rewrite.counters)
    with Batches(store, terms.speed.concurrency) as batches, closing(rewrite.decided(batches)) as decided:
        yield from _foreseen(decided, guards, summary, warn, strict=strict)


def _foreseen(
    decided: Iterable[Decided],
    guards: Guards,
    summary: Summary,
    warn: Callable[[str], None],
    *,
    strict: bool,
) -> Iterator[Decided]:
    for group in chunks(decided, READ_GROUP):
        changes = [Change.of(*one) for one in group if one[1].action == "rewrite"]
        refused = guards.refusals(changes)
        refused |= guards.of_parents(changes, refused)
        for seen, decision in group:
            refusal = EPHEMERAL if seen.ephemeral else refused.get(seen.path)
            if decision.action == "rewrite" and refusal is not None:
                if strict:
                    raise GuardError(refusal.text, source=seen.path)
                warn(f"{seen.path}: {refusal.text}")
                decision = skip(seen, refusal.reason, decision.codec_before)
            elif decision.note:
                warn(f"{seen.path}: {decision.note}")
            summary.see(seen, decision)
            if decision.action == "rewrite":
                summary.rewrite(decision)
            yield seen, decision


def _forward(store: Store, counters: Mapping[str, int], summary: Summary) -> None:
    """Move counters of sequential nodes forward; the summary has the numbers that come next."""
    for path, floor in counters.items():
        if summary.counters.get(path, 0) < floor:
            summary.counters[path] = store.advance_sequence(path, floor)


def foresee(
    store: Store, rewrite: Rewrite, terms: Terms, warn: Callable[[str], None]
) -> tuple[Summary, list[Decided]]:
    """Return the summary of a run before it starts, and its first writes, to ask for confirmation.

    `warn` gets the values that the run would leave alone. Raises GuardError while a migration runs, or if a
    single value is refused.
    """
    terms.guards(store).check_migration()
    summary, first = Summary(), list[Decided]()
    for seen, decision in preview(store, rewrite, terms, summary, warn, strict=rewrite.single):
        if decision.action == "rewrite" and len(first) < NAMED:
            first.append((seen, decision))
    return summary, first


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Give a `Stop` that the first SIGINT or SIGTERM sets; the second one ends the program as ever."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        stop.signal = number
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in before:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
