"""The log parser compiled by mypyc gives what the plain one gives."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
PARSE = """
import json, sys
from distinctkv.logs import LogParser, tokenizer
parser, found = LogParser(), []
for line in json.loads(sys.stdin.read()):
    match = parser.add(line)
    found.append([match.id, match.template, match.parameters, match.novelty, match.changed])
rows = [[row.id, row.template, row.count, row.examples] for row in parser.templates()]
print(json.dumps([tokenizer.__file__, found, rows]))
"""


def parsed(folder, lines):
    """What the package in a folder finds, and the file of its tokenizer."""
    done = subprocess.run(
        [sys.executable, "-c", PARSE],
        env=os.environ | {"PYTHONPATH": str(folder)},
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_compiled_parser_gives_what_the_plain_one_gives(tmp_path, rng):
    source = tmp_path / "source"  # a build leaves the compiled files in the tree
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, source]
    subprocess.run(command, env=os.environ | {"HATCH_BUILD_HOOK_ENABLE_MYPYC": "1"}, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    ZipFile(wheel).extractall(tmp_path / "compiled")
    app = subprocess.run(
        [sys.executable, ROOT / "examples/app_log.py"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    odd = [
        "",
        "a",
        "{'a': [1, 2]}",
        "x=1 y='two words' z=[1, 2, 3]",
        "ユーザー12がログイン",
        "\ufdd0",
    ]
    lines = [*app, *odd, *(app[n][::-1] for n in rng.integers(0, len(app), 200))]
    compiled, plain = (parsed(at, lines) for at in (tmp_path / "compiled", ROOT / "src"))
    assert not compiled[0].endswith(".py")
    assert plain[0].endswith(".py")
    assert compiled[1:] == plain[1:]
