"""Options that several commands share, declared once: stores, entries, topics, the engine.

A command takes a dataclass of options as one parameter. On the command line each of its fields is an option
(`expand_option_groups`, which `cli.app` applies to every command).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.render.tables import Format, Template, parse_template
from pulsar_meta.cli.shell import Shell
from pulsar_meta.cli.streams import STDIN, read_lines
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.text_bytes import TEXT_FORMS, TextForm

# Imported where they are used, because every command imports this module and few need the topic model.
if TYPE_CHECKING:
    from pulsar_meta.cli.rewriting import WriteOptions
    from pulsar_meta.entries.base import EntrySource
    from pulsar_meta.jobs.engine import SparkSettings
    from pulsar_meta.jobs.entries.entry_sources import Sources
    from pulsar_meta.jobs.topics.scope import Kind, Scope
    from pulsar_meta.jobs.topics.topic import Ledger
    from pulsar_meta.stores.base import Store, Versioned


StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Metadata store (zk://, etcd://, oxia://, rocksdb:, zk-files:, snapshot:, dir:), an address from"
        " broker.conf, or a path. Environment: PULSAR_META_STORE.",
    ),
]
EntriesUrls = Annotated[
    list[str] | None,
    typer.Option(
        "--entries",
        metavar="URL",
        help="Source of entries (bookie-disk:, bookie:, offload:, frames:), repeatable. Environment:"
        " PULSAR_META_ENTRIES.",
    ),
]
OtherStores = Annotated[
    list[str] | None,
    typer.Option(
        "--other-store",
        metavar="URL",
        help="Metadata store URL of another cluster that keeps its ledgers in the same BookKeeper"
        " (repeatable). Clusters below other roots of --store are found automatically.",
    ),
]
IndexProperty = Annotated[
    str, typer.Option("--index-property", help="Ledger property that holds the ledger's first index.")
]
TopicNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC|NAMESPACE", help="Topics, or tenant/namespace.", show_default=False),
]
EntryNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC|NAMESPACE|LEDGER",
        help="Topics, tenant/namespace (both with --store) or ledgers. Default: all entries.",
    ),
]
AllTopics = Annotated[bool, typer.Option("--all", help="All topics.")]
AllOfStore = Annotated[bool, typer.Option("--all", help="All topics of the store.")]
ShowSecrets = Annotated[
    bool, typer.Option("--show-secrets", "--show-passwords", help="Show passwords and other secrets.")
]
# The fields of a Shell for the format and destination of data.
OUTPUT_FIELDS = ("output_format", "output", "force")
PLACE_HELP = "/a/path, topic NAME, cursor TOPIC NAME, ledger ID, namespace T/N, broker ID."
PlaceArgument = Annotated[list[str], typer.Argument(help=PLACE_HELP)]
OptionalPlace = Annotated[list[str] | None, typer.Argument(help=PLACE_HELP + " Default: everything.")]


LineTemplate = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="TEMPLATE",
        help="Line per entry, such as '{ledger_id}:{entry_id}'; with \\t and \\n.",
    ),
]


def chosen_template(shell: Shell, text: str | None, types: Mapping[str, str]) -> Template | None:
    """Return the template of --format, if given. Raises UsageError if it is combined with -o."""
    if text is None:
        return None
    template = parse_template(text, types)
    if shell.output_format not in (None, Format.PLAIN):
        raise UsageError("--format and -o can't be combined: remove -o")
    return template


@dataclass(frozen=True)
class TextOptions:
    """Options for values that a tool printed as text."""

    hex: Annotated[bool, typer.Option("--hex", help="The input is hexadecimal digits.")] = False
    base64: Annotated[
        bool, typer.Option("--base64", help="The input is base64: standard or URL-safe, padded or not.")
    ] = False
    escaped: Annotated[bool, typer.Option("--escaped", help=r"The input has escapes such as \x08 or \n.")] = (
        False
    )

    @property
    def form(self) -> TextForm | None:
        """The form of the input; None for bytes. Raises UsageError if two are given."""
        forms = [form for form in TEXT_FORMS if getattr(self, form)]
        if len(forms) > 1:
            first, second = forms[:2]
            raise UsageError(f"--{first} and --{second} can't be combined: remove one of them")
        return forms[0] if forms else None


class Codec(StrEnum):
    """The codecs of the envelope."""

    NONE = "none"
    LZ4 = "lz4"
    ZLIB = "zlib"
    ZSTD = "zstd"
    SNAPPY = "snappy"


def property_pairs(texts: list[str]) -> dict[str, str]:
    """Parse `KEY=VALUE` options. Raises UsageError for any other text, or if a key is given twice."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise UsageError(f"invalid property {text!r}: expected KEY=VALUE")
        if key in pairs:
            raise UsageError(f"the property {key!r} is given twice")
        pairs[key] = value
    return pairs


