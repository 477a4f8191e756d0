"""Settings from the environment and from named profiles in a config file.

`$XDG_CONFIG_HOME/pulsar-meta/config.toml` (or the file that PULSAR_META_CONFIG names):

    [default]
    store = "zk://zk1:2181,zk2:2181"

    [profiles.staging]
    store = "rocksdb:/pulsar/data/metadata"
    entries = ["bookie-disk:/pulsar/data/bookkeeper"]
    jobs = 2

Options override environment variables, which override the profile. A named profile overrides `[default]`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_meta.cli.streams import open_input
from pulsar_meta.codecs.compression import DEFAULT_MAX_UNPACKED, LIMITS, MAX_UNPACKED
from pulsar_meta.codecs.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import Distribution

KEYS = ("store", "ledger_store", "entries", "master", "jobs")
MAX_CONFIG_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the environment and the profile; None or empty if neither has a value.

    The URL in `store` includes the ledger store, if one is configured.
    """

    store: str | None = None
    entries: tuple[str, ...] = ()
    master: str | None = None
    jobs: int | None = None


def distribution() -> Distribution:
    """Return the installed distribution: pulsar-meta, or pulsar-meta-slim, which has the same modules."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return distribution("pulsar-meta")
    except PackageNotFoundError:
        return distribution("pulsar-meta-slim")


def set_limits() -> None:
    """Apply the limits of the environment. Raises UsageError if one is not a number of bytes."""
    text = os.environ.get(MAX_UNPACKED, "")
    if text and not (text.isascii() and text.isdigit() and len(text) < 19):
        raise UsageError(f"{MAX_UNPACKED}: expected a number of bytes, found {text[:40]!r}")
    LIMITS.start_run(int(text or DEFAULT_MAX_UNPACKED))


def config_path() -> Path:
    """Return the path of the config file, which need not exist."""
    configured = os.environ.get("PULSAR_META_CONFIG")
    if configured:
        return Path(configured)
    named, home = os.environ.get("XDG_CONFIG_HOME"), os.path.expanduser("~")
    # A user without a home directory, as in some containers, has the system's file (XDG_CONFIG_DIRS).
    base = Path(named) if named else Path(home, ".config") if os.path.isabs(home) else Path("/etc/xdg")
    return base / "pulsar-meta" / "config.toml"


def read_profile(name: str | None) -> dict[str, Any]:
    """Read the config file and return `[default]` merged with the profile `name`.

    Raises UsageError if the profile doesn't exist, or if the file is not a valid config file.
    """
    path = config_path()
    if not path.exists():
        if name is not None:
            raise UsageError(f"no profile {name!r}: the config file does not exist", source=str(path))
        if os.environ.get("PULSAR_META_CONFIG"):
            raise UsageError("the file in PULSAR_META_CONFIG does not exist", source=str(path))
        return {}
    import tomllib

    with open_input(path) as stream:
        data = stream.read(MAX_CONFIG_SIZE + 1)
    if len(data) > MAX_CONFIG_SIZE:
        raise UsageError(f"the config file is larger than {MAX_CONFIG_SIZE} bytes", source=str(path))
    try:
        config = tomllib.loads(data.decode())
    except RecursionError as error:
        raise UsageError("not a valid TOML file: nested too deeply", source=str(path)) from error
    except ValueError as error:
        raise UsageError(f"not a valid TOML file: {error}", source=str(path)) from error
    try:
        _check_names(config, ("default", "profiles"))
        profiles = _table(config.get("profiles", {}))
        if name is not None and name not in profiles:
            raise UsageError(f"no profile {name!r} (known: {', '.join(sorted(profiles)) or 'none'})")
        own = _table(profiles[name]) if name is not None else {}
        return _checked({**_table(config.get("default", {})), **own})
    except UsageError as error:
        raise error.within(str(path)) from error


def _check_names(table: Mapping[str, Any], known: Sequence[str]) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise UsageError(f"unknown key {unknown[0]!r} (known: {', '.join(known)})")


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"expected the tables [default] and [profiles.NAME], found {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    """Describe a value by its type. Error messages don't show the value, because it may be a password."""
    kinds = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a table",
    }
    return kinds.get(type(value), "a time")


def _checked(profile: dict[str, Any]) -> dict[str, Any]:
    """Validate and return a profile. Raises UsageError for an unknown key or a value of wrong type."""
    _check_names(profile, KEYS)
    for key, value in profile.items():
        if key == "jobs":
            profile[key] = _jobs(value, f"{key}: ")
            continue
        texts = value if key == "entries" and isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            raise UsageError(f"{key}: expected text in quotes, found {_kind(value)}")
    return profile


def _jobs(value: Any, prefix: str) -> int:
    """Return a number of processes from 1 to 9999. Raises UsageError with `prefix` for any other value."""
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal() or not text.isascii() or not 0 < int(text) < 10_000:
        raise UsageError(f"{prefix}expected a number of processes, 1 or more")
    return int(text)


def load_settings(profile_name: str | None) -> Settings:
    """Return the settings that apply if no option is given. Raises UsageError for an invalid config file."""
    profile = read_profile(profile_name or os.environ.get("PULSAR_META_PROFILE") or None)
    entries = os.environ.get("PULSAR_META_ENTRIES", "").split() or profile.get("entries", [])
    if isinstance(entries, str):
        entries = entries.split()
    store = os.environ.get("PULSAR_META_STORE") or profile.get("store")
    ledgers = os.environ.get("PULSAR_META_LEDGER_STORE") or profile.get("ledger_store")
    if store and ledgers:
        from pulsar_meta.stores.registry import with_ledgers

        store = with_ledgers(store, ledgers)
    master = os.environ.get("PULSAR_META_MASTER") or profile.get("master")
    jobs = os.environ.get("PULSAR_META_JOBS")
    return Settings(
        store=store,
        entries=tuple(entries),
        master=master,
        jobs=_jobs(jobs, "PULSAR_META_JOBS: ") if jobs else profile.get("jobs"),
    )
