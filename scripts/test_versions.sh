# Run the tests of codecs with other versions of the dependencies: test_versions.sh RESOLUTION [OPTIONS of pytest]
set -eu
resolution=$1
shift
environment=build/versions-$resolution
"$BIN/uv" venv --quiet --clear --python "$BIN/python" "$environment"
"$BIN/uv" pip install --quiet --python "$environment" --resolution "$resolution" --requirement pyproject.toml \
  "pytest>=8.3" "hypothesis>=6.100" "fastcrc>=0.4" "backports.zstd>=1" "cramjam>=2.11" \
  "fastjsonschema>=2.20"
"$BIN/uv" pip install --quiet --python "$environment" --no-deps --editable .
"$BIN/uv" pip list --quiet --python "$environment"
HYPOTHESIS_PROFILE=quick "$environment/bin/python" -m pytest -q -m "not (server or java or spark or nightly)" "$@" tests/codecs