def expand_option_groups(command: Callable[..., None], forms: Sequence[Format]) -> Callable[..., None]:
    """Wrap a command so that each dataclass parameter becomes one option for each of its fields.

    The command's own options come first and the common options last. `-o` accepts only `forms`; if there are
    none, the command prints no data and gets no options for output.
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
        own += [option for option in _fields_as_options(kind) if has_store or option.name != "ledger_store"]
    if not forms:
        own = [option for option in own if option.name not in OUTPUT_FIELDS]
    if Format.PLAIN not in forms:
        own = [option for option in own if option.name != "header"]

    @wraps(command)
    def run(**values: Any) -> None:
        for name, kind in groups.items():
            names = [field.name for field in fields(kind) if field.name in values]
            values[name] = kind(**{option: values.pop(option) for option in names})
            if kind is Shell:
                check_form(values[name], forms)
                check_ledger_store(values[name], values.get("store"))
        command(**values)

    own = [_with_value_name(_with_forms(parameter, forms)) for parameter in own]
    del run.__dict__["__wrapped__"]
    run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in own}
    return run


def check_form(shell: Shell, forms: Sequence[Format]) -> None:
    """Raise UsageError if the command doesn't support the format of -o."""
    if shell.output_format is not None and shell.output_format not in forms:
        raise UsageError(f"invalid -o {shell.output_format}: choose {join_with_or(forms)}")


def check_ledger_store(shell: Shell, store: str | None) -> None:
    """Raise UsageError for --ledger-store without a store."""
    if shell.ledger_store is not None and store is None and shell.settings.store is None:
        raise UsageError("--ledger-store has only /ledgers: add --store URL for everything else")


def _with_forms(parameter: inspect.Parameter, forms: Sequence[Format]) -> inspect.Parameter:
    if parameter.name != "output_format":
        return parameter
    text = f"One of {', '.join(forms)}." if len(forms) > 1 else f"Always {forms[0]}."
    if Format.TABLE in forms:
        text += " The default is table on a terminal, else plain."
    return _changed(parameter, help=text, metavar="FORM")


def join_with_or(words: Sequence[str]) -> str:
    """Join words as in "table, plain or json"."""
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def _with_value_name(parameter: inspect.Parameter) -> inspect.Parameter:
    """Add the placeholder that help and messages show for an option's value, if the option has none."""
    kind, info = get_args(parameter.annotation)
    if not isinstance(info, OptionInfo) or info.metavar is not None:
        return parameter
    # Typer keeps the first spelling in `default`.
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
    words = [literal for literal in kinds if isinstance(literal, str)]
    for member_kind in kinds:
        if isinstance(member_kind, type) and issubclass(member_kind, Enum):
            words = [str(member.value) for member in member_kind]
    if words:
        return "|".join(words)
    if bool in kinds:
        return None
    if int in kinds or float in kinds:
        return "N"
    return "FILE" if Path in kinds else max(spellings, key=len).rsplit("-", 1)[-1].upper()


