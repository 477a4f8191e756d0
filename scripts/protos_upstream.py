"""Compare our .proto files with those of Pulsar and BookKeeper (`make protos-upstream FOLDER=…`).

It prints each field and enum value that upstream has and we don't know, and each field of another type, then
a summary of each file with the messages that only one side has. We leave some messages out on purpose. Exit
code 1 means that a field or an enum value is unknown or differs, 3 that a file was not found.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
)

PROTO: Final = Path(__file__).parent.parent / "proto" / "pulsar_meta" / "proto"
# Our file, and the files upstream that it is about. Etcd.proto and Oxia.proto are parts that we chose.
FOLLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "DataFormats.proto": ("bookkeeper-proto/src/main/proto/DataFormats.proto",),
    "DbLedgerStorageDataFormats.proto": ("bookkeeper-proto/src/main/proto/DbLedgerStorageDataFormats.proto",),
    "Functions.proto": (
        "pulsar-functions/proto/src/main/proto/Function.proto",
        "pulsar-functions/proto/src/main/proto/Request.proto",
    ),
    "MLDataFormats.proto": ("managed-ledger/src/main/proto/MLDataFormats.proto",),
    "PulsarApi.proto": ("pulsar-common/src/main/proto/PulsarApi.proto",),
    "ReplicatedSubscriptions.proto": ("pulsar-common/src/main/proto/PulsarMarkers.proto",),
    "SchemaRegistryFormat.proto": ("pulsar-broker/src/main/proto/SchemaRegistryFormat.proto",),
    "SchemaStorageFormat.proto": ("pulsar-broker/src/main/proto/SchemaStorageFormat.proto",),
    "TransactionLogs.proto": (
        "pulsar-transaction/coordinator/src/main/proto/PulsarTransactionMetadata.proto",
        "pulsar-broker/src/main/proto/TransactionPendingAck.proto",
    ),
}


@dataclass
class Types:
    """The messages and enums of a file by their names, without the package."""

    messages: dict[str, DescriptorProto] = field(default_factory=dict)
    enums: dict[str, EnumDescriptorProto] = field(default_factory=dict)

    def add(self, message: DescriptorProto, prefix: str = "") -> None:
        """Add a message and everything inside it."""
        name = prefix + message.name
        self.messages[name] = message
        self.enums |= {f"{name}.{each.name}": each for each in message.enum_type}
        for inner in message.nested_type:
            self.add(inner, f"{name}.")


def types_of(file: Path) -> Types:
    """Compile a .proto file. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        protoc = [sys.executable, "-W", "ignore", "-m", "grpc_tools.protoc", "-I", str(file.parent)]
        subprocess.run([*protoc, f"--descriptor_set_out={out}", str(file)], check=True)
        found = FileDescriptorSet.FromString(out.read_bytes())
    types = Types()
    for each in found.file:
        types.enums |= {enum.name: enum for enum in each.enum_type}
        for message in each.message_type:
            types.add(message)
    return types


def unknown(ours: Types, theirs: Types) -> Iterator[str]:
    """Yield what upstream has and we don't know, in the messages and enums that both have."""
    for name, message in theirs.messages.items():
        if name in ours.messages:
            yield from _fields(name, ours.messages[name], message)
    for name, enum in theirs.enums.items():
        if name in ours.enums:
            numbers = {value.number for value in ours.enums[name].value}
            yield from (f"{name}: value {v.name} = {v.number}" for v in enum.value if v.number not in numbers)


def _fields(name: str, ours: DescriptorProto, theirs: DescriptorProto) -> Iterator[str]:
    known = {each.number: each for each in ours.field}
    for each in theirs.field:
        mine = known.get(each.number)
        if mine is None:
            yield f"{name}: field {each.name} = {each.number}"
        elif _form(mine) != _form(each):
            yield f"{name}: field {each.name} = {each.number} is {_form(each)}, ours is {_form(mine)}"


def _form(member: FieldDescriptorProto) -> str:
    """Return what decides how a field is stored: repeated or not, its type."""
    repeated = "repeated " if member.label == FieldDescriptorProto.LABEL_REPEATED else ""
    return f"{repeated}{FieldDescriptorProto.Type.Name(member.type).removeprefix('TYPE_').lower()}"


def compare(ours: Path, theirs: list[Path]) -> list[str]:
    """Print what a file of ours lacks, and a summary; return the lines of what it lacks."""
    mine, upstream = types_of(ours), Types()
    for file in theirs:
        found = types_of(file)
        upstream.messages |= found.messages
        upstream.enums |= found.enums
    lines = [f"{ours.name}: {line}" for line in unknown(mine, upstream)]
    print(*lines, sep="\n", end="\n" if lines else "")
    left_out = sorted(upstream.messages.keys() - mine.messages.keys())
    own = sorted(mine.messages.keys() - upstream.messages.keys())
    both = len(upstream.messages.keys() & mine.messages.keys())
    print(f"{ours.name}: {both} messages compared, {len(lines)} unknown or different parts")
    for what, names in (("only upstream", left_out), ("only ours", own)):
        if names:
            print(f"{ours.name}: {what}: {', '.join(names)}")
    return lines


def main() -> int:
    """Compare all files with those in a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="has checkouts of apache/pulsar and apache/bookkeeper")
    folder = parser.parse_args().folder
    lacks, missing = list[str](), list[str]()
    for name, paths in FOLLOWED.items():
        found = [next(iter(sorted(folder.glob(f"**/{path}"))), None) for path in paths]
        missing += [path for path, file in zip(paths, found, strict=True) if file is None]
        files = [file for file in found if file is not None]
        lacks += compare(PROTO / name, files) if files else []
    print(*(f"not found in {folder}: {path}" for path in missing), sep="\n", end="\n" if missing else "")
    return 1 if lacks else 3 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
