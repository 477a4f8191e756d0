"""The entry point. Ctrl-C ends the program quietly, even while its modules are being loaded."""

import gc
import os
import sys

try:
    import signal

    signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
except KeyboardInterrupt:
    # Importing `signal` takes some milliseconds, during which Ctrl-C may arrive.
    os._exit(130)


def main() -> None:
    """Load the command line and run it."""
    if sys.platform == "win32":
        # Said before anything is imported that Windows doesn't have.
        sys.stderr.write("pulsar-meta: Windows is not supported: use the Windows Subsystem for Linux (WSL)\n")
        sys.exit(2)
    # Imports create no garbage; collecting it takes a tenth of the start.
    gc.disable()
    from pulsar_meta.cli.app import interrupt, main

    signal.signal(signal.SIGINT, interrupt)
    main()


if __name__ == "__main__":
    main()
