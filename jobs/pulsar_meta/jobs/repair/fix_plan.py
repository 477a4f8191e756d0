"""One plan of all repairs that `check` prints for a store.

The repairs are tried on a copy-on-write view of the store. Then the view is checked again, until nothing is
left that a command could repair. So the plan knows which values change in all, and which findings stay.

In each round, a repair is put off if another kind of repair has already changed its topic or ledger. It runs
later only if `check` still prints its command. That resolves conflicts, such as two topics that both should
give up a ledger. A repair that would bring back a value that an earlier one replaced is left out.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pulsar_meta.access.files import bounded_lines
from pulsar_meta.codecs.errors import (
    ConflictError,
    DecodeError,
    PulsarMetaError,
    UnreachableError,
    UsageError,
    decoding,
)
from pulsar_meta.codecs.json_text import Document, dumps, read_json_object
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.codes import Finding
from pulsar_meta.jobs.repair.adopt import repair_adopt
from pulsar_meta.jobs.repair.compaction import repair_compaction
from pulsar_meta.jobs.repair.count import repair_count, repair_termination
from pulsar_meta.jobs.repair.cursor import repair_cursor
from pulsar_meta.jobs.repair.generator import repair_generator, repair_offload, repair_partitions
from pulsar_meta.jobs.repair.ledger_metadata import repair_ledger_metadata
from pulsar_meta.jobs.repair.missing_ledger import drop_ledger, skip_entries
from pulsar_meta.jobs.repair.repair import Repair
from pulsar_meta.jobs.repair.schema import repair_schema
from pulsar_meta.jobs.repair.topic_record import repair_topic_record
from pulsar_meta.jobs.rewrite.apply import Batches
from pulsar_meta.jobs.rewrite.decision import Decided, by_rule, content, digest, write
from pulsar_meta.jobs.rewrite.plan import leave_moved
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.rewrite.rules import recode
from pulsar_meta.jobs.rewrite.run import Rewrite
from pulsar_meta.jobs.rewrite.run_files import check_file, check_identity, read_identity
from pulsar_meta.jobs.topics.topic import Report
from pulsar_meta.stores.base import Store, current
from pulsar_meta.stores.memory import OverlayStore

FORMAT: Final = 1
# Repairs that others rely on come first.
ORDER: Final = (
    *("generator", "partitions", "topic-record", "ledger-metadata", "adopt", "termination", "count"),
    *("offload", "missing-ledger", "compaction", "schema", "cursor", "compress-cursors", "compress-ledgers"),
)
ROUNDS: Final = 12
_FLAGS: Final = frozenset(("--drop", "--again", "--at-end", "--only-absent"))


@dataclass(frozen=True, slots=True)
class Step:
    """A repair of a plan: its command, what it found out, what it makes unreachable, which values it changes.

    `confirm` is the name that confirms its losses, None if there are none.
    """

    command: str
    said: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    confirm: str | None = None
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FixPlan:
    """The steps in order, the changed values, the commands that are left out and why, and what stays."""

    steps: tuple[Step, ...]
    view: OverlayStore
    left_out: Mapping[str, str] = field(default_factory=dict)
    stays: tuple[Finding, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names that have to be written out, because steps make data unreachable."""
        return list(dict.fromkeys(step.confirm for step in self.steps if step.confirm is not None))

    def decided(self) -> Iterator[Decided]:
        """Yield each changed value of the store with what becomes of it."""
        for path, value in self.view.changed.items():
            seen = current(self.view.base, path)
            new = None if value is None else value.value
            if content(seen) != new:
                yield seen, write(seen, new)

    def rewrite(self) -> Rewrite:
        """Return the plan as one rewrite, which is undone as one."""

        def decided(batches: Batches) -> Generator[Decided]:
            yield from self.decided()

        counters = self.view.counters
        return Rewrite("repair-plan", decided, by_rule(leave_moved), with_new=True, counters=counters)

    def lines(self) -> Iterator[Document]:
        """Yield the plan as the lines of its file."""
        yield {"fix_plan": FORMAT, "store": read_identity(self.view.base).document()}
        for step in self.steps:
            yield {
                "command": step.command,
                "said": list(step.said),
                "losses": list(step.losses),
                "confirm": step.confirm,
            }
        for seen, decision in self.decided():
            yield {
                "path": seen.path,
                "effect": decision.effect,
                "old_sha256": digest(content(seen)),
                "new_sha256": digest(decision.new),
            }
        for path, number in self.view.counters.items():
            yield {"counter": path, "next": number}
        for command, why in self.left_out.items():
            yield {"left_out": command, "why": why}
        for finding in self.stays:
            yield {"stays": finding.document()}


