"""A parse that is killed again and again finds what one finds that never was."""

import gzip
import random
import time

import pytest

from tests.cli.logs import log, objects, run, start

# Saves come often and batches are small, so that a short log has many moments to be killed at.
OFTEN = """
from distinctkv.streams import job
from distinctkv.cli import inputs
job.LINES, job.LINES_PER_SLOT, inputs.CELL = 400, 1, 1 << 13
"""
N_LINES, N_KILLS = 10_000, 4


def harass(draw, *arguments, state):
    """Kill parses at random moments after they saved; how often one was killed."""
    kills = 0
    while kills < N_KILLS:
        saves = draw.randint(1, 3)
        with start("parse", *arguments, "--state", state, before=OFTEN) as process:
            while saves and process.poll() is None:
                before = saved_at(state)
                while saved_at(state) == before and process.poll() is None:
                    time.sleep(0.001)
                saves -= 1
            time.sleep(draw.uniform(0, 0.03))
            process.kill()
            process.communicate()
        if process.returncode == 0:
            break
        kills += 1
    return kills


def saved_at(path):
    return path.stat().st_mtime_ns if path.exists() else 0


CASES = [
    pytest.param(bytes, (), id="plain"),
    pytest.param(gzip.compress, (), id="packed", marks=pytest.mark.slow),
    pytest.param(bytes, ("--budget", "9", "--gain", "20"), id="budget", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("pack", "options"), CASES)
def test_a_killed_parse_loses_nothing_and_doubles_nothing(tmp_path, seed, pack, options):
    path = tmp_path / "app.log"
    path.write_bytes(pack(log(N_LINES, seed).encode()))
    calm = run("parse", path, *options, "--state", tmp_path / "calm.state", before=OFTEN)
    state = tmp_path / "killed.state"
    assert harass(random.Random(seed), path, *options, state=state) == N_KILLS
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
