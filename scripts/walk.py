"""Print the functions that a command runs, in the order in which they are first called.

    scripts/walk.py [--all] CHECKOUT COMMAND…

Runs `pulsar-meta COMMAND…` from the source of CHECKOUT. Prints on stderr each function that was called from
another module (with --all also from its own module), and how often. A step is the first call of a function.
`up` marks a step into a module that itself imports the caller, directly or not, such as a callback. Calls in
other processes, such as Spark's workers, are not seen.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from house import graph_of, reachable, use_only


class Walk:
    """Records which functions are called, from which module, and in which order."""

    def __init__(self, checkout: Path, within: bool) -> None:
        self.prefix, self.within = f"{checkout}/", within
        self.calls: Counter[tuple[str, str, str]] = Counter()
        self.names: dict[str, str | None] = {}
        self.reached = reachable(graph_of(checkout))

    def watch(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call between two of our functions. Calls while modules are imported don't count."""
        if event != "call" or (module := self._module(frame)) is None or frame.f_code.co_name == "<module>":
            return
        callers = self._callers(frame)
        if any(caller.f_code.co_name == "<module>" for caller in callers):
            return
        source = self._module(callers[0]) if callers else None
        if self.within or source != module:
            self.calls[source or "", module, frame.f_code.co_qualname] += 1

    def report(self) -> str:
        """Return a line for each step, and the totals."""
        steps: dict[tuple[str, str], tuple[str, str, str]] = {}
        for call in self.calls:
            steps.setdefault(call[1:], call)
        up = {call for call in steps.values() if call[0] and self._imports(call[1], call[0])}
        lines = [
            f"{self.calls[call]:7}× {'up ' if call in up else '   '}{call[1]}:{call[2]}"
            for call in steps.values()
        ]
        modules = {module for module, _ in steps}
        packages = {".".join(module.split(".")[: min(2, module.count("."))]) for module in modules}
        total = f"{len(steps)} steps, {len(modules)} modules, {len(packages)} packages, {len(up)} steps up"
        return "\n".join([*lines, total])

    def _callers(self, frame: FrameType) -> list[FrameType]:
        """Return the frames of ours that led to a frame, the nearest first."""
        callers = []
        caller = frame.f_back
        while caller is not None:
            if self._module(caller) is not None:
                callers.append(caller)
            caller = caller.f_back
        return callers

    def _module(self, frame: FrameType) -> str | None:
        """Return the name of a frame's module without `pulsar_meta`, or None if it is not ours."""
        file = frame.f_code.co_filename
        if file not in self.names:
            inside = file.removeprefix(self.prefix)
            ours = inside != file and "/pulsar_meta/" in inside and "_pb2" not in inside
            name = inside.partition("/pulsar_meta/")[2].removesuffix(".py").removesuffix("/__init__")
            self.names[file] = name.replace("/", ".") if ours else None
        return self.names[file]

    def _imports(self, module: str, other: str) -> bool:
        return module != other and f"pulsar_meta.{other}" in self.reached[f"pulsar_meta.{module}"]


def main() -> None:
    """Run a command and print its steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    source = options.checkout.resolve()
    use_only(source)
    sys.argv = ["pulsar-meta", *options.command]
    from pulsar_meta.cli.app import main as program

    walk = Walk(source, options.all)
    sys.setprofile(walk.watch)
    try:
        program()
    finally:
        sys.setprofile(None)
        print(walk.report(), file=sys.stderr)


if __name__ == "__main__":
    main()
