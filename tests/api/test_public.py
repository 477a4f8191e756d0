"""What is public keeps its names and signatures: who changes one changes public.txt, and the version."""

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
# What only who asks for it pays for; what draws, and Spark, never.
HEAVY = ("duckdb", "grpc", "kazoo", "numpy", "pyarrow", "pyspark", "rich", "rocksdict", "typer")


def public() -> Iterator[str]:
    for name in sorted(api.__all__):
        found = getattr(api, name)
        if inspect.isfunction(found):
            yield signature(name, found)
        elif issubclass(found, Exception):
            yield f"{name}({found.__base__.__name__})"
        else:
            yield from (f"{name}.{line}" for line in of_class(found))


def of_class(found: type) -> Iterator[str]:
    if is_typeddict(found) or is_dataclass(found):
        yield from (f"{field}: {kind}" for field, kind in members(found))
    for method, one in vars(found).items():
        if isinstance(one, property):
            yield f"{method}: {inspect.signature(one.fget).return_annotation}"  # type: ignore[arg-type]
        elif inspect.isfunction(one) and is_for_callers(method, one):
            yield signature(method, one)


def is_for_callers(method: str, one: Any) -> bool:
    if method == "__init__":
        return one.__doc__ is not None and "Not for callers" not in one.__doc__
    return not method.startswith("_")


def test_names_and_signatures_are_those_that_were_promised() -> None:
    assert "\n".join(public()) + "\n" == PUBLIC.read_text()


def test_everything_public_is_documented_and_typed() -> None:
    assert all(getattr(api, name).__doc__ for name in api.__all__)
    assert (Path(api.__file__).parent / "py.typed").exists()


def test_importing_it_costs_little() -> None:
    asked = f"import sys, pulsar_meta.api; sys.exit(' '.join(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == ""
