"""The seam: the one function of JAX that rewarm replaces, and everything else of `jax._src` that rewarm reads.

Not promised: that a future JAX keeps any of this. `probe` looks before anything is replaced.

Nothing outside this folder touches a private module of JAX.
"""

from rewarm.jax_adapter.seam.backends import DESCRIBED, backend_obstacle, compile_smallest, topology
from rewarm.jax_adapter.seam.callbacks import (
    jitted_parts,
    jitted_type,
    partitioning_call,
    registered_as_tree,
    trace_context,
)
from rewarm.jax_adapter.seam.compile_step import (
    Call,
    CompileFunction,
    before_compile_step,
    cache_log,
    compile_now,
    compiler_log,
    current,
    drop_override,
    hide_from_tracebacks,
    hide_url,
    install,
    jaxlib_version,
    note_compile_after_miss,
    probe,
    process_index,
    verification_error,
    version,
)
from rewarm.jax_adapter.seam.copies import (
    Copy,
    backends_are_up,
    buffers,
    clients_are_made,
    compile_copy,
    copy_of,
    optimised_programs,
    run_once,
    serialised_programs,
)
from rewarm.jax_adapter.seam.described import can_make_devices, cpu_client, devices_of, have_compiled, mocked_gpus
from rewarm.jax_adapter.seam.distributed import JobStore, job_client, tune_alone
from rewarm.jax_adapter.seam.early_client import (
    client_ahead,
    forget_client_ahead,
    hear_of_cpu_client,
    make_cpu_client_ahead,
    put_back_cpu_client,
)
from rewarm.jax_adapter.seam.loading import client_in_use, client_with, initialise_lapack, load_bytes, untyped_targets
from rewarm.jax_adapter.seam.options import JaxOptions, read_options, remember_defaults, salt_of_hooks
from rewarm.jax_adapter.seam.runs import array_of, unwatch_runs, watch_runs

__all__ = [
    "DESCRIBED",
    "Call",
    "CompileFunction",
    "Copy",
    "JaxOptions",
    "JobStore",
    "array_of",
    "backend_obstacle",
    "backends_are_up",
    "before_compile_step",
    "buffers",
    "cache_log",
    "can_make_devices",
    "client_ahead",
    "client_in_use",
    "client_with",
    "clients_are_made",
    "compile_copy",
    "compile_now",
    "compile_smallest",
    "compiler_log",
    "copy_of",
    "cpu_client",
    "current",
    "devices_of",
    "drop_override",
    "forget_client_ahead",
    "have_compiled",
    "hear_of_cpu_client",
    "hide_from_tracebacks",
    "hide_url",
    "initialise_lapack",
    "install",
    "jaxlib_version",
    "jitted_parts",
    "jitted_type",
    "job_client",
    "load_bytes",
    "make_cpu_client_ahead",
    "mocked_gpus",
    "note_compile_after_miss",
    "optimised_programs",
    "partitioning_call",
    "probe",
    "process_index",
    "put_back_cpu_client",
    "read_options",
    "registered_as_tree",
    "remember_defaults",
    "run_once",
    "salt_of_hooks",
    "serialised_programs",
    "topology",
    "trace_context",
    "tune_alone",
    "untyped_targets",
    "unwatch_runs",
    "verification_error",
    "version",
    "watch_runs",
]