def _fields_as_options(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(kind)
    ]


SCOPE = "Topics"


@dataclass(frozen=True)
class ScopeOptions:
    """Options that select topics."""

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
        bool,
        typer.Option("--stdin", rich_help_panel=SCOPE, help="Read topics or paths from stdin, one per line."),
    ] = False

    @property
    def is_given(self) -> bool:
        """True if any of the options is given."""
        return self != ScopeOptions()

    def scope(self, cursors: Sequence[str] | None = None) -> Scope:
        """Return the scope of these options, limited to cursors with the given names."""
        from pulsar_meta.jobs.topics.scope import Scope

        return Scope(
            tuple(self.tenant or ()),
            tuple(self.namespace or ()),
            tuple(self.topic or ()),
            tuple(cursors or ()),
        )

    def ensure_can_ask(self, writing: WriteOptions) -> None:
        """Raise UsageError if the list and the answer to the confirmation would both be read from stdin."""
        if self.stdin and sys.stdin.isatty() and not (writing.yes or writing.dry_run):
            raise UsageError(
                "--stdin reads the list from the terminal, so it can't ask for confirmation: add --yes or"
                " --dry-run"
            )

    def values(self, store: Store, kind: Kind, cursors: Sequence[str] | None = None) -> Iterator[Versioned]:
        """Yield the selected cursors or topic records; all of them if no option is given."""
        from pulsar_meta.jobs.topics.scope import select, select_listed

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
        help="Processes for large entry logs. Default: one per core. Environment: PULSAR_META_JOBS.",
    ),
]


class Engine(StrEnum):
    """The engines that read entries: this program or Spark."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


def process_count(shell: Shell, jobs: Jobs, sources: Sources, source: EntrySource) -> int:
    """Return how many processes should read `source`, which has the URLs of `sources`; 1 if it is small."""
    from pulsar_meta.access.processes import cores
    from pulsar_meta.jobs.pool import is_worth_processes

    count = jobs or shell.settings.jobs or cores()
    return count if count > 1 and is_worth_processes(sources.urls, source) else 1


@dataclass(frozen=True)
class EngineOptions:
    """Options for Spark."""

    engine: Annotated[
        Engine,
        typer.Option(
            "--engine",
            rich_help_panel=ENGINE,
            help="auto: use Spark with --master or for many entries if Java 17 is installed, else local.",
        ),
    ] = Engine.AUTO
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            rich_help_panel=ENGINE,
            help="Spark master URL. Default: local[*]. Environment: PULSAR_META_MASTER.",
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", rich_help_panel=ENGINE, help="Spark setting."),
    ] = None

    def spark_settings(self, faults: Faults) -> SparkSettings:
        """Return the settings of Spark, which reports damage that its workers find to `faults`.

        Raises UsageError for a --conf that is not KEY=VALUE.
        """
        from pulsar_meta.jobs.engine import LOCAL, SparkSettings

        shell = faults.shell
        master = self.master or shell.settings.master or LOCAL
        return SparkSettings(master, self._conf(), shell.verbose, shell.note, faults.report)

    def _conf(self) -> dict[str, str]:
        pairs = [text.partition("=") for text in self.conf or ()]
        for key, equals, _ in pairs:
            if not equals or not key:
                raise UsageError(f"invalid --conf {key!r}: expected KEY=VALUE")
        return {key: value for key, _, value in pairs}

    def choose(
        self, shell: Shell, ledgers: Iterable[Ledger], source: EntrySource, entries: int | None = None
    ) -> str:
        """Choose "local" or "spark" for a command that reads these ledgers.

        Prints the reason if `auto` would use Spark but can't. `entries` is the number of entries in the
        ledgers, if the caller knows it.
        """
        from pulsar_meta.jobs.engine import choose_engine_to_read

        engine, reason = choose_engine_to_read(str(self.engine), ledgers, source, self.master, entries)
        if reason:
            shell.note(reason)
        return engine
