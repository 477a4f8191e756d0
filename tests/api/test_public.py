"""The public API keeps its names and signatures. To change one, update public.txt and the version."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, is_typeddict

from scripts.api_page import members, signature

from pulsar_meta import api

PUBLIC = Path(__file__).parent / "public.txt"
# Callers pay for these libraries when they need them; the API never imports rich, typer or Spark.
HEAVY = ("duckdb", "grpc", "kazoo", "numpy", "pyarrow", "pyspark", "rich", "rocksdict", "typer")


def public() -> Iterator[str]:
    for name in sorted(api.__all__):
        member = getattr(api, name)
        if inspect.isfunction(member):
            yield signature(name, member)
        elif issubclass(member, Exception):
            yield f"{name}({member.__base__.__name__})"
        else:
            yield from (f"{name}.{line}" for line in of_class(member))


def of_class(member: type) -> Iterator[str]:
    if is_typeddict(member) or is_dataclass(member):
        yield from (f"{field}: {kind}" for field, kind in members(member))
    for method, attribute in vars(member).items():
        if isinstance(attribute, property):
            yield f"{method}: {inspect.signature(attribute.fget).return_annotation}"  # type: ignore[arg-type]
        elif inspect.isfunction(attribute) and is_for_callers(method, attribute):
            yield signature(method, attribute)


def is_for_callers(method: str, attribute: Any) -> bool:
    if method == "__init__":
        return attribute.__doc__ is not None and "Not for callers" not in attribute.__doc__
    return not method.startswith("_")


def test_names_and_signatures_match_public_txt() -> None:
    assert "\n".join(public()) + "\n" == PUBLIC.read_text()


def test_everything_public_is_documented_and_typed() -> None:
    assert all(getattr(api, name).__doc__ for name in api.__all__)
    assert (Path(api.__file__).parent / "py.typed").exists()


def test_importing_the_api_imports_no_heavy_library() -> None:
    code = f"import sys, pulsar_meta.api; sys.exit(' '.join(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == ""
