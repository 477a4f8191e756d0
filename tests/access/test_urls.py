from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_meta.access.urls import ServerUrl, read_secret, redact, user_password
from pulsar_meta.codecs.errors import NotFoundError, UnreachableError, UsageError
from pulsar_meta.stores.registry import STORES, open_store
from tests.cli.program import pulsar_meta_here

SECRET = "s3cr3t-pässword"


def parse(url: str) -> ServerUrl:
    return ServerUrl.parse(url, default_port=2181, options=("tls",))


def test_hosts_ports_and_chroot() -> None:
    url = parse("zk://a,b:2182,[::1]:2183/pulsar/meta?timeout=2.5&tls=true")
    assert url.endpoints == ("a:2181", "b:2182", "[::1]:2183")
    assert url.path == "pulsar/meta"
    assert url.timeout == 2.5
    assert url.flag("tls")


def test_the_slashes_may_be_left_out() -> None:
    assert parse("zk:host:2181/x").endpoints == ("host:2181",)
    assert parse("zk:host:2181/x").url == "zk://host:2181/x"


@pytest.mark.parametrize(
    "url",
    [
        "zk://",
        "zk://a b",
        "zk://host:port",
        "zk://host:123456",
        "zk://host:99999",
        "etcd://host:0",
        "etcd://host:2379/chroot",
        "zk://host?ca=/dev/null",
        "etcd://host?cert=/dev/null",
        "oxia://host?key=/dev/null",
        "zk://host?tls=true&ca=/nowhere/ca.pem",
        "oxia://host?tls=true&ca=/nowhere/ca.pem",
        "zk://host,",
        "zk://host?tiemout=3",
        "zk://host?timeout=0",
        "zk://host?timeout=-1",
        "zk://host?timeout=nan",
        "zk://host?timeout=inf",
        "zk://host?timeout=soon",
        "zk://host?tls=maybe",
        "zk://host?auth=user:password",
        "zk://host?auth=file:",
        "etcds://host?ca=/nowhere/ca.pem",
        "etcds://host?cert=/nowhere/cert.pem",
    ],
)
def test_invalid_urls_are_usage_errors(url: str) -> None:
    with pytest.raises(UsageError):
        open_store(url)


@pytest.mark.parametrize("url", ["", "no-scheme", "zk:", "ftp://host", "memory:x"])
def test_unknown_schemes_name_the_known_ones(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert all(f"{name}:" in str(caught.value) for name in STORES)


def test_userinfo_is_refused_and_redacted() -> None:
    for scheme in ("zk", "etcd", "etcds", "oxia"):
        with pytest.raises(UsageError) as caught:
            open_store(f"{scheme}://admin:{SECRET}@host:1/x")
        assert SECRET not in str(caught.value)
        assert "auth=file:" in str(caught.value)
    for address in (
        f"//u:{SECRET}/x@h",
        f"u:{SECRET}@h:1",
        f"//u:{SECRET}@x@h",
        f"//a:1,u:{SECRET}@h",
        f"//u:{SECRET}@",
    ):
        with pytest.raises(UsageError) as caught:
            open_store(f"zk:{address}")
        assert SECRET not in str(caught.value)
    assert redact(f"etcd://u:{SECRET}@h:1/a@b") == "etcd://***@h:1/a@b"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("offload:http://u:s3cret@h/", "offload:http://***@h/"),
        ("offload:s3://KEY:s3cret@bucket", "offload:s3://***@bucket"),
        ("bookie://u:s3cret@h", "bookie://***@h"),
        ("bookie:u:s3cret@h", "bookie:***@h"),
        ("zk://u:s3cret%40h", "zk://***@h"),
        ("zk://u:x@s3cret@h:1/a", "zk://***@h:1/a"),
        ("zk://u:s3/cret@h:1/a", "zk://***@h:1/a"),
        ("zk://u:s3 cret@h:1/a", "zk://***@h:1/a"),
        ("zk://u:s3?cret@h:1/a", "zk://***@h:1/a"),
        ("zk://u:s3#cret@h:1/a", "zk://***@h:1/a"),
        ("a://u:s3cret@h,b://v:s3cret@i", "a://***@h,b://***@i"),
        ("zk://h:1/a?timeout=2 and http://u:s3cret@h", "zk://h:1/a?timeout=2 and http://***@h"),
        ("zk://h:1/ch@root", "zk://h:1/ch@root"),
        ("zk://h:1,i:2/a?auth=file:/s&tls=true", "zk://h:1,i:2/a?auth=file:/s&tls=true"),
        ("zk://h?auth=u:s3cret", "zk://h?auth=***"),
        ("https://h/o?X-Amz-Signature=s3cret&a=1", "https://h/o?X-Amz-Signature=***&a=1"),
        ("https://h/o?a=1&sig=s3cret", "https://h/o?a=1&sig=***"),
        ("offload:s3://A:s3cret@x offload:s3://B:s3cret@y", "offload:s3://***@x offload:s3://***@y"),
        ("unknown entry source 'ftp://u:s3cret@h'; choose", "unknown entry source 'ftp://***@h'; choose"),
        ("persistent://public/default/a@b", "persistent://public/default/a@b"),
        ("/a/path@x", "/a/path@x"),
        ("file:///data/a:b@c", "file:///data/a:b@c"),
    ],
)
def test_urls_are_shown_without_credentials(url: str, shown: str) -> None:
    redacted = redact(url)
    assert "s3" + "cret" not in redacted
    assert redacted == shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["dump-entries", "1", "--entries", "offload:http://u:s3cret@127.0.0.1:1/"],
        ["dump-entries", "1", "--entries", "offload:s3x://KEY:s3cret@bucket"],
        # boto rejects this as a bucket name and repeats all of it in the error.
        ["dump-entries", "1", "--entries", "offload:s3://KEY:s3cret@bucket/x"],
        ["dump-entries", "1", "--entries", "bookie://u:s3cret@h", "--store", "dir:."],
        ["verify-entries", "1", "--entries", "ftp://u:s3cret@h"],
        ["ls", "/", "--store", "zk://u:s3cret%40h"],
        ["ls", "/", "--store", "zk://u:s3cret@h/x@y"],
        ["ls", "/", "--store", "zk://u:s3/cret@h:1"],
        ["ls", "/", "--store", "http://u:s3cret@h"],
        ["lookup", "t", "--service-url", "pulsar://u:s3cret@h"],
    ],
)
@pytest.mark.parametrize("form", ["json", "plain"])
def test_no_command_shows_the_credentials_of_a_url(arguments: list[str], form: str) -> None:
    done = pulsar_meta_here(*arguments, "-o", form)
    assert done.returncode in (2, 3, 6)
    assert b"cret" not in done.stdout + done.stderr


