"""Print the modules, lines and imports of each package, and how deep its imports are nested.

    scripts/house.py [REVISION…]

Counts the files of this checkout, or those of each REVISION in git. An import is one of our modules imported
by another, anywhere in a file, also for type checkers. `imports` are those within the package, `out` those
that leave it. `depth` is the number of modules in the longest chain of imports; modules that import each
other in a circle count as one. Generated code (`proto`) and `__init__.py` files without code are not counted.
A directory without `__init__.py` is refused, because neither grimp nor import-linter reads it.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
PACKAGE = "pulsar_meta"
Graph = dict[str, set[str]]


def graph_of(checkout: Path) -> Graph:
    """Return the modules of a checkout and the modules of ours that each imports.

    grimp runs in a new process, because it finds the modules with sys.path.
    """
    command = [sys.executable, __file__, "--graph", str(checkout)]
    graph = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {name: set(imported) for name, imported in graph.items()}


def print_graph(checkout: Path) -> None:
    """Print the graph of a checkout as JSON."""
    use_only(checkout)
    from grimp import build_graph

    graph: Any = build_graph(PACKAGE, cache_dir=None)
    print(json.dumps({name: sorted(graph.find_modules_directly_imported_by(name)) for name in graph.modules}))


def use_only(checkout: Path) -> list[str]:
    """Make our package importable from `checkout` alone; return the directories that contain its parts."""
    roots = [str(package.parent) for package in sorted(checkout.glob(f"*/{PACKAGE}"))]
    sys.path[:] = roots + [path for path in sys.path if not (Path(path) / PACKAGE).is_dir()]
    return roots


def file_of(checkout: Path, module: str) -> Path | None:
    """Return the file of a module, or None if it has none."""
    inside = module.replace(".", "/")
    files = [*checkout.glob(f"*/{inside}.py"), *checkout.glob(f"*/{inside}/__init__.py")]
    return files[0] if files else None


def without_init(checkout: Path) -> list[str]:
    """Return the directories with code that have no `__init__.py`, which the top package never has."""
    folders = {file.parent for file in checkout.glob(f"*/{PACKAGE}/*/**/*.py")}
    missing = (folder for folder in sorted(folders) if not (folder / "__init__.py").exists())
    return [str(folder.relative_to(checkout)) for folder in missing]


def has_code(text: str) -> bool:
    """Return True if a file has more than a docstring."""
    return any(not isinstance(node, ast.Expr) for node in ast.parse(text).body)


def reachable(imports: Mapping[str, set[str]]) -> Graph:
    """Return for each module all modules that it imports, directly or not, and itself."""
    reached = {}
    for module in imports:
        pending, reached[module] = [module], {module}
        while pending:
            new = imports[pending.pop()] - reached[module]
            reached[module] |= new
            pending += new
    return reached


def depth(modules: set[str], graph: Graph) -> int:
    """Return the number of modules in the longest chain of imports within `modules`."""
    reached = reachable({module: graph[module] & modules for module in modules})

    @cache
    def chain(module: str) -> int:
        circle = {other for other in reached[module] if module in reached[other]}
        return 1 + max(map(chain, reached[module] - circle), default=0)

    return max(map(chain, modules), default=0)


def packages(modules: Iterable[str]) -> list[str]:
    """Return the packages, and the packages inside them."""
    parts = [module.split(".") for module in modules]
    outer, inner = {part[1] for part in parts}, {".".join(part[1:3]) for part in parts if len(part) > 3}
    return sorted(outer | inner)


def count(checkout: Path) -> list[tuple[str, int, int, int, int, int]]:
    """Return (package, modules, lines, imports, out, depth) for each package; the last row is the total."""
    if missing := without_init(checkout):
        sys.exit(f"no __init__.py: {', '.join(missing)}")
    graph = graph_of(checkout)
    files = {name: file_of(checkout, name) for name in graph if f"{PACKAGE}.proto" not in name}
    texts = {name: file.read_text() for name, file in files.items() if file is not None}
    texts = {name: text for name, text in texts.items() if has_code(text)}
    rows = []
    for package in ["", *packages(texts)]:
        prefix = f"{PACKAGE}.{package}." if package else PACKAGE
        inside = {name for name in texts if f"{name}.".startswith(prefix)}
        imported = [other for name in inside for other in graph[name] if other in texts]
        within = sum(other in inside for other in imported)
        lines = sum(texts[name].count("\n") for name in inside)
        rows.append((package, len(inside), lines, within, len(imported) - within, depth(inside, graph)))
    return rows[1:] + rows[:1]


def table(checkout: Path) -> str:
    """Format the numbers of a checkout."""
    lines = [f"{'package':22}{'modules':>8}{'lines':>8}{'imports':>8}{'out':>8}{'depth':>8}"]
    for name, *numbers in count(checkout):
        label = f"  {name}" if "." in name else name or "all"
        lines.append(f"{label:22}" + "".join(f"{number:8}" for number in numbers))
    return "\n".join(lines)


def main() -> None:
    """Print a table for each revision, or for this checkout."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revisions", metavar="REVISION", nargs="*")
    revisions = parser.parse_args().revisions
    for revision in revisions:
        with tempfile.TemporaryDirectory() as folder:
            archive = subprocess.run(["git", "archive", revision], cwd=HERE, check=True, capture_output=True)
            with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
                files.extractall(folder)
            print(f"{revision}\n{table(Path(folder).resolve())}\n")
    if not revisions:
        print(table(HERE))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--graph"]:
        print_graph(Path(sys.argv[2]))
    else:
        main()