@dataclass(slots=True)
class Planner:
    """Tries repairs on a view of a store. `others` are stores of other clusters in the same BookKeeper."""

    store: Store
    source: EntrySource | None
    readers: Readers
    report: Report
    others: Sequence[Store] = ()
    view: OverlayStore = field(init=False)
    steps: list[Step] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    _earlier: dict[str, set[str | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.view = OverlayStore(self.store)

    def plan(self, check: Callable[[Store], Iterable[Finding]]) -> FixPlan:
        """Plan the repairs that `check` prints for a store. Raises UnreachableError."""
        findings = list(check(self.view))
        for _ in range(ROUNDS):
            if not self._round(findings):
                break
            findings = list(check(self.view))
        reasons = dict.fromkeys(
            (step.command for step in self.steps), "it is in the plan, but does not repair everything"
        )
        reasons |= self.left_out
        printed = dict.fromkeys(finding.repair for finding in findings if finding.repair is not None)
        left_out = {
            command: reasons.get(command, "the limit of repair rounds was reached") for command in printed
        }
        return FixPlan(tuple(self.steps), self.view, left_out, tuple(findings))

    def replay(self, commands: Iterable[str]) -> FixPlan:
        """Run the commands of a plan again. Raises the first error."""
        for command in commands:
            self._apply(command, self._repair(command))
        return FixPlan(tuple(self.steps), self.view)

    def _round(self, findings: Sequence[Finding]) -> bool:
        """Run the commands that don't interfere with each other. Return whether one of them was run."""
        topics, ledgers = dict[str, str](), dict[int, tuple[str, str | None]]()
        known = {step.command for step in self.steps} | self.left_out.keys()
        before = len(self.steps)
        for verb, finding in self._ordered(findings):
            command, owner = finding.repair or "", (verb, finding.topic)
            waits = topics.get(finding.topic or "", verb) != verb
            if command in known or waits or ledgers.get(finding.ledger_id or -1, owner) != owner:
                continue
            known.add(command)
            self._try(command)
            topics[finding.topic or ""] = verb if finding.topic else ""
            ledgers[finding.ledger_id or -1] = owner
            # Findings without a topic or a ledger never wait for each other.
            topics.pop("", None)
            ledgers.pop(-1, None)
        return len(self.steps) > before

    def _ordered(self, findings: Iterable[Finding]) -> list[tuple[str, Finding]]:
        """Return the findings with a command that a plan can run, in the order of the commands."""
        wanted = list[tuple[str, Finding]]()
        for finding in findings:
            if finding.repair is not None:
                try:
                    wanted.append((verb_of(finding.repair), finding))
                except UsageError as error:
                    self.left_out[finding.repair] = error.message
        return sorted(wanted, key=lambda pair: ORDER.index(pair[0]))

    def _try(self, command: str) -> None:
        try:
            repair = self._repair(command)
        except UnreachableError:
            raise
        except PulsarMetaError as error:
            self.left_out[command] = error.message
            return
        undecided = [decision.note for _, decision in repair.decided if decision.action == "skip"]
        written = [(seen, decision) for seen, decision in repair.decided if decision.action == "rewrite"]
        back = [
            seen.path
            for seen, decision in written
            if digest(decision.new) in self._earlier.get(seen.path, ())
        ]
        if back:
            self.left_out[command] = f"conflict: it would undo what an earlier repair wrote at {back[0]}"
        elif written or repair.counters:
            self._apply(command, repair)
        else:
            self.left_out[command] = next(filter(None, undecided), "it would change nothing")

    def _apply(self, command: str, repair: Repair) -> None:
        paths = []
        for seen, decision in repair.decided:
            if decision.action != "rewrite":
                continue
            self._earlier.setdefault(seen.path, set()).add(digest(content(seen)))
            if decision.new is None:
                self.view.delete(seen.path, seen.version)
            else:
                self.view.put(seen.path, decision.new, seen.version)
            paths.append(seen.path)
        for path, number in repair.counters.items():
            self.view.advance_sequence(path, number)
        confirm = repair.confirm if repair.losses else None
        self.steps.append(Step(command, repair.said, repair.losses, confirm, tuple(paths)))

    def _repair(self, command: str) -> Repair:
        """Run a printed command on the view. Raises UsageError for any other command."""
        words = shlex.split(command)[1:]
        verb = verb_of(command)
        flags = _FLAGS.intersection(words)
        if verb.startswith("compress-"):
            return self._compress(verb, _options(words))
        names = [word for word in words[2:] if word not in _FLAGS]
        if any(name.startswith("--") or name == "LEDGER:ENTRY" for name in names):
            raise UsageError("it needs a decision: fill in the position and run it by hand")
        return self._run(verb, names, flags)

    def _run(self, verb: str, names: list[str], flags: frozenset[str]) -> Repair:
        if verb == "generator":
            return repair_generator(self.view, self.source, self.report, None)
        if verb == "ledger-metadata":
            again = "--again" in flags
            return repair_ledger_metadata(self.view, self.source, names, self.report, again=again)
        return _OF_TOPICS[verb](self, TopicName.parse(names[0]), names[1:], flags)

    def _compress(self, verb: str, options: Mapping[str, str]) -> Repair:
        topic, cursor = TopicName.parse(options["--topic"]), options.get("--cursor")
        path = topic.path if cursor is None else topic.cursor_path(cursor)
        seen = current(self.view, path)
        decision = recode("cursor" if cursor is not None else "ledger", seen, options["--compression"])
        return Repair(verb, ((seen, decision),))


_OF_TOPICS: Final[Mapping[str, Callable[[Planner, TopicName, list[str], frozenset[str]], Repair]]] = {
    "partitions": lambda run, topic, names, flags: repair_partitions(run.view, topic, None),
    "topic-record": lambda run, topic, names, flags: repair_topic_record(
        run.view, run.source, topic, run.report, run.readers, others=run.others
    ),
    "termination": lambda run, topic, names, flags: repair_termination(
        run.view, run.source, topic, at_end="--at-end" in flags, readers=run.readers
    ),
    "count": lambda run, topic, names, flags: repair_count(
        run.view, run.source, topic, list(map(int, names)), run.readers
    ),
    "offload": lambda run, topic, names, flags: repair_offload(
        run.view, run.source, topic, list(map(int, names)), run.readers
    ),
    "missing-ledger": lambda run, topic, names, flags: (
        skip_entries(run.view, run.source, topic, int(names[0]), None, run.readers)
        if "--only-absent" in flags
        else drop_ledger(run.view, topic, int(names[0]), run.readers)
    ),
    "compaction": lambda run, topic, names, flags: repair_compaction(
        run.view, run.source, topic, run.readers, drop="--drop" in flags
    ),
    "adopt": lambda run, topic, names, flags: repair_adopt(
        run.view, run.source, topic, int(names[0]), run.report, run.readers, others=run.others
    ),
    "schema": lambda run, topic, names, flags: repair_schema(run.view, run.source, topic),
    "cursor": lambda run, topic, names, flags: repair_cursor(
        run.view, run.source, topic, names[0], None, run.readers
    ),
}


def verb_of(command: str) -> str:
    """Return the subcommand of `repair`, or the command itself. Raises UsageError if check prints no such."""
    words = shlex.split(command)[1:3]
    verb = words[1] if words[:1] == ["repair"] and len(words) > 1 else "".join(words[:1])
    if verb not in ORDER:
        raise UsageError(f"{command}: not a command that check prints")
    return verb


def _options(words: Sequence[str]) -> dict[str, str]:
    pairs = dict(zip(words[1::2], words[2::2], strict=False))
    if not {"--topic", "--compression"} <= pairs.keys() <= {"--topic", "--cursor", "--compression"}:
        raise UsageError(f"{shlex.join(words)}: not a command that check prints")
    return pairs


def write_plan(plan: FixPlan, file: Path) -> None:
    """Write a plan to a file. Raises UsageError if the file can't be written."""
    text = "".join(f"{dumps(line)}\n" for line in plan.lines())
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"can't write the plan: {error.strerror}", source=str(file)) from error


def read_plan(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a plan. Raises DecodeError, NotFoundError."""
    check_file(file)
    with file.open("rb") as stream, decoding(str(file)):
        lines = [read_json_object(line) for line in bounded_lines(stream)]
    if not lines or lines[0].get("fix_plan") != FORMAT or not isinstance(lines[0].get("store"), dict):
        raise DecodeError("not a plan of check --fix-plan", source=str(file))
    return lines


def replayed(planner: Planner, file: Path, *, other_store: bool = False) -> FixPlan:
    """Run the commands of a plan on a view of the store as it is now.

    A plan can't make the commands do anything else: values are computed again and compared with the plan.
    Raises ConflictError if they differ, GuardError for a plan of another store, and UsageError for commands
    that check doesn't print.
    """
    lines = read_plan(file)
    identity = read_identity(planner.store)
    check_identity(lines[0]["store"], identity, source=str(file), allowed=other_store)
    plan = planner.replay(str(line["command"]) for line in lines if "command" in line)
    expected = {line["path"]: (line["old_sha256"], line["new_sha256"]) for line in lines if "path" in line}
    found = {seen.path: (digest(content(seen)), digest(decision.new)) for seen, decision in plan.decided()}
    different = [path for path in {**expected, **found} if expected.get(path) != found.get(path)]
    if different:
        raise ConflictError(
            f"{different[0]} has changed since the plan was made, or the entries differ: run check"
            " --fix-plan again",
            source=str(file),
        )
    return plan
