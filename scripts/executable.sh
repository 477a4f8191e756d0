# Build $DIST/pulsar-meta, one executable file with Python and the pulsar-meta-slim in $DIST. $BIN has the tools; needs PyPI.
set -eu
: "${DIST:=$PWD/dist}" "${BUILD:=$PWD/build}"
environment=$BUILD/executable
version=$("$BIN/python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')
rm -rf "$environment"
"$BIN/python" -m venv "$environment"
"$environment/bin/pip" install --quiet --disable-pip-version-check "$DIST"/pulsar_meta_slim-*.whl "pyinstaller>=6,<7"
"$environment/bin/pyinstaller" --onedir --noconfirm --name pulsar-meta --log-level WARN \
  --collect-all pulsar_meta --copy-metadata pulsar-meta-slim \
  --hidden-import backports.zstd --hidden-import fastcrc --hidden-import cramjam --hidden-import jinja2 \
  --hidden-import prometheus_client.openmetrics.exposition --hidden-import rocksdict --hidden-import orjson \
  --exclude-module tkinter --exclude-module setuptools --exclude-module pip \
  --distpath "$environment/dist" --workpath "$environment/work" --specpath "$environment" \
  "$PWD/scripts/executable_main.py"
# A Python that was built here brings 17 MB of symbols.
command -v strip >/dev/null && strip "$environment"/dist/pulsar-meta/_internal/libpython3*.so* || :
sh scripts/executable_pack.sh "$environment/dist/pulsar-meta" "$version" "$DIST/pulsar-meta"
ls -l "$DIST/pulsar-meta"
