"""Make the wheel of pulsar-meta-slim from the wheel of pulsar-meta, or print the size of an installation.

    scripts/slim.py dist/pulsar_meta-0.1.0-py3-none-any.whl
    scripts/slim.py --sizes ENVIRONMENT/lib/python3.13/site-packages

The slim wheel has the same modules and the same version. Its requirements follow from the table
`tool.pulsar-meta.slim` of pyproject.toml. Sizes are in MB (10^6 bytes), the largest package first.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import tomllib
import zipfile
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NAME = "pulsar-meta-slim"
FIXED_TIME = (2020, 1, 1, 0, 0, 0)


def package_of(requirement: str) -> str:
    """Return the name of the package that a requirement asks for."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def slim_metadata(metadata: str, project: dict[str, Any], slim: dict[str, Any]) -> str:
    """Return the METADATA of the slim wheel, made from that of the complete one."""
    head, _, body = metadata.partition("\n\n")
    kept = [
        line
        for line in head.splitlines()
        if not line.startswith(("Name:", "Requires-Dist:", "Provides-Extra:", "Summary:"))
    ]
    ranges = {package_of(requirement): requirement for requirement in project["dependencies"]}
    needed = [ranges[name] for name in ranges if name not in slim["without"]] + slim["with"]
    lines = [kept[0], f"Name: {NAME}", f"Summary: {project['description']} (small, without Spark)", *kept[1:]]
    lines += [f"Requires-Dist: {requirement}" for requirement in needed]
    for extra in slim["extras"]:
        added = [ranges[name] for name in slim["extra-requirements"].get(extra, ())]
        lines.append(f"Provides-Extra: {extra}")
        lines += [
            f"Requires-Dist: {requirement}; extra == '{extra}'"
            for requirement in added + project["optional-dependencies"][extra]
        ]
    return "\n".join(lines) + "\n\n" + body


def make_slim(wheel: Path) -> Path:
    """Write the slim wheel next to the complete one, and return its path."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    slim, project = table["tool"]["pulsar-meta"]["slim"], table["project"]
    module_name = NAME.replace("-", "_")
    target = wheel.with_name(wheel.name.replace("pulsar_meta", module_name, 1))
    records = []
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
        for name in source.namelist():
            if name.endswith(".dist-info/RECORD"):
                record = name.replace("pulsar_meta", module_name, 1)
                continue
            data = source.read(name)
            if ".dist-info/" in name or ".data/" in name:
                name = name.replace("pulsar_meta", module_name, 1)
            if name.endswith(".dist-info/METADATA"):
                data = slim_metadata(data.decode(), project, slim).encode()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{name},sha256={digest},{len(data)}\n")
            made.writestr(zipfile.ZipInfo(name, FIXED_TIME), data, zipfile.ZIP_DEFLATED)
        text = "".join([*records, f"{record},,\n"])
        made.writestr(zipfile.ZipInfo(record, FIXED_TIME), text, zipfile.ZIP_DEFLATED)
    return target


def print_sizes(packages: Path) -> None:
    """Print the size of each distribution in a folder of packages, and their sum."""
    sizes: dict[str, int] = {}
    for distribution in distributions(path=[str(packages)]):
        files = {Path(str(file.locate())).resolve() for file in distribution.files or ()}
        sizes[distribution.name] = sum(file.stat().st_size for file in files if file.is_file())
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        print(f"{size / 1e6:8.1f} MB  {name}")
    print(f"{sum(sizes.values()) / 1e6:8.1f} MB  in total")


if __name__ == "__main__":
    if sys.argv[1] == "--sizes":
        print_sizes(Path(sys.argv[2]))
    else:
        print(make_slim(Path(sys.argv[1])))
