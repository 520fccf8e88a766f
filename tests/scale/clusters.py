"""A build on a real cluster of two workers, one of which is killed; exits with 0 if it survives.

A process of its own: a cluster leaves threads, signal handlers, paths and settings behind.
"""

import sys
from contextlib import contextmanager
from pathlib import Path

from distinctkv.scale import on_dask, on_ray
from tests.scale.work import survives

NOT_STARTED = 75


@contextmanager
def dask():
    import distributed

    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    )
    with cluster, distributed.Client(cluster) as client:
        yield on_dask(client)


@contextmanager
def ray():
    import ray

    try:
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    except Exception as error:  # Ray gives itself 30 seconds to start, and nobody can give it more
        if "timed out" not in str(error).lower():
            raise
        sys.exit(NOT_STARTED)
    yield on_ray()
    ray.shutdown()


if __name__ == "__main__":
    with {"dask": dask, "ray": ray}[sys.argv[1]]() as run:
        survived = survives(Path(sys.argv[2]), run)
    sys.exit(not survived)
