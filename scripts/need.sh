#!/bin/sh
# Installs what some tests and commands need beside Python, where that is allowed (root on Debian);
# else names the exact package and goes on: what cannot run says so itself.
set -u

debian_root() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

updated=
install() { # install WHAT PACKAGE WHY
    if debian_root; then
        echo "installing $2 ($3)"
        [ -n "$updated" ] || { apt-get update -qq >/dev/null 2>&1; updated=1; }
        if DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null 2>&1; then
            return 0
        fi
    fi
    echo "=====================================================================" >&2
    echo "$1 was not found and could not be installed: $3." >&2
    echo "Install the package $2 (on Debian: apt-get install $2)." >&2
    echo "Everything that does without it runs; what does not run says so." >&2
    echo "=====================================================================" >&2
}

java_major() {
    command -v "${JAVA_HOME:+$JAVA_HOME/bin/}java" >/dev/null 2>&1 || { echo 0; return; }
    "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

for what in "$@"; do
    case "$what" in
    java) [ "$(java_major)" -ge 17 ] 2>/dev/null || install "Java 17" openjdk-17-jre-headless "Spark and ZooKeeper need Java 17 or newer" ;;
    etcd) command -v etcd >/dev/null 2>&1 || install etcd etcd-server "the tests run a real etcd" ;;
    openssl) command -v openssl >/dev/null 2>&1 || install openssl openssl "the tests make certificates for TLS" ;;
    maven) command -v mvn >/dev/null 2>&1 || install Maven maven "the interop tests run real Pulsar from its published jars" ;;
    go) command -v go >/dev/null 2>&1 || echo "go was not found: the tests against a real Oxia server will not run" >&2 ;;
    esac
done
exit 0
