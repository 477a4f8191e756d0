"""Options that several commands share, declared once: stores, entries, topics, the engine.

A command takes a dataclass of options as one parameter. On the command line each of its fields is an option
(`flattened`, which `cli.app` applies to every command).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from pulsar_meta.access.processes import cores
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.inputs import STDIN, read_lines
from pulsar_meta.cli.render.tables import Format
from pulsar_meta.cli.rewriting import WriteOptions
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.jobs.engine import LOCAL, SparkSettings, choose_engine_to_read
from pulsar_meta.jobs.pool import is_worth_processes
from pulsar_meta.jobs.topics.scope import Kind, Scope, select, select_listed
from pulsar_meta.jobs.topics.topic import Ledger
from pulsar_meta.stores.base import Store, Versioned

if TYPE_CHECKING:
    from pulsar_meta.entries.base import EntrySource
    from pulsar_meta.jobs.entries.entry_sources import Sources


StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="The metadata store: snapshot:, dir:, rocksdb:, zk://, zk-files:, etcd://, oxia://."
        " Environment: PULSAR_META_STORE.",
    ),
]
EntriesUrls = Annotated[
    list[str] | None,
    typer.Option(
        "--entries",
        help="Where entries are: bookie-disk:, bookie:, offload:, frames: (repeatable). Environment:"
        " PULSAR_META_ENTRIES.",
    ),
]
OtherStores = Annotated[
    list[str] | None,
    typer.Option(
        "--other-store",
        metavar="URL",
        help="The metadata store of another cluster that keeps its ledgers in the same BookKeeper"
        " (repeatable). Clusters below another root of the same store are found without it.",
    ),
]
IndexProperty = Annotated[
    str, typer.Option("--index-property", help="The ledger property that holds its first index.")
]
ShowPasswords = Annotated[
    bool, typer.Option("--show-passwords", help="Do not redact passwords and other secrets.")
]
# Fields of a Shell that say in what form, and where to, data is written.
OF_OUTPUT = ("output_format", "output", "force")
WHERE = "/a/path, topic NAME, cursor TOPIC NAME, ledger ID, namespace T/N, broker ID."
Where = Annotated[list[str], typer.Argument(help=WHERE)]
AnyWhere = Annotated[list[str] | None, typer.Argument(help=WHERE + " Default: everything.")]


class Codec(StrEnum):
    """The codecs of the envelope."""

    NONE = "none"
    LZ4 = "lz4"
    ZLIB = "zlib"
    ZSTD = "zstd"
    SNAPPY = "snappy"


def property_pairs(texts: list[str]) -> dict[str, str]:
    """Return `KEY=VALUE` options as a dictionary; UsageError for another form or a key given twice."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise UsageError(f"{text!r} is not KEY=VALUE")
        if key in pairs:
            raise UsageError(f"the property {key!r} is given twice")
        pairs[key] = value
    return pairs


def flattened(command: Callable[..., None], forms: Sequence[Format]) -> Callable[..., None]:
    """Return `command` with each parameter that is a dataclass replaced by an option for each of its fields.

    The command's own options come first, those of the shell last, of which `-o` takes only `forms`; without
    any, what the command shows is no data, and the options about its output are left out.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    own = [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(command).parameters.items()
        if name not in groups
    ]
    has_store = "store" in hints
    for kind in sorted(groups.values(), key=lambda kind: kind is Shell):
        own += [option for option in _options(kind) if has_store or option.name != "ledger_store"]
    if not forms:
        own = [option for option in own if option.name not in OF_OUTPUT]

    @wraps(command)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            names = [field.name for field in fields(kind) if field.name in given]
            given[name] = kind(**{option: given.pop(option) for option in names})
            if kind is Shell:
                check_form(given[name], forms)
                check_ledger_store(given[name], given.get("store"))
        command(**given)

    own = [_with_value_name(_with_forms(parameter, forms)) for parameter in own]
    del run.__dict__["__wrapped__"]
    run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in own}
    return run


def check_form(shell: Shell, forms: Sequence[Format]) -> None:
    """Raise UsageError for a form of output that the command does not write."""
    if shell.output_format is not None and shell.output_format not in forms:
        raise UsageError(f"-o {shell.output_format}: this command writes {_either(forms)}")


def check_ledger_store(shell: Shell, store: str | None) -> None:
    """Raise UsageError for --ledger-store where no store is named beside which it is."""
    if shell.ledger_store is not None and store is None and shell.settings.store is None:
        raise UsageError("--ledger-store has /ledgers alone: give --store URL for everything else")


def _with_forms(parameter: inspect.Parameter, forms: Sequence[Format]) -> inspect.Parameter:
    if parameter.name != "output_format":
        return parameter
    text = f"One of {', '.join(forms)}." if len(forms) > 1 else f"Always {forms[0]}."
    if Format.TABLE in forms:
        text += " Default: table on a terminal, else plain."
    return _changed(parameter, help=text, metavar="FORM")


def _either(forms: Sequence[Format]) -> str:
    return " or ".join(part for part in (", ".join(forms[:-1]), forms[-1]) if part)


def _with_value_name(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return the parameter with what help and messages call its value, where it does not say so itself."""
    kind, info = get_args(parameter.annotation)
    if not isinstance(info, OptionInfo) or info.metavar is not None:
        return parameter
    # The first spelling stands where Typer once had the default.
    spellings = [word for word in (info.default, *(info.param_decls or ())) if isinstance(word, str)]
    return _changed(parameter, metavar=_value_name(kind, spellings))


