"""Runs in a JVM (see `tests.servers.jvm`) and loads files with java.util.Properties."""

from __future__ import annotations

from jpype import JArray, JByte, JClass


def load_each(files: list[bytes]) -> list[dict[str, str] | None]:
    """Return the settings of each file, or None if Java refuses it."""
    return [_load(data) for data in files]


def _load(data: bytes) -> dict[str, str] | None:
    properties = JClass("java.util.Properties")()
    try:
        properties.load(JClass("java.io.ByteArrayInputStream")(JArray(JByte)(data)))
    except JClass("java.lang.IllegalArgumentException"):
        return None
    return {str(key): str(properties.getProperty(key)) for key in properties.stringPropertyNames()}
