# Build dist/pulsar-meta, one executable file with Python and pulsar-meta-slim. $BIN has the tools; needs PyPI.
set -eu
environment=build/executable
rm -rf "$environment"
"$BIN/python" -m venv "$environment"
"$environment/bin/pip" install --quiet --disable-pip-version-check dist/pulsar_meta_slim-*.whl "pyinstaller>=6,<7"
"$environment/bin/pyinstaller" --onefile --noconfirm --name pulsar-meta --log-level WARN \
  --collect-all pulsar_meta --copy-metadata pulsar-meta-slim \
  --hidden-import backports.zstd --hidden-import fastcrc --hidden-import cramjam --hidden-import jinja2 \
  --hidden-import prometheus_client.openmetrics.exposition --hidden-import rocksdict --hidden-import orjson \
  --exclude-module tkinter --exclude-module setuptools --exclude-module pip \
  --distpath "$PWD/dist" --workpath "$PWD/$environment/work" --specpath "$PWD/$environment" \
  "$PWD/scripts/executable_main.py"
ls -l dist/pulsar-meta
