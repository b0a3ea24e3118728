"""Checks of the Python that is meant: rewarm and JAX in it, and what else has a say in JAX's settings there.

Not promised: to see a call of `jax.config.update` in somebody's module; `--import MODULE` does, and so does running the
program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rewarm import settings
from rewarm.doctor.check import Check, some
from rewarm.doctor.facts import Facts

_OWN = "rewarm.jax_adapter.plugin"

# Backends that come as such a plugin and set nothing of the cache.
_BACKENDS = frozenset(
    {"xla_cuda12", "xla_cuda13", "xla_rocm7", "xla_rocm60", "xla_rocm", "libtpu", "metal", "openvino"}
)

# Distributions that have a say in the directory or the thresholds of JAX's cache, and where to look. Sources:
# AI-Hypercomputer/maxtext pull requests 279 and 1442, AI-Hypercomputer/maxdiffusion pull request 451,
# AI-Hypercomputer/jetstream-pytorch pull request 198, OpenSourceEconomics/pylcm pull request 314, zadorlab/sella pull
# request 74, gbionics/jaxsim issue 322, marin-community/marin pull request 1384, vllm-project/tpu-inference issues 606
# and 898, vllm-project/vllm pull request 7533, and src/bamcmc/jax_config.py in bamonroe/bamcmc.
_KNOWN: Mapping[str, str] = {
    "bamcmc": "it sets JAX_COMPILATION_CACHE_DIR and a threshold of 1 s when it is imported",
    "jaxsim": "importing it uses JAX, so settings that come later act at the next compile only",
    "jetstream-pytorch": "look at its option for the cache's directory",
    "marin": "it sets JAX_COMPILATION_CACHE_DIR from MARIN_PREFIX when it starts a training",
    "maxdiffusion": "look at jax_cache_dir in its configuration, which it gives to jax.config.update",
    "maxtext": "look at jax_cache_dir in its configuration, which it gives to jax.config.update",
    "pylcm": "it sets JAX's cache directory when it is imported, unless JAX_COMPILATION_CACHE_DIR is set",
    "sella": "it sets JAX's cache directory when it is imported, unless JAX_COMPILATION_CACHE_DIR is set",
    "tpu-inference": "it turns JAX's cache on when it starts; look at VLLM_XLA_CACHE_PATH",
    "vllm": "its TPU backend turns a cache on when it starts; look at VLLM_XLA_CACHE_PATH",
}

_OPTIONS = {
    "cache_dir": "jax_compilation_cache_dir",
    "enabled": "jax_enable_compilation_cache",
    "min_compile_seconds": "jax_persistent_cache_min_compile_time_secs",
    "min_entry_bytes": "jax_persistent_cache_min_entry_size_bytes",
    "max_size": "jax_compilation_cache_max_size",
    "metadata_in_key": "jax_compilation_cache_include_metadata_in_key",
    "check_contents": "jax_compilation_cache_check_contents",
    "raise_errors": "jax_raise_persistent_cache_errors",
    "share_binary": "jax_share_binary_between_hosts",
    "profile_guided": "jax_enable_pgle",
}


def checks(facts: Facts) -> Iterator[Check]:
    """All of this file."""
    if facts.unseen:
        yield Check("python", "problem", facts.unseen, "name another Python with --python")
        return
    yield _rewarm(facts)
    yield _jax(facts)
    yield from _plugins(facts.seen)
    yield from _startup(facts)
    yield from _libraries(facts.seen)
    yield from _imported(facts.jax)


def _rewarm(facts: Facts) -> Check:
    seen = facts.seen
    python = f"{seen['executable']} (Python {seen['version']})"
    install = f"install it there: {seen['executable']} -m pip install rewarm"
    version = seen["versions"].get("rewarm")
    if version is None and not seen["rewarm"]:
        return Check("python", "problem", f"rewarm is not installed in {python}", install)
    if not any(value == _OWN for _, value, _ in seen["plugins"]):
        found = f"rewarm can be imported in {python} from {seen['rewarm']}, and is not installed there as a package"
        advice = f"without its entry point REWARM and REWARM_DIR do nothing: {install}; or call rewarm.enable()"
        return Check("python", "problem", found, advice)
    if not seen["rewarm"]:
        return Check("python", "problem", f"rewarm {version} is installed in {python}, and its files are gone", install)
    return Check("python", "ok", f"{python} has rewarm {version}, and JAX finds its entry point")


def _jax(facts: Facts) -> Check:
    seen, jax = facts.seen, facts.jax
    if not seen["jax"]:
        advice = f"install it there: {seen['executable']} -m pip install jax"
        return Check("jax", "problem", f"JAX is not installed in {seen['executable']}", advice)
    if not seen["rewarm"]:
        return Check(
            "jax", "note", f"JAX {seen['versions'].get('jax', '(no version)')}, not looked into without rewarm"
        )
    if "no_jax" in jax:
        return Check("jax", "problem", f"JAX cannot be imported: {jax['no_jax']}", "repair the installation of JAX")
    if "unsupported" in jax:
        return Check("jax", "problem", jax["unsupported"], "use JAX 0.9 to 0.12, or look for a newer rewarm")
    return Check("jax", "ok", f"JAX {jax['jax']} with jaxlib {jax['jaxlib']}, whose compile step is as rewarm knows it")


def _plugins(seen: Mapping[str, Any]) -> Iterator[Check]:
    """Others whose code runs before the first compile, as rewarm's does."""
    others = [row for row in seen["plugins"] if row[1] != _OWN and row[0] not in _BACKENDS]
    for name, value, distribution in others:
        found = f"{distribution} has a plugin of JAX, {name} = {value}, which runs before the first compile"
        yield Check("plugins", "note", found, "look whether it sets options of JAX, or replaces JAX's compile step")


