"""A parse that is killed again and again finds what one finds that never was."""

import gzip
import random
import signal

import pytest

from tests.cli.logs import log, objects, run, start

# Saves come often and batches are small, so that a short log has many moments to be killed at.
OFTEN = """
from distinctkv.logs import job
from distinctkv.cli import parse
job.LINES, job.LINES_PER_SLOT, parse.CHUNK = 400, 0, 1 << 13
"""
N_LINES, N_KILLS = 15_000, 4

# The process is struck down, as by SIGKILL, a moment of its own time after some saves: a clock on
# the wall would let it end first on a busy machine. Nobody handles SIGPROF, so that nothing ends
# in order.
DOOM = """
import signal
save, left = job.Job.save, [{saves}]
def doomed(self):
    save(self)
    left[0] -= 1
    if not left[0]:
        signal.setitimer(signal.ITIMER_PROF, {moment})
job.Job.save = doomed
"""


def harass(draw, *arguments, state):
    """Kill parses at random moments after they saved; what each of them came to."""
    ends = []
    for _ in range(N_KILLS):
        doom = DOOM.format(saves=draw.randint(1, 3), moment=draw.uniform(1e-4, 0.008))
        process = start("parse", *arguments, "--state", state, before=OFTEN + doom)
        process.communicate(timeout=120)
        ends.append(process.returncode)
    return ends


CASES = [
    pytest.param(bytes, (), id="plain", marks=pytest.mark.slow),
    pytest.param(gzip.compress, (), id="packed", marks=pytest.mark.slow),
    pytest.param(bytes, ("--budget", "9", "--gain", "20"), id="budget", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("pack", "options"), CASES)
def test_a_killed_parse_loses_nothing_and_doubles_nothing(tmp_path, seed, pack, options):
    path = tmp_path / "app.log"
    path.write_bytes(pack(log(N_LINES, seed).encode()))
    calm = run("parse", path, *options, "--state", tmp_path / "calm.state", before=OFTEN)
    state = tmp_path / "killed.state"
    ends = harass(random.Random(seed), path, *options, state=state)
    assert ends == [-signal.SIGPROF] * N_KILLS
    last = run("parse", path, *options, "--state", state, before=OFTEN)
    assert objects(last.stdout) == objects(calm.stdout)
    assert f"{N_LINES:,} with those before" in last.stderr.decode()


def test_saving_changes_nothing(tmp_path, seed):
    path = tmp_path / "app.log"
    path.write_bytes(log(N_LINES, seed).encode())
    saved = run("parse", path, "--state", tmp_path / "app.state", before=OFTEN)
    found = objects(saved.stdout)
    assert found == objects(run("parse", path).stdout)
    assert sum(row["count"] for row in found) == N_LINES
