"""The path of one request: look up, or compile, admit and publish. It knows keys and callables, and no JAX."""

from rewarm.cache.compile_cache import CompileCache
from rewarm.cache.requests import (
    CANNOT_READ,
    CANNOT_SERIALISE,
    COMPILE_FAILED,
    COMPONENTS,
    EXECUTABLE,
    NOT_IN_STORE,
    PROGRAM,
    SOURCE,
    STORE_FAILED,
    Checker,
    Evidence,
    Explainer,
    Observer,
    Request,
    Sampler,
    Trials,
)

__all__ = [
    "CANNOT_READ",
    "CANNOT_SERIALISE",
    "COMPILE_FAILED",
    "COMPONENTS",
    "EXECUTABLE",
    "NOT_IN_STORE",
    "PROGRAM",
    "SOURCE",
    "STORE_FAILED",
    "Checker",
    "CompileCache",
    "Evidence",
    "Explainer",
    "Observer",
    "Request",
    "Sampler",
    "Trials",
]
