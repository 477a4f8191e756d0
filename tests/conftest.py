"""Fixtures that every test may use."""

from __future__ import annotations

import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

CAPTURES = Path(__file__).parent.parent / "fixtures" / "captures"


def unpack_capture(name: str, into: Path) -> Path:
    """Unpack the capture `name` below `into` and return its folder, truth files in it."""
    with tarfile.open(CAPTURES / f"{name}.tar.xz") as archive:
        archive.extractall(into, filter="data")
    folder = into / name
    for packed in CAPTURES.glob(f"{name}.truth*.json.xz"):
        plain = packed.name.removeprefix(f"{name}.").removesuffix(".xz")
        (folder / plain).write_bytes(lzma.decompress(packed.read_bytes()))
    return folder


@pytest.fixture(scope="session")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that unpacks a capture by its name, once a session; tests only read in it."""
    unpacked: dict[str, Path] = {}

    def unpack(name: str) -> Path:
        if name not in unpacked:
            unpacked[name] = unpack_capture(name, tmp_path_factory.mktemp("capture"))
        return unpacked[name]

    return unpack
