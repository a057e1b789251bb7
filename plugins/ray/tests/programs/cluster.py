"""A cluster of this machine alone, on the loopback."""

import ray


def begin(cpus: int, sessions: str) -> None:
    """Ray waits for its own processes for 30 s and no longer: on a busy machine it is asked again."""
    for left in range(9, -1, -1):
        try:
            ray.init(
                num_cpus=cpus,
                include_dashboard=False,
                object_store_memory=80_000_000,
                _node_ip_address="127.0.0.1",
                log_to_driver=False,
                _temp_dir=sessions,
            )
            return
        except Exception as error:
            if "timed out during startup" not in str(error) or not left:
                raise
            ray.shutdown()
