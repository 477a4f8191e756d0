"""Where the program starts: from here on Ctrl-C ends it quietly, also while it is still being loaded."""

# What `signal` is made of: that one loads more before the handler could be set.
import _signal  # type: ignore[import-not-found]
import os

_signal.signal(_signal.SIGINT, lambda number, frame: os._exit(130))


def main() -> None:
    """Load the command line and run it."""
    from pulsar_meta.cli.app import main

    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    main()


if __name__ == "__main__":
    main()