def _startup(facts: Facts) -> Iterator[Check]:
    """Files that run at each start of this Python."""
    for path, words in facts.seen["startup"]:
        found = f"{path} runs at each start of this Python and speaks of {words}"
        yield Check("startup files", "note", found, "look whether it sets options of JAX or of rewarm")
    if facts.seen["preloaded"]:
        found = f"at the start of this Python {some(facts.seen['preloaded'])} is imported before the program runs"
        advice = "variables that the program sets itself come too late for JAX: set them outside"
        yield Check("startup files", "note", found, advice)
    # The child was not given what asks for metrics.
    changed = _changed(settings.unwatched(facts.given), facts.jax.get("environment"))
    if changed:
        found = f"the startup files of this Python change the environment: {some(changed)}"
        yield Check("startup files", "problem", found, "remove what does, or set these where the files do")


def _changed(outside: Mapping[str, str], inside: Mapping[str, str] | None) -> list[str]:
    if inside is None:
        return []
    names = sorted((set(outside) | set(inside)) - {"JAX_PLATFORMS"})  # which the child was given
    return [
        f"{name} from {outside.get(name, 'unset')!r} to {inside.get(name, 'unset')!r}"
        for name in names
        if outside.get(name) != inside.get(name)
    ]


def _libraries(seen: Mapping[str, Any]) -> Iterator[Check]:
    for name in sorted(set(seen["versions"]) & set(_KNOWN)):
        found = f"{name} {seen['versions'][name]} has a say in JAX's cache: {_KNOWN[name]}"
        yield Check(
            "libraries", "note", found, "where REWARM_DIR is set it wins over the directory; thresholds carry over"
        )


def _imported(jax: Mapping[str, Any]) -> Iterator[Check]:
    imported = jax.get("imported")
    if imported is None:
        return
    if "error" in imported:
        yield Check("import", "problem", f"the module cannot be imported: {imported['error']}", "name one that can")
        return
    changed = [
        f"{_OPTIONS.get(name, name)} from {before!r} to {after!r}"
        for name, (before, after) in imported["changed"].items()
    ]
    if not changed:
        yield Check("import", "ok", "importing the module changes no option of JAX's cache")
        return
    advice = "set these in rewarm's own terms, which win: REWARM_DIR, REWARM_MIN_COMPILE_SECONDS, REWARM_MAX_SIZE"
    if imported["changed"].get("enabled", [None, True])[1] is False:
        yield Check("import", "problem", f"importing the module turns caching off: {some(changed)}", "take that out")
        return
    yield Check("import", "problem", f"importing the module sets options of JAX: {some(changed)}", advice)
