"""The names and values that the processes of one job share, in the service of `jax.distributed`.

Not promised: that there is a job, or that its service answers. It is one process's (of rank 0) and gone with it.

Measured with JAX 0.9 to 0.12: a value that is set without `allow_overwrite` is set by one caller alone, and the others
are told ALREADY_EXISTS; counting is atomic; a call takes some 0.2 ms on one host; a blocking get lets Python go on.
"""

from __future__ import annotations

from typing import Any

from rewarm.jax_adapter.seam.compile_step import Call

_TUNES_TOGETHER = "xla_gpu_shard_autotuning"

_NEEDED = ("blocking_key_value_get", "key_value_increment", "key_value_set")


class JobStore:
    """The shared values of one job. Safe for any number of threads.

    Every method raises `RuntimeError` (JAX's own) where the service does not answer.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def is_of(self, client: Any) -> bool:
        """Whether it is this client's; another one is of another job."""
        return self._client is client

    def put_new(self, name: str, value: str) -> bool:
        """Set a value, if there is none of that name; whether there was none."""
        try:
            self._client.key_value_set(name, value)
        except RuntimeError as error:
            if "ALREADY_EXISTS" in str(error):
                return False
            raise
        return True

    def get(self, name: str, seconds: float) -> str | None:
        """The value of that name, waited for so many seconds at most; `None`: none came."""
        try:
            value: str = self._client.blocking_key_value_get(name, max(1, int(seconds * 1000)))
        except RuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise
        return value

    def count(self, name: str) -> int:
        """Add one to a counter, which begins at 0; what it is then."""
        return int(self._client.key_value_increment(name, 1))


def job_client() -> Any:
    """The client of the job's service, or `None`: there is no job, or this JAX has not what is needed of it."""
    from jax._src import distributed

    client = getattr(distributed.global_state, "client", None)
    return client if all(callable(getattr(client, name, None)) for name in _NEEDED) else None


def job_address() -> str:
    """Where the service of the job is, as `jax.distributed` was told; "" outside a job. Starts nothing."""
    from jax._src import distributed

    return str(getattr(distributed.global_state, "coordinator_address", None) or "")


def tune_alone(call: Call) -> None:
    """Have XLA:GPU tune the kernels of a call in this process, without the others of the program."""
    options = call.compile_options
    options.env_option_overrides = [*options.env_option_overrides, (_TUNES_TOGETHER, False)]
