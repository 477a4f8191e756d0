"""The entry point of the executable that `make executable` builds."""

import multiprocessing
import runpy
import sys

from pulsar_meta.cli.__main__ import main

if __name__ == "__main__":
    multiprocessing.freeze_support()
    if sys.argv[1:3] == ["-P", "-m"]:
        # The program starts its own modules as other processes.
        del sys.argv[1:3]
        runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
    else:
        main()
