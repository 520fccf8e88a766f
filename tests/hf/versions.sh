#!/usr/bin/env bash
# The tests of distinctkv.hf under other versions of transformers.
#   tests/hf/versions.sh short   the oldest we promise, beside the torch of .venv: under a minute
#   tests/hf/versions.sh 4.56.* 4.57.* 5.2.*   all tests, each version in its own environment
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- "4.56.*" "4.57.*" "5.2.*"
export OMP_NUM_THREADS=1

short() { # what differs between versions is put in a folder that comes before the rest
  local place=.venv/transformers-oldest
  local what=("transformers==4.56.*" "huggingface-hub<1" "tokenizers<0.23" \
    requests urllib3 charset-normalizer certifi idna)
  if [ ! -e "$place/.ready" ]; then
    rm -rf "$place"
    .venv/bin/uv pip install -q --python .venv/bin/python --target "$place" --no-deps "${what[@]}" ||
      .venv/bin/python -m pip install -q --target "$place" --no-deps "${what[@]}"
    touch "$place/.ready"
  fi
  echo "== $(cd "$place" && echo transformers-*.dist-info)"
  PYTHONPATH="$place" .venv/bin/python -m pytest -q -p no:cacheprovider \
    tests/hf/test_architectures.py tests/hf/test_serialization.py tests/hf/test_rotary.py \
    tests/hf/test_cuda_graph.py
}

whole() ( # extra, version, tests; a shell of its own, whose end takes the environment with it
  place=$(mktemp -d)
  trap 'rm -rf "$place"' EXIT
  "${PYTHON:-python3}" -m venv "$place"
  grep -vE '^transformers==' constraints.txt > "$place/constraints.txt"
  "$place/bin/python" -m pip install -q -c "$place/constraints.txt" -e ".[$1]" "transformers==$2" \
    accelerate pytest hypothesis pytest-randomly
  echo "== transformers $2"
  "$place/bin/python" -m pytest -q -p no:cacheprovider "$3"
)

for version in "$@"; do
  case $version in
    short) short ;;
    *) whole hf "$version" tests/hf ;;
  esac
done
