"""The same build on real clusters of two workers, one of which is killed in the middle."""

import warnings

from distinctkv.scale import on_dask, on_ray
from tests.scale.work import survives


def test_dask_does_again_what_a_killed_worker_did(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a cluster that is being started, killed and stopped
        import distributed

        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        )
        with cluster, distributed.Client(cluster) as client:
            assert survives(folder, on_dask(client))


def test_ray_does_again_what_a_killed_worker_did(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        try:
            assert survives(folder, on_ray())
        finally:
            ray.shutdown()
