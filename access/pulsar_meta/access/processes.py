"""What processes that share some work need to know, and how an error gets from one to the other."""

from __future__ import annotations

import os
import pickle


def cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def portable(error: Exception) -> Exception:
    """Return the error, or where it cannot be pickled one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever an exception's own pickling raises
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
