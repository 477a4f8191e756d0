"""Print the numbers of the house: modules, lines, arrows and floors of each room and of the whole.

    scripts/house.py [REVISION…]

An arrow is an import of one of our modules by another, wherever in the file it stands, for type checkers too.
The floors of a room are the modules of its longest chain of imports; modules in a circle share a floor.
Arrows of a room are those within it, `out` are those that leave it. Generated code (`proto`) and
`__init__.py` without code count for nothing, and a directory without `__init__.py` is refused: neither grimp
nor import-linter looks into it. Without REVISION: the files as they lie here.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
PACKAGE = "pulsar_meta"


def graph_of(checkout: Path) -> dict[str, list[str]]:
    """Return the modules of a checkout and what of ours each imports; in a process of its own."""
    asked = [sys.executable, __file__, "--graph", str(checkout)]
    return dict(json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout))


def print_graph(checkout: Path) -> None:
    """Print the graph of a checkout as JSON."""
    roots = [str(found.parent) for found in sorted(checkout.glob(f"*/{PACKAGE}"))]
    sys.path[:] = roots + [path for path in sys.path if not (Path(path) / PACKAGE).is_dir()]
    from grimp import build_graph

    graph: Any = build_graph(PACKAGE, cache_dir=None)
    print(json.dumps({name: sorted(graph.find_modules_directly_imported_by(name)) for name in graph.modules}))


def file_of(checkout: Path, module: str) -> Path | None:
    """Return a module's file."""
    inside = module.replace(".", "/")
    found = [*checkout.glob(f"*/{inside}.py"), *checkout.glob(f"*/{inside}/__init__.py")]
    return found[0] if found else None


def without_init(checkout: Path) -> list[str]:
    """Return the directories with code that have no `__init__.py`; the package itself never has one."""
    holding = {file.parent for file in checkout.glob(f"*/{PACKAGE}/*/**/*.py")}
    return [
        str(found.relative_to(checkout)) for found in sorted(holding) if not (found / "__init__.py").exists()
    ]


def has_code(text: str) -> bool:
    """Say whether a file has more than a docstring."""
    return any(not isinstance(node, ast.Expr) for node in ast.parse(text).body)


def circles(modules: Iterable[str], arrows: dict[str, set[str]]) -> dict[str, frozenset[str]]:
    """Return for each module those that it reaches and that reach it, itself among them."""

    @cache
    def reached(module: str) -> frozenset[str]:
        seen, pending = {module}, [module]
        while pending:
            new = arrows[pending.pop()] - seen
            seen |= new
            pending += new
        return frozenset(seen)

    return {one: frozenset(other for other in reached(one) if one in reached(other)) for one in modules}


def floors(modules: set[str], graph: dict[str, list[str]]) -> int:
    """Return how many modules the longest chain of imports within `modules` has."""
    arrows = {module: set(graph[module]) & modules for module in modules}
    circle_of = circles(modules, arrows)

    @cache
    def height(circle: frozenset[str]) -> int:
        below = {circle_of[other] for module in circle for other in arrows[module]} - {circle}
        return 1 + max(map(height, below), default=0)

    return max((height(circle) for circle in circle_of.values()), default=0)


def rooms(modules: Iterable[str]) -> list[str]:
    """Return the rooms, and the rooms within them."""
    parts = [module.split(".") for module in modules]
    outer, inner = {part[1] for part in parts}, {".".join(part[1:3]) for part in parts if len(part) > 3}
    return sorted(outer | inner)


def house(checkout: Path) -> list[tuple[str, int, int, int, int, int]]:
    """Return a row for each room and for the whole: modules, lines, arrows within, arrows out, floors."""
    unseen = without_init(checkout)
    if unseen:
        sys.exit(f"no __init__.py: {', '.join(unseen)}")
    graph = graph_of(checkout)
    files = {name: file_of(checkout, name) for name in graph if f"{PACKAGE}.proto" not in name}
    texts = {name: file.read_text() for name, file in files.items() if file is not None}
    texts = {name: text for name, text in texts.items() if has_code(text)}
    rows = []
    for room in ["", *rooms(texts)]:
        inside = {name for name in texts if f"{name}.".startswith(f"{PACKAGE}.{room}." if room else PACKAGE)}
        ours = [other for name in inside for other in graph[name] if other in texts]
        within = sum(other in inside for other in ours)
        lines = sum(texts[name].count("\n") for name in inside)
        rows.append((room, len(inside), lines, within, len(ours) - within, floors(inside, graph)))
    return rows[1:] + rows[:1]


def table(rows: list[tuple[str, int, int, int, int, int]]) -> str:
    """Return the rows as lines."""
    lines = [f"{'room':22}{'modules':>8}{'lines':>8}{'arrows':>8}{'out':>8}{'floors':>8}"]
    for name, *numbers in rows:
        shown = f"  {name}" if "." in name else name or "all"
        lines.append(f"{shown:22}" + "".join(f"{number:8}" for number in numbers))
    return "\n".join(lines)


def main() -> None:
    """Print a table for each revision, or for the files as they lie."""
    for revision in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as place:
            packed = subprocess.run(["git", "archive", revision], cwd=HERE, check=True, capture_output=True)
            with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
                archive.extractall(place)
            print(f"{revision}\n{table(house(Path(place).resolve()))}\n")
    if not sys.argv[1:]:
        print(table(house(HERE)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--graph"]:
        print_graph(Path(sys.argv[2]))
    else:
        main()
