#!/bin/sh
# Compares this checkout with a temporary worktree of a base: sh scripts/same_output.sh BASE [CAPTURE…]
# If BASE is empty, it is the commit at which this branch left main, or the parent of main's last commit.
: "${BIN:=.venv/bin}"
set -eu
base=${1:-}
[ $# -eq 0 ] || shift
if [ -z "$base" ]; then
    base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main)
    [ "$base" != "$(git rev-parse HEAD)" ] || base=HEAD^
fi
old=$(mktemp -d)
trap 'git worktree remove --force "$old"' EXIT
trap 'exit 130' INT TERM
git worktree add --quiet --detach "$old" "$base"
echo "comparing with $(git -C "$old" log -1 --format='%h %s')"
"$BIN/python" scripts/same_output.py "$old" . "$@"
