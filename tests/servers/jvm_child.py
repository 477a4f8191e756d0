"""The child of `tests.servers.jvm`: starts the JVM, runs the requested functions and exits at EOF.

`python -m tests.servers.jvm_child IN OUT CLASSPATH OPTION…`. IN and OUT are file descriptors, because Java
code prints to the standard outputs.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import traceback


def main() -> None:
    """Answer requests one after the other: (target, arguments) in, (success, result) out."""
    import jpype

    requests, answers = os.fdopen(int(sys.argv[1]), "rb"), os.fdopen(int(sys.argv[2]), "wb")
    jpype.startJVM(*sys.argv[4:], classpath=[sys.argv[3]], convertStrings=True)
    while True:
        try:
            target, arguments = pickle.load(requests)
        except EOFError:
            break
        answer = pickle.dumps(_run(target, arguments))
        answers.write(answer)
        answers.flush()
    # Java's threads would keep the interpreter alive. Callers have already closed what they had to.
    os._exit(0)


def _run(target: str, arguments: tuple[object, ...]) -> tuple[bool, object]:
    module, _, function = target.partition(":")
    try:
        return True, getattr(importlib.import_module(module), function)(*arguments)
    except BaseException as error:  # noqa: BLE001 the caller gets every exception
        import jpype

        java = error.stacktrace() if isinstance(error, jpype.JException) else ""
        return False, f"{''.join(traceback.format_exception(error))}\n{java}"


if __name__ == "__main__":
    main()
