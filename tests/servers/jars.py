"""The jars of a published Pulsar version, resolved once by Maven and kept outside the tree.

`resolve("4.2.4")` returns a directory with the roughly 330 jars that `pulsar-broker` needs at run time,
including BookKeeper, ZooKeeper and the Java clients, and since 5.0 also the client for scalable topics. It is
in the user's cache directory (`$XDG_CACHE_HOME/pulsar-meta/jars/VERSION`), so the download happens once per
machine. NoJars explains why there are none. `python -m tests.servers.jars VERSION…` resolves jars beforehand.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

RESOLVE_SECONDS: Final = 1500
COPY_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

# Pulsar 5 is built with Gradle, and its POMs pin no versions. It was built against these.
_GRADLE_BOMS: Final = (
    ("com.fasterxml.jackson", "jackson-bom", "2.21.3"),
    ("io.netty", "netty-bom", "4.2.15.Final"),
)

_POM: Final = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>pulsar-meta</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencyManagement><dependencies>{boms}</dependencies></dependencyManagement>
  <dependencies>{artifacts}</dependencies>
</project>
"""
_ARTIFACT: Final = (
    "<dependency><groupId>org.apache.pulsar</groupId>"
    "<artifactId>{}</artifactId><version>{}</version></dependency>"
)
_BOM: Final = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<type>pom</type><scope>import</scope></dependency>"
)
_SETTINGS: Final = """<settings><mirrors><mirror>
  <id>central</id><mirrorOf>*</mirrorOf><url>{url}</url>
</mirror></mirrors></settings>
"""


class NoJars(Exception):
    """The jars of a version are not available. The message says why and what would help."""


def cache_directory() -> Path:
    """Return the cache directory for the jars of all versions."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "pulsar-meta" / "jars"


def resolve(version: str) -> Path:
    """Return the directory with the jars of `version`, resolved by Maven at the first call. Raises NoJars."""
    if not re.fullmatch(r"[0-9][0-9A-Za-z.-]*", version):
        raise NoJars(f"{version!r} is no version of Pulsar")
    home = _home(version)
    if home.is_dir():
        return home
    if shutil.which("java") is None:
        raise NoJars("java is not installed (Pulsar needs a JDK or JRE 17, Debian: openjdk-17-jre-headless)")
    if shutil.which("mvn") is None:
        raise NoJars(f"Maven is not installed and {home} does not exist (Debian: apt-get install maven)")
    with _exclusive(home):
        if not home.is_dir():
            _resolve_into(home, version)
    return home


def _home(version: str) -> Path:
    """Return the directory of a version's jars. Older 5.0 jars without the client are elsewhere."""
    return cache_directory() / "+".join([version, *_artifacts(version)[1:]])


def _artifacts(version: str) -> list[str]:
    return ["pulsar-broker", *(["pulsar-client-v5"] if _major(version) >= 5 else [])]


def _major(version: str) -> int:
    return int(version.split(".")[0])


def classpath(version: str) -> str:
    """Return the class path of `version` for `java -cp`."""
    return f"{resolve(version)}/*"


@contextmanager
def _exclusive(home: Path) -> Iterator[None]:
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / f".{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _resolve_into(home: Path, version: str) -> None:
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{version}-") as scratch:
        project, jars = Path(scratch), Path(scratch) / "jars"
        (project / "pom.xml").write_text(_pom(version))
        command = ["mvn", "-B", "-q", *_settings(project), "-f", str(project / "pom.xml"), COPY_GOAL]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=RESOLVE_SECONDS, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired as error:
            raise NoJars(f"Maven did not resolve Pulsar {version} in {RESOLVE_SECONDS} s") from error
        if done.returncode != 0 or not any(jars.glob("*.jar")):
            raise NoJars(f"Maven cannot resolve Pulsar {version}: {_first_error(done.stdout + done.stderr)}")
        jars.rename(home)


def _pom(version: str) -> str:
    boms = _GRADLE_BOMS if _major(version) >= 5 else (("org.apache.pulsar", "pulsar", version),)
    artifacts = "".join(_ARTIFACT.format(artifact, version) for artifact in _artifacts(version))
    return _POM.format(artifacts=artifacts, boms="".join(_BOM.format(*bom) for bom in boms))


def _settings(project: Path) -> list[str]:
    """Mirror all repositories to Maven's default, because some POMs name repositories that are gone.

    A user's own settings file is left alone, because it chooses the repositories.
    """
    if (Path.home() / ".m2" / "settings.xml").exists():
        return []
    url = _default_repository()
    if url is None:
        return []
    settings = project / "settings.xml"
    settings.write_text(_SETTINGS.format(url=url))
    return ["-s", str(settings)]


def _default_repository() -> str | None:
    """Return the URL of the repository in Maven's super POM, read from Maven itself."""
    version_text = subprocess.run(["mvn", "-B", "-v"], capture_output=True, text=True, timeout=60).stdout
    home = re.search(r"^Maven home: (.+)$", version_text, re.MULTILINE)
    for jar in Path(home[1]).glob("lib/maven-model-builder-*.jar") if home else ():
        with zipfile.ZipFile(jar) as model:
            root = ElementTree.fromstring(model.read("org/apache/maven/model/pom-4.0.0.xml"))
        url = root.findtext("./{*}repositories/{*}repository/{*}url")
        if url:
            return url
    return None


def _first_error(output: str) -> str:
    lines = [line for line in output.splitlines() if "ERROR" in line] or output.splitlines()
    return lines[0].strip() if lines else "it printed nothing"


def main() -> int:
    """Resolve every version that the command line names. Returns 1 if one failed."""
    failed = 0
    for version in sys.argv[1:]:
        try:
            print(f"{version}: {resolve(version)}")
        except NoJars as error:
            print(f"{version}: {error}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
