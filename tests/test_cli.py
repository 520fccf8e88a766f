import subprocess
import sys

from click.testing import CliRunner

from distinctkv import __version__, cli


def test_it_tells_its_version():
    answer = CliRunner().invoke(cli.main, ["--version"])
    assert answer.output == f"distinctkv, version {__version__}\n"


def test_help_names_every_command():
    answer = CliRunner().invoke(cli.main, ["--help"])
    assert answer.exit_code == 0
    assert all(f"  {name} " in answer.output for name in cli.main.commands)


def test_the_command_line_brings_in_nothing_heavy():
    heavy = {"rich", "numpy", "matplotlib", "jinja2", "torch", "numba", "reproduction"}
    code = f"import sys, distinctkv.cli; print(*({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
