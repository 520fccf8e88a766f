#!/usr/bin/env bash
# The tests of distinctkv.hf under other versions of transformers, each in an environment of its own.
# Usage: tests/hf/versions.sh [VERSION ...], by default the oldest we promise and the last before 5.3.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- "4.56.*" "4.57.*" "5.2.*"
for version in "$@"; do
  place=$(mktemp -d)
  "${PYTHON:-python3}" -m venv "$place"
  "$place/bin/python" -m pip install -q -c constraints.txt -e ".[hf]" "transformers==$version" \
    pytest hypothesis pytest-randomly
  echo "== transformers $version"
  OMP_NUM_THREADS=1 "$place/bin/python" -m pytest -q tests/hf
  rm -rf "$place"
done
