"""The same build on real clusters of two workers, one of which is killed in the middle."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scale.clusters import NOT_STARTED

ROOT = Path(__file__).parents[2]
# A busy machine, or one with little room, is not what is tried here.
PATIENT = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "600s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "600s",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_local_fs_capacity_threshold": "1",
}


@pytest.mark.parametrize("cluster", ["dask", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_cluster_does_again_what_a_killed_worker_did(folder, cluster):
    command = [sys.executable, "-m", "tests.scale.clusters", cluster, str(folder)]
    done = subprocess.run(
        command, env=os.environ | PATIENT, cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode == NOT_STARTED:
        pytest.skip(f"{cluster} did not start in time on this machine")
    assert done.returncode == 0, done.stderr
