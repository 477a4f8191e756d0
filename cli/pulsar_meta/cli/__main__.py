"""Where the program starts: from here on Ctrl-C ends it quietly, also while it is still being loaded."""

import os

try:
    import signal

    signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
except KeyboardInterrupt:
    # Loading `signal` loads more, and takes some milliseconds.
    os._exit(130)


def main() -> None:
    """Load the command line and run it."""
    from pulsar_meta.cli.app import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


if __name__ == "__main__":
    main()
