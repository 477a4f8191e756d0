"""Named profiles: what a person does not want to type each time.

`$XDG_CONFIG_HOME/pulsar-meta/config.toml` (or the file that PULSAR_META_CONFIG names):

    [default]
    store = "zk://zk1:2181,zk2:2181"

    [profiles.staging]
    store = "rocksdb:/pulsar/data/metadata"
    entries = ["bookie-disk:/pulsar/data/bookkeeper"]

An option beats the environment, the environment beats the profile, a named profile beats `[default]`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pulsar_meta.codecs.errors import UsageError

KEYS = ("store", "entries", "master")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the profile and the environment say; None or empty where neither does."""

    store: str | None = None
    entries: tuple[str, ...] = ()
    master: str | None = None


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
        return {}
    import tomllib

    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"not a readable TOML file: {error}", source=str(path)) from error
    profiles = config.get("profiles", {})
    if name is not None and name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise UsageError(f"there is no profile {name!r} (known: {known})", source=str(path))
    merged = {**config.get("default", {}), **(profiles[name] if name is not None else {})}
    unknown = sorted(set(merged) - set(KEYS))
    if unknown:
        raise UsageError(f"unknown key {unknown[0]!r} (known: {', '.join(KEYS)})", source=str(path))
    return merged


def load_settings(profile: str | None) -> Settings:
    """Return the settings that hold where no option is given."""
    named = read_profile(profile or os.environ.get("PULSAR_META_PROFILE") or None)
    entries = os.environ.get("PULSAR_META_ENTRIES", "").split() or named.get("entries", [])
    if isinstance(entries, str):
        entries = entries.split()
    store = os.environ.get("PULSAR_META_STORE") or named.get("store")
    master = os.environ.get("PULSAR_META_MASTER") or named.get("master")
    return Settings(store=store, entries=tuple(entries), master=master)
