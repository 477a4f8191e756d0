# Pack a directory with a program pulsar-meta into one file that unpacks and runs it: DIRECTORY VERSION FILE.
set -eu
packed=$(mktemp)
trap 'rm -f "$packed"' EXIT
tar -cf - --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u+rwX,go-rwx -C "$1" . | gzip -9n >"$packed"
sum=$(sha256sum "$packed" | cut -c 1-64)
sed -e "s/@VERSION@/$2/g" -e "s/@DIGEST@/$(echo "$sum" | cut -c 1-16)/g" -e "s/@SIZE@/$(wc -c <"$packed")/g" \
  -e "s/@SHA256@/$sum/g" -e "s/@MEGABYTES@/$(du -sm "$1" | cut -f 1)/g" \
  -e "s/@LIBC@/$(getconf GNU_LIBC_VERSION)/g" "$(dirname "$0")/executable_head.sh" |
  cat - "$packed" >"$3"
chmod 755 "$3"
