"""Print the way of one command through the house, as it really ran.

    scripts/walk.py [--all] CHECKOUT COMMAND…

Runs `pulsar-meta COMMAND…` from the source of CHECKOUT and prints on stderr, in the order in which they were
first entered, the functions that a module called in another one (with --all also those within a module), with
how often. A step is such a first entry; `up` is a step into a module that itself imports the caller, at once
or through others: a callback. What runs in other processes (Spark's workers, whoever decides in bulk) is not
seen.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from house import graph_of


class Walk:
    """Who was entered, from where, in order."""

    def __init__(self, checkout: Path, within: bool) -> None:
        self.prefix, self.within = f"{checkout}/", within
        self.steps: Counter[tuple[str, str, str]] = Counter()
        self.names: dict[str, str | None] = {}
        self.imported = imported_by(checkout)

    def watch(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call between functions of ours."""
        if event != "call":
            return
        module = self._module(frame)
        if module is None or frame.f_code.co_name == "<module>":
            return
        caller = frame.f_back
        while caller is not None and self._module(caller) is None:
            caller = caller.f_back
        source = self._module(caller) if caller is not None else ""
        if caller is not None and caller.f_code.co_name == "<module>":
            return
        if self.within or source != module:
            self.steps[source or "", module, frame.f_code.co_qualname] += 1

    def report(self) -> str:
        """Return the steps, and their sum."""
        first = {step[1:]: step for step in reversed(self.steps)}
        steps = [step for step in self.steps if first[step[1:]] == step]
        ups = [step for step in steps if self._goes_up(step)]
        lines = [
            f"{self.steps[step]:7}× {'up ' if step in ups else '   '}{step[1]}:{step[2]}" for step in steps
        ]
        modules = {step[1] for step in steps}
        rooms = {".".join(module.split(".")[: min(2, module.count("."))]) for module in modules}
        return "\n".join(
            [
                *lines,
                f"{len(steps)} steps, {len(modules)} modules, {len(rooms)} rooms, {len(ups)} steps back up",
            ]
        )

    def _module(self, frame: FrameType) -> str | None:
        file = frame.f_code.co_filename
        if file not in self.names:
            inside = file.removeprefix(self.prefix)
            ours = inside != file and "/pulsar_meta/" in inside and "_pb2" not in inside
            name = inside.partition("/pulsar_meta/")[2].removesuffix(".py").removesuffix("/__init__")
            self.names[file] = name.replace("/", ".") if ours else None
        return self.names[file]

    def _goes_up(self, step: tuple[str, str, str]) -> bool:
        source, module = step[:2]
        return bool(source) and source in self.imported[module]


def imported_by(checkout: Path) -> dict[str, set[str]]:
    """Return what of ours each module imports, at once or through others."""
    graph = {
        name.removeprefix("pulsar_meta."): {other.removeprefix("pulsar_meta.") for other in found}
        for name, found in graph_of(checkout).items()
    }
    reached = {}
    for name in graph:
        pending, reached[name] = [name], set[str]()
        while pending:
            new = graph[pending.pop()] - reached[name]
            reached[name] |= new
            pending += new
    return reached


def main() -> None:
    """Run a command and print its way."""
    words = sys.argv[1:]
    within = words[:1] == ["--all"]
    checkout, *words = words[within:]
    place = Path(checkout).resolve()
    roots = [str(found.parent) for found in sorted(place.glob("*/pulsar_meta"))]
    sys.path[:] = roots + [path for path in sys.path if not (Path(path) / "pulsar_meta").is_dir()]
    sys.argv = ["pulsar-meta", *words]
    from pulsar_meta.cli.app import main as program

    walk = Walk(place, within)
    sys.setprofile(walk.watch)
    try:
        program()
    finally:
        sys.setprofile(None)
        print(walk.report(), file=sys.stderr)


if __name__ == "__main__":
    main()