def _changed(parameter: inspect.Parameter, **attributes: Any) -> inspect.Parameter:
    kind, info = get_args(parameter.annotation)
    info = copy(info)
    for name, value in attributes.items():
        setattr(info, name, value)
    return parameter.replace(annotation=Annotated[kind, info])


def _value_name(kind: Any, spellings: Sequence[str]) -> str | None:
    kinds = [member for part in (get_args(kind) or (kind,)) for member in (get_args(part) or (part,))]
    words = [one for one in kinds if isinstance(one, str)]
    for one in kinds:
        if isinstance(one, type) and issubclass(one, Enum):
            words = [str(member.value) for member in one]
    if words:
        return "|".join(words)
    if bool in kinds:
        return None
    if int in kinds or float in kinds:
        return "N"
    return "FILE" if Path in kinds else max(spellings, key=len).rsplit("-", 1)[-1].upper()


def _options(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(kind)
    ]


SCOPE = "Which ones"


@dataclass(frozen=True)
class ScopeOptions:
    """Which topics are meant."""

    tenant: Annotated[
        list[str] | None, typer.Option("--tenant", rich_help_panel=SCOPE, help="Name or glob (repeatable).")
    ] = None
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", rich_help_panel=SCOPE, help="tenant/namespace or glob (repeatable)."),
    ] = None
    topic: Annotated[
        list[str] | None, typer.Option("--topic", rich_help_panel=SCOPE, help="Name or glob (repeatable).")
    ] = None
    stdin: Annotated[
        bool, typer.Option("--stdin", rich_help_panel=SCOPE, help="Topics or paths from stdin, one a line.")
    ] = False

    @property
    def chosen(self) -> bool:
        """Whether anything was given."""
        return self != ScopeOptions()

    def scope(self, cursors: Sequence[str] | None = None) -> Scope:
        """Return the scope that these options and the cursors' names make."""
        return Scope(
            tuple(self.tenant or ()),
            tuple(self.namespace or ()),
            tuple(self.topic or ()),
            tuple(cursors or ()),
        )

    def check_answer(self, writing: WriteOptions) -> None:
        """Raise UsageError where a person would have to answer on the stdin that the list comes from."""
        if self.stdin and sys.stdin.isatty() and not (writing.yes or writing.dry_run):
            raise UsageError(
                "--stdin: the answer could not be read beside the list: give --yes, or --dry-run"
            )

    def values(self, store: Store, kind: Kind, cursors: Sequence[str] | None = None) -> Iterator[Versioned]:
        """Yield the cursors or the ledger records that are meant; all, where nothing was given."""
        if self.stdin:
            return select_listed(store, read_lines(STDIN), self.scope(cursors), kind)
        return select(store, self.scope(cursors), kind)


ENGINE = "Engine"
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        max=9999,
        rich_help_panel=ENGINE,
        help="Processes that read large logs. Default: one a core. Environment: PULSAR_META_JOBS.",
    ),
]


class Engine(StrEnum):
    """What runs the work."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


def processes(shell: Shell, jobs: Jobs, sources: Sources, source: EntrySource) -> int:
    """Return how many processes are to read `source`, which is `sources`: 1 where more are not worth it."""
    count = jobs or shell.settings.jobs or cores()
    return count if count > 1 and is_worth_processes(sources.urls, source) else 1


@dataclass(frozen=True)
class EngineOptions:
    """Whether and how Spark is used."""

    engine: Annotated[
        Engine,
        typer.Option(
            "--engine",
            rich_help_panel=ENGINE,
            help="auto: Spark with --master or for many entries, where Java 17 is installed; else local.",
        ),
    ] = Engine.AUTO
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            rich_help_panel=ENGINE,
            help="Spark's. Default: local[*]. Environment: PULSAR_META_MASTER.",
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", rich_help_panel=ENGINE, help="KEY=VALUE for Spark, repeatable."),
    ] = None

    def spark(self, faults: Faults) -> SparkSettings:
        """Return which Spark is meant, `faults` taking what its workers find damaged.

        UsageError for a --conf that is not KEY=VALUE.
        """
        shell = faults.shell
        master = self.master or shell.settings.master or LOCAL
        return SparkSettings(master, self._conf(), shell.verbose, shell.say, faults)

    def _conf(self) -> dict[str, str]:
        pairs = [text.partition("=") for text in self.conf or ()]
        for key, equals, _ in pairs:
            if not equals or not key:
                raise UsageError(f"--conf is KEY=VALUE, not {key!r}")
        return {key: value for key, _, value in pairs}

    def chosen(
        self, shell: Shell, ledgers: Iterable[Ledger], source: EntrySource, entries: int | None = None
    ) -> str:
        """Return "local" or "spark" for a command that reads these ledgers; say why `auto` cannot.

        `entries` is how many entries they claim, where somebody has counted them.
        """
        chosen, why = choose_engine_to_read(str(self.engine), ledgers, source, self.master, entries)
        if why:
            shell.say(why)
        return chosen
