"""Worker processes: the number of cores, and errors that can be sent between processes."""

from __future__ import annotations

import os
import pickle


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def portable(error: Exception) -> Exception:
    """Return the error, or a RuntimeError with the same message if it can't be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - pickling an exception can raise anything
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
