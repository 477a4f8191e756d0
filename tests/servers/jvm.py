"""A JVM in a child process with Python in it. JPype allows one JVM per process, and tests need several.

    with Jvm("4.2.4") as jvm:
        jvm.call("tests.interop.oracle:encode_names", ["we ird:näme"])

The child imports the function, and there `jpype` has Pulsar's classes. Arguments and results are pickled, so
plain values (bytes, str, lists, dicts) work. JavaFailed has the exception that was raised.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.servers import jars
from tests.servers.processes import Process, ServerFailed, Servers

_OPENED: Final = (
    *(f"java.base/{name}" for name in ("java.nio", "java.util.zip", "java.io", "java.lang", "sun.net")),
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
# The limit for one call. Starting a broker or trying tens of thousands of values takes minutes.
CALL_SECONDS: Final = 900
_REPOSITORY: Final = Path(__file__).parents[2]


def java_options(scratch: Path, heap: str = "1g") -> list[str]:
    """Return the options that Pulsar's code needs on Java 17, with `heap` for heap and direct memory.

    Native libraries are unpacked in `scratch`, 15 MB each time, which a killed Java leaves behind.
    """
    unpacked = scratch / "java"
    unpacked.mkdir(exist_ok=True)
    return [
        f"-Djava.io.tmpdir={unpacked}",
        *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED),
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dorg.apache.logging.log4j.level=WARN",
        f"-Xmx{heap}",
        f"-XX:MaxDirectMemorySize={heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
    ]


@cache
def why_no_libjvm() -> str | None:
    """Return why Java can't run inside Python here, or None if it can.

    JPype loads libjvm.so, which a Java runtime from PyPI does not have.
    """
    import jpype

    try:
        jpype.getDefaultJVMPath()
    except (jpype.JVMNotFoundException, jpype.JVMNotSupportedException) as error:
        return f"no Java that can run inside Python, such as Debian's openjdk-17-jre-headless: {error}"
    return None


class JavaFailed(Exception):
    """A call in the child raised an exception. The message is the child's traceback, with Java's part."""


class Jvm(Servers):
    """A child process that runs Python functions with the classes of one Pulsar version."""

    def __init__(
        self,
        version: str | None,
        *,
        heap: str = "1g",
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the child with the jars of `version` (None: only Java). Raises NoJars if there are none."""
        self.version = version or ""
        classpath = jars.classpath(version) if version else ""
        self._scratch = tempfile.TemporaryDirectory(prefix="jvm-")
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        command = [sys.executable, "-m", "tests.servers.jvm_child", str(theirs_in), str(theirs_out)]
        command += [classpath, *java_options(Path(self._scratch.name), heap)]
        self.process = Process(
            command,
            log=log or Path(self._scratch.name) / "jvm.log",
            environment=environment,
            directory=_REPOSITORY,
            pass_fds=(theirs_in, theirs_out),
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._requests, self._answers = os.fdopen(ours_out, "wb"), os.fdopen(ours_in, "rb")

    def call(self, target: str, *arguments: object, seconds: float = CALL_SECONDS) -> Any:
        """Run `module:function` in the child and return its result. Raises JavaFailed or ServerFailed.

        A child that does not answer in time is killed, because the next call would receive this answer.
        """
        try:
            pickle.dump((target, arguments), self._requests)
            self._requests.flush()
            if not select.select([self._answers], [], [], seconds)[0]:
                self.process.kill()
                log = self.process.log_tail()
                raise ServerFailed(f"{target} has not answered after {seconds:g} s:\n{log}")
            fine, result = pickle.load(self._answers)
        except (EOFError, BrokenPipeError) as error:
            raise ServerFailed(
                f"the JVM of Pulsar {self.version} ended:\n{self.process.log_tail()}"
            ) from error
        if not fine:
            raise JavaFailed(result)
        return result

    def stop(self) -> None:
        """End the child. A call before this one must close anything that needs to be closed in order."""
        self._close_pipes()
        self.process.wait(5)
        self.process.kill()
        self._scratch.cleanup()

    def kill(self) -> None:
        """Send SIGKILL, as in a crash."""
        self.process.kill()
        self.stop()

    def _close_pipes(self) -> None:
        for pipe in (self._requests, self._answers):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def close(self) -> None:
        self.stop()
