"""The questions that a command line of `seek` asks."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING

from pulsar_meta.codecs.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from pulsar_meta.cli.seek_options import Wanted
    from pulsar_meta.jobs.seek.questions import Question
    from pulsar_meta.stores.base import Store

# Kind, target and time to live of a question that still lacks its topic.
Target = tuple[str, int, int | None]


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions without topic, whose topic or namespaces they are about, and questions of a file."""

    topic: str | None
    namespaces: tuple[str, ...]
    targets: tuple[Target, ...]
    listed: tuple[Question, ...]

    def of(self, store: Store, cursor: str | None) -> list[Question]:
        """Return the questions for one cluster, topic by topic; NotFoundError for an empty namespace.

        Of a namespace, with a cursor, those topics count that have it.
        """
        from pulsar_meta.jobs.seek.questions import Question
        from pulsar_meta.jobs.seek.seek import topics_of_namespace

        names = [self.topic] if self.topic else []
        for namespace in self.namespaces:
            names += topics_of_namespace(store, namespace, cursor)
        return [Question(name, *target) for name in names for target in self.targets] + list(self.listed)


def asked(topic: str | None, wanted: Wanted) -> Asked:
    """Return what the command line asks for; UsageError where that is nothing, or has no topic."""
    targets = tuple(_targets(wanted))
    if topic and wanted.namespace:
        raise UsageError("a topic or --namespace, not both")
    if targets and topic is None and not wanted.namespace:
        raise UsageError("which topic? pulsar-meta seek TOPIC --index N")
    if wanted.namespace and not targets:
        raise UsageError("--namespace needs --index, --time or --expired: what is looked for in its topics")
    if not targets and wanted.index_file is None:
        raise UsageError("what is looked for? Give --index, --time, --expired or --index-file")
    listed = _listed(wanted.index_file, topic) if wanted.index_file is not None else ()
    return Asked(topic, tuple(wanted.namespace or ()), targets, listed)


def _targets(wanted: Wanted) -> list[Target]:
    from pulsar_meta.jobs.seek.questions import INDEX, TIME, parse_duration, parse_index, parse_time

    targets: list[Target] = [(INDEX, parse_index(text), None) for text in wanted.index or ()]
    targets += [(TIME, parse_time(text), None) for text in wanted.time or ()]
    if wanted.expired is not None:
        ttl = parse_duration(wanted.expired)
        targets.append((TIME, time_ns() // 1_000_000 - ttl * 1000, ttl))
    return targets


def _listed(file: str, topic: str | None) -> tuple[Question, ...]:
    from pulsar_meta.jobs.seek.questions import read_questions

    source = "stdin" if file == "-" else file
    try:
        with nullcontext(sys.stdin) if file == "-" else Path(file).open(encoding="utf-8") as lines:
            return tuple(read_questions(lines, source, topic))
    except FileNotFoundError as error:
        raise NotFoundError("no such file", source=source) from error
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read the questions: {why}", source=source) from error
