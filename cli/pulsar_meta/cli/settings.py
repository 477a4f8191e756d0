"""Named profiles: what a person does not want to type each time.

`$XDG_CONFIG_HOME/pulsar-meta/config.toml` (or the file that PULSAR_META_CONFIG names):

    [default]
    store = "zk://zk1:2181,zk2:2181"

    [profiles.staging]
    store = "rocksdb:/pulsar/data/metadata"
    entries = ["bookie-disk:/pulsar/data/bookkeeper"]
    jobs = 2

An option beats the environment, the environment beats the profile, a named profile beats `[default]`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pulsar_meta.cli.inputs import open_input
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.stores.routed import with_ledgers

KEYS = ("store", "ledger_store", "entries", "master", "jobs")
LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """What the profile and the environment say; None or empty where neither does.

    `store` is with its ledger store, where they name one.
    """

    store: str | None = None
    entries: tuple[str, ...] = ()
    master: str | None = None
    jobs: int | None = None


def config_path() -> Path:
    """Return where the config file lies, whether it exists or not."""
    named = os.environ.get("PULSAR_META_CONFIG")
    if named:
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "pulsar-meta" / "config.toml"


def read_profile(name: str | None) -> dict[str, Any]:
    """Return the profile `name` over `[default]`; UsageError where it does not exist or makes no sense."""
    path = config_path()
    if not path.exists():
        if name is not None:
            raise UsageError(f"there is no profile {name!r}: this file does not exist", source=str(path))
        if os.environ.get("PULSAR_META_CONFIG"):
            raise UsageError("PULSAR_META_CONFIG names it, but this file does not exist", source=str(path))
        return {}
    import tomllib

    with open_input(path) as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise UsageError(f"a config file of more than {LARGEST} bytes", source=str(path))
    try:
        config = tomllib.loads(data.decode())
    except RecursionError as error:
        raise UsageError("not a readable TOML file: nested too deeply", source=str(path)) from error
    except ValueError as error:
        raise UsageError(f"not a readable TOML file: {error}", source=str(path)) from error
    try:
        _check_names(config, ("default", "profiles"))
        profiles = _table(config.get("profiles", {}))
        if name is not None and name not in profiles:
            raise UsageError(f"there is no profile {name!r} (known: {', '.join(sorted(profiles)) or 'none'})")
        own = _table(profiles[name]) if name is not None else {}
        return _checked({**_table(config.get("default", {})), **own})
    except UsageError as error:
        raise error.within(str(path)) from error


def _check_names(found: Mapping[str, Any], known: Sequence[str]) -> None:
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise UsageError(f"unknown key {unknown[0]!r} (known: {', '.join(known)})")


def _table(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise UsageError(f"expected the tables [default] and [profiles.NAME], found {_kind(found)}")
    return found


def _kind(found: Any) -> str:
    """Return what a value is, which is not shown: it may hold a password."""
    kinds = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a table",
    }
    return kinds.get(type(found), "a time")


def _checked(profile: dict[str, Any]) -> dict[str, Any]:
    """Return the profile; UsageError for a key that there is not, and for a value that is no text."""
    _check_names(profile, KEYS)
    for key, value in profile.items():
        if key == "jobs":
            profile[key] = _jobs(value, f"{key}: ")
            continue
        texts = value if key == "entries" and isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            raise UsageError(f"{key}: expected text in quotes, found {_kind(value)}")
    return profile


def _jobs(found: Any, where: str) -> int:
    """Return a number of processes; UsageError for what is none."""
    text = str(found)
    if isinstance(found, bool) or not text.isdecimal() or not text.isascii() or not 0 < int(text) < 10_000:
        raise UsageError(f"{where}expected a number of processes, 1 or more")
    return int(text)


def load_settings(profile: str | None) -> Settings:
    """Return the settings that hold where no option is given."""
    named = read_profile(profile or os.environ.get("PULSAR_META_PROFILE") or None)
    entries = os.environ.get("PULSAR_META_ENTRIES", "").split() or named.get("entries", [])
    if isinstance(entries, str):
        entries = entries.split()
    store = os.environ.get("PULSAR_META_STORE") or named.get("store")
    ledgers = os.environ.get("PULSAR_META_LEDGER_STORE") or named.get("ledger_store")
    if store and ledgers:
        store = with_ledgers(store, ledgers)
    master = os.environ.get("PULSAR_META_MASTER") or named.get("master")
    jobs = os.environ.get("PULSAR_META_JOBS")
    return Settings(
        store=store,
        entries=tuple(entries),
        master=master,
        jobs=_jobs(jobs, "PULSAR_META_JOBS: ") if jobs else named.get("jobs"),
    )