def test_secrets_come_from_files_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text(f"user:{SECRET}\nsecond line\n", encoding="utf-8")
    monkeypatch.setenv("STORE_SECRET", f"user:{SECRET}")
    for reference in (f"file:{tmp_path / 'secret'}", "env:STORE_SECRET"):
        assert user_password(read_secret(reference)) == ("user", SECRET)


@pytest.mark.parametrize("reference", ["file:/nowhere/secret", "env:NOT_SET_AT_ALL", "plain", "", "file:"])
def test_bad_references(reference: str) -> None:
    with pytest.raises(UsageError):
        read_secret(reference)


def test_a_secret_without_a_colon_is_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        user_password(SECRET)
    assert SECRET not in str(caught.value)


def test_a_refused_reference_is_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        open_store(f"zk://host?auth=user:{SECRET}")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("scheme", ["zk", "etcd", "etcds", "oxia"])
def test_an_error_about_a_closed_port_hides_the_secret(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_SECRET", f"user:{SECRET}")
    with pytest.raises(UnreachableError) as caught:
        open_store(f"{scheme}://127.0.0.1:1?timeout=0.5&auth=env:STORE_SECRET")
    assert caught.value.exit_code == 6
    assert SECRET not in repr(caught.value)


@pytest.mark.parametrize("scheme", ["zk", "etcd", "etcds", "oxia"])
def test_an_unknown_host_is_unreachable(scheme: str) -> None:
    with pytest.raises(UnreachableError):
        open_store(f"{scheme}://no-such-host.invalid:1?timeout=0.5")


@pytest.mark.parametrize("url", ["snapshot:{}/none", "dir:{}/none", "rocksdb:{}/none", "rocksdb:{}"])
def test_missing_files_are_not_found_and_not_created(url: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        open_store(url.format(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_opening_a_store_imports_no_other_stores_library(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    code = (
        "import sys; from pulsar_meta.stores.registry import open_store;"
        f"open_store('dir:{tmp_path}').close();"
        "heavy = {'kazoo', 'grpc', 'rocksdict', 'zstandard', 'pyarrow', 'numpy', 'google.protobuf'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_library_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['kazoo'] = None; sys.modules['kazoo.client'] = None\n"
        "from pulsar_meta.stores.registry import open_store\n"
        "from pulsar_meta.codecs.errors import UsageError\n"
        "try: open_store('zk://127.0.0.1:1')\n"
        "except UsageError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "needs kazoo.client, which is not installed" in done.stdout


@pytest.mark.parametrize(
    "piece", ["a", "a.", "a:", "a://", "://", " a", "?password", ";a", "@", "a:b@", "'", "zk://u:p@h"]
)
def test_the_time_to_redact_a_text_does_not_grow_with_its_length(piece: str) -> None:
    # For some pieces it grew by the square, or ended in a RecursionError.
    assert len(redact(piece * 300_000)) < 20_000
