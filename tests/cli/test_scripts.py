"""Shell scripts that operators write, run by bash."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.program import environment
from tests.cli.values import CURSOR, LEDGER, PROGRAM

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
Script = Callable[[str], str]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Return a function that runs a script in the test's directory and returns its stdout."""

    def run(text: str) -> str:
        env = environment(tmp_path / "state", PATH=f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}")
        done = subprocess.run(
            ["bash", "-c", f"set -euo pipefail\n{text}"],
            capture_output=True, text=True, cwd=tmp_path, env=env, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_values_are_read_in_the_text_of_other_tools(script: Script, tmp_path: Path) -> None:
    (tmp_path / "ledger").write_bytes(LEDGER)
    (tmp_path / "cursor").write_bytes(CURSOR)
    out = script(r"""
        # Base64 of either alphabet, wrapped and without padding.
        base64 -w 4 cursor | tr '+/' '-_' | tr -d = > cursor.base64
        pulsar-meta decode cursor.base64 --base64 -o raw | cmp - cursor
        # Escapes, as printf and etcdctl -w fields write them.
        od -An -v -tx1 cursor | tr -d '\n' | sed 's/ /\\x/g' > cursor.escaped
        pulsar-meta decode - --escaped -o raw < cursor.escaped | cmp - cursor
        # put takes the same forms.
        mkdir store
        topics=/managed-ledgers/public/default/persistent
        for form in hex base64 escaped; do
            case $form in
                hex) od -An -v -tx1 ledger ;;
                base64) base64 ledger | tr -d = ;;
                escaped) od -An -v -tx1 ledger | tr -d '\n' | sed 's/ /\\x/g' ;;
            esac > ledger.text
            pulsar-meta put $topics/$form --$form --create --yes --store dir:store < ledger.text
            pulsar-meta get topic public/default/$form --store dir:store -o raw | cmp - ledger
        done
        # encode reads the same base64 in a document.
        pulsar-meta decode cursor --type Bytes -o json | tr '+/' '-_' | tr -d = > cursor.json
        pulsar-meta encode cursor.json | cmp - cursor
        echo same
    """)
    assert out.splitlines()[-1] == "same"
