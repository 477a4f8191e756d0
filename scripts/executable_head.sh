#!/bin/sh
# pulsar-meta @VERSION@ for Linux. This script is followed by the program and its Python as a tar.gz. The first start
# unpacks them into the user's cache directory, and later starts run them from there. If there is no such directory, each
# start unpacks them into a temporary directory, which is removed when the program ends.
name=@VERSION@-@DIGEST@
size=@SIZE@

fail() {
    echo "pulsar-meta: $1" >&2
    exit 6
}

# Sets $cache to the user's cache directory, or to nothing.
find_cache() {
    case ${XDG_CACHE_HOME:-} in /*) cache=$XDG_CACHE_HOME; return ;; esac
    home=${HOME:-}
    # An empty environment has no HOME. The shell knows the home directories of users by name.
    [ -n "$home" ] || case $(id -un 2>/dev/null) in
    "" | *[!A-Za-z0-9_.-]*) ;;
    *) eval "home=~$(id -un)" ;;
    esac
    case $home in /*) cache=$home/.cache ;; *) cache= ;; esac
}

# Tells whether the directory $1 belongs to this user, and nobody else but root can write to it.
is_ours() {
    [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ] || return 1
    case $(ls -ld "$1") in d????-??-*) ;; *) return 1 ;; esac
}

# Checks that this file is complete and unchanged, and that the tools to unpack it are there.
verify() {
    for tool in cat gzip mkfifo mktemp rm sha256sum tail tar; do
        command -v "$tool" >/dev/null || fail "$tool is not installed; this file unpacks itself with it"
    done
    found=$(tail -c "$size" -- "$0" | sha256sum)
    [ "${found%% *}" = @SHA256@ ] || fail "$0 is damaged; copy it again"
}

# Unpacks the program below $new. Fails if $new is on a full disk or if programs can't run there.
unpack() {
    printf '#!/bin/sh\n' >"$new/try" && chmod 700 "$new/try" && "$new/try" || return 1
    (umask 077 && mkdir "$new/$name" && tail -c "$size" -- "$0" | gzip -dc | tar -xof - -C "$new/$name")
} 2>/dev/null

unpack_into_cache() {
    [ -n "$cache" ] || return 1
    [ -d "$cache" ] || mkdir -m 700 "$cache"
    [ -O "$cache" ] || return 1
    [ -d "$cache/pulsar-meta" ] || mkdir -m 700 "$cache/pulsar-meta"
    is_ours "$cache/pulsar-meta" && new=$(mktemp -d "$cache/pulsar-meta/new.XXXXXX") || return 1
    # If another start was faster, its directory is there, and mv fails.
    unpack && mv "$new/$name" "$cache/pulsar-meta/"
    rm -rf "$new"
    [ -x "$program" ]
} 2>/dev/null

unpack_into_temporary() {
    for place in "${TMPDIR:-/tmp}" /tmp /var/tmp /dev/shm; do
        new=$(mktemp -d "$place/pulsar-meta.XXXXXX" 2>/dev/null) || continue
        if unpack && mkfifo "$new/alive"; then
            # `cat` ends when this process, which becomes the program, ends in any way and so closes the pipe.
            (trap '' HUP INT TERM; cat "$new/alive"; rm -rf "$new") </dev/null >/dev/null 2>&1 &
            exec 9>"$new/alive"
            program=$new/$name/pulsar-meta
            return
        fi
        rm -rf "$new"
    done
    fail "no room to unpack @MEGABYTES@ MB; set TMPDIR to a directory that is writable and not mounted noexec"
}

find_cache
program=$cache/pulsar-meta/$name/pulsar-meta
# The cache of another user is never run, not even by root.
if ! { [ -x "$program" ] && [ -O "$cache" ] && is_ours "$cache/pulsar-meta"; }; then
    verify
    new=
    trap '[ -z "$new" ] || rm -rf "$new"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' HUP TERM
    unpack_into_cache || unpack_into_temporary
    "$program" --version >/dev/null 2>&1 || {
        rm -rf "${program%/*}"
        fail "this system can't run the program, which was made for @LIBC@"
    }
fi
exec "$program" "$@"
exit 6
