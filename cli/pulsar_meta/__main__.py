"""`python -m pulsar_meta`: the command line."""

from __future__ import annotations

from pulsar_meta.cli.__main__ import main

if __name__ == "__main__":
    main()
