"""What is to become of each value that one store has and another one may have, or not, or differently."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Final

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.jobs.restore.floors import Floors
from pulsar_meta.jobs.rewrite.batches import READ_GROUP, Batches, chunks
from pulsar_meta.jobs.rewrite.decision import Decided, Decision, keep, skip, write
from pulsar_meta.jobs.rewrite.run import Rewrite
from pulsar_meta.stores.base import ABSENT, Store, Versioned

SAME: Final = "same"
# Reasons for which a value is not as it is in the other store when the run ends.
DIFFERENT: Final = "different"
NO_PATH: Final = "no-path"


def restore_values(values: Callable[[], Iterable[Versioned]], floors: Floors, *, overwrite: bool) -> Rewrite:
    """Return what moves the counters of a store forward, and then brings values into it.

    What is there and equal is kept; what is there and different, too, unless `overwrite`. Nothing is removed.
    """

    def again(now: Versioned, before: Decision) -> Decision:
        # Whatever is decided again was to be written.
        return _decide(now, before.new or b"", overwrite=overwrite)

    return Rewrite(
        "restore",
        lambda batches: _decided(values(), batches, overwrite=overwrite),
        again,
        with_new=True,
        counters=floors.counters,
        further=floors.further,
    )


def _decided(values: Iterable[Versioned], batches: Batches, *, overwrite: bool) -> Generator[Decided]:
    for group in chunks(values, READ_GROUP):
        wrong = {held.path: why for held in group if (why := _no_path(batches.store, held.path)) is not None}
        here = iter(batches.read([held.path for held in group if held.path not in wrong]))
        for held in group:
            if held.path in wrong:
                seen = Versioned(held.path, b"", ABSENT)
                yield seen, skip(seen, NO_PATH, note=wrong[held.path])
            else:
                seen = next(here)
                yield seen, _decide(seen, held.value, overwrite=overwrite)


def _no_path(store: Store, path: str) -> str | None:
    """Return why nothing can be written at a path, None where it can."""
    try:
        store.check_path(path)
    except UsageError as error:
        return error.message
    return None


def _decide(seen: Versioned, value: bytes, *, overwrite: bool) -> Decision:
    if seen.version != ABSENT and seen.value == value:
        return keep(seen, SAME)
    if seen.version == ABSENT or overwrite:
        return write(seen, value)
    return skip(seen, DIFFERENT, note="has another value; left as it is (--overwrite replaces it)")
