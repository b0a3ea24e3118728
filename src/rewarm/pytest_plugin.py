"""The pytest plugin: XLA:GPU's tuning results, and winners of `rewarm.tune`, loaded before tests, dumped after them.

Not promised: anything where JAX has compiled before pytest reads its options (another plugin that is loaded with `-p`
and compiles while it is imported); XLA reads its flags once. Nor results of a program that a compilation cache served:
it was not compiled, so nothing was tuned.

An installed plugin is loaded by every run of pytest: this file imports nothing but pytest, and without the options
nothing else is imported and no hook stays.

    --rewarm-autotune-load FILE|DIR   results for XLA: files and folders of XLA's, lock files, cache directories
    --rewarm-autotune-dump FILE       what was loaded and what was tuned is added to this file at the end
    --rewarm-tuned-dump FILE          winners of `rewarm.tune`, loaded and found, are added to this lock file
    --rewarm-no-tuning                a call of a `rewarm.tunable` that nobody has tuned is an error

A lock file that is loaded may have winners of `rewarm.tune`, too, and those are in force then (`tunables/in_tests.py`).

Under pytest-xdist each worker has a place of its own and the controller gathers. A pytest that a test starts with these
options has a run, a report and a dump of its own. Each of several machines that share
the tests dumps a file of its own; `rewarm autotune merge` makes one of them. Paths as in Bazel's tests
(TEST_WORKSPACE/..., TEST_UNDECLARED_OUTPUTS_DIR/..., $(execpath ...)) are understood.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rewarm.autotune.in_tests import Gathered, Run, Tuned
    from rewarm.tunables.in_tests import Winners

_LOAD, _DUMP = "--rewarm-autotune-load", "--rewarm-autotune-dump"
_DUMP_WINNERS, _STRICT = "--rewarm-tuned-dump", "--rewarm-no-tuning"
_NAME, _WINNERS = "rewarm-autotune", "rewarm-winners"
_SHOWN_TESTS, _SHOWN_FUSIONS, _SHOWN_LEFT_OUT = 50, 4, 5


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("rewarm", "XLA:GPU's tuning results, and winners of rewarm.tune")
    group.addoption(_LOAD, metavar="FILE|DIR", help="give XLA these tuning results, and say which tests tuned anyway")
    group.addoption(_DUMP, metavar="FILE", help="add what was loaded and what tests tuned to this file of XLA's")
    group.addoption(_DUMP_WINNERS, metavar="FILE", help="add winners that were loaded and found to this lock file")
    group.addoption(_STRICT, action="store_true", help="fail where a tunable function is called that nobody tuned")


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Set the flags before the first conftest.py is imported, since that may compile already.

    Raises:
      pytest.UsageError: what was asked for cannot be done; one line says why.
    """
    said = early_config.known_args_namespace
    load, dump = getattr(said, "rewarm_autotune_load", None), getattr(said, "rewarm_autotune_dump", None)
    to, is_strict = getattr(said, "rewarm_tuned_dump", None), bool(getattr(said, "rewarm_no_tuning", False))
    if load is not None or to is not None or is_strict:
        winners = _winners(early_config, load, to, is_strict=is_strict)
        early_config.pluginmanager.register(winners, _WINNERS)
        # What has winners alone is none of XLA's business, which may not even be here.
        load = None if winners.has_all_of_load else load
    if load is not None or dump is not None:
        early_config.pluginmanager.register(_begun(early_config, load, dump), _NAME)


def _winners(config: pytest.Config, load: str | None, dump: str | None, *, is_strict: bool) -> _Winners:
    from rewarm import settings
    from rewarm.errors import RewarmError
    from rewarm.tunables import in_tests

    if dump is not None and not dump.strip():
        raise pytest.UsageError(f"rewarm: {_DUMP_WINNERS}: expected a path after it, found an empty value")
    environment = settings.child_environment(None, stats="")
    try:
        source = _path(config, load, environment, is_input=True) if load and load.strip() else None
        target = _path(config, dump, environment, is_input=False) if dump else None
        begun = in_tests.begun(
            environment,
            source,
            target,
            strict=is_strict,
            is_worker=bool(_xdist(environment)),
            is_said=settings.environment_mentions_rewarm(),
        )
    except (RewarmError, OSError) as wrong:
        raise pytest.UsageError(f"rewarm: {wrong}") from None
    config.add_cleanup(begun.end)
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    for name, value in begun.variables.items():
        patch.setenv(name, value)
    return _Winners(begun, source, target)


def _begun(config: pytest.Config, load: str | None, dump: str | None) -> _Tuning:
    from rewarm import settings
    from rewarm.autotune import in_tests, xla_flags
    from rewarm.errors import RewarmError

    for option, said in ((_LOAD, load), (_DUMP, dump)):
        if said is not None and not said.strip():
            raise pytest.UsageError(f"rewarm: {option}: expected a path after it, found an empty value")
    environment = settings.child_environment(None, stats="")
    try:
        target = _path(config, dump, environment, is_input=False) if dump else None
        source = _path(config, load, environment, is_input=True) if load else None
        run = in_tests.joined_or_begun(settings.xla_flags(), source, _xdist(environment))
        config.add_cleanup(run.end)
        if target is not None and not run.is_worker:
            run.refuse_dump(target)
        flags = run.enter()
    except (RewarmError, OSError) as wrong:
        raise pytest.UsageError(f"rewarm: {wrong}") from None
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    patch.setenv("XLA_FLAGS", flags)
    jax = "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"
    patch.setenv(jax, xla_flags.xla_caches_of_jax(environment.get(jax)))
    return _Tuning(run, source, target, _cache_in_force(environment) if target else "")


def _xdist(environment: dict[str, str]) -> str:
    """The run of pytest-xdist that this process, or one above it, is a worker of; "" for none."""
    return environment.get("PYTEST_XDIST_TESTRUNUID", "") if environment.get("PYTEST_XDIST_WORKER") else ""


def _cache_in_force(environment: dict[str, str]) -> str:
    """The variable that turns a compilation cache on, as far as the environment says; "" for none."""
    from rewarm import settings

    named = [name for name in ("JAX_COMPILATION_CACHE_DIR", "REWARM_DIR") if environment.get(name)]
    return "REWARM" if settings.environment_asks() and not named else next(iter(named), "")


def _path(config: pytest.Config, said: str, environment: dict[str, str], *, is_input: bool) -> Path:
    """A path as it was typed, from the working directory; in an ini file one may mean the root of the tests."""
    from rewarm.autotune import xla_flags

    path = config.invocation_params.dir / xla_flags.resolved(said, environment)
    of_root = config.rootpath / said
    return of_root if is_input and not path.exists() and of_root.exists() else path


class _Winners:
    """The hooks for winners of `rewarm.tune`."""

    def __init__(self, winners: Winners, load: Path | None, dump: Path | None) -> None:
        self._winners, self._load, self._dump = winners, load, dump
        self._lines: list[str] = []

    @property
    def has_all_of_load(self) -> bool:
        """Whether what is to be loaded is a lock file without a part of XLA's."""
        return bool(self._winners.loaded) and not self._winners.load_has_more

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Dump, after the workers have ended. What was asked for and not done is no success."""
        if self._dump is None or self._winners.is_worker:
            return
        from rewarm import settings
        from rewarm.errors import RewarmError

        try:
            count, new = self._winners.dump(self._dump, settings.directory_of_command(None))
        except (RewarmError, OSError) as wrong:
            self._lines.append(f"no winners were dumped: {wrong}")
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            return
        nothing = f"no test tuned a function: {self._dump} was not written"
        self._lines.append(f"{self._dump} has {_many(count, 'winner')}, {new} of them tuned here" if count else nothing)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what was loaded and dumped."""
        loaded = len(self._winners.loaded)
        lines = [f"{_many(loaded, 'winner')} loaded from {self._load}"] if loaded else []
        if self._winners.is_worker or not (lines := lines + self._lines):
            return
        terminalreporter.write_sep("=", "rewarm: winners")
        for line in lines:
            terminalreporter.write_line(line)


class _Tuning:
    """The hooks of a run with one of the options of XLA's results."""

    def __init__(self, run: Run, load: Path | None, dump: Path | None, cache: str) -> None:
        self._run, self._load, self._dump, self._cache = run, load, dump, cache
        self._gathered: Gathered | None = None
        self._lines: list[str] = []

    def pytest_collection_finish(self) -> None:
        """What modules tuned while they were imported."""
        self._run.after("(while tests were collected)")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """What a test and its fixtures tuned. In a controller this comes for its workers' tests, and finds nothing."""
        self._run.after(nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Gather, after the workers have ended, and dump. What was asked for and not done is no success."""
        self._run.after("(after the last test)")
        if self._run.is_worker:
            return
        from rewarm.errors import RewarmError

        try:
            self._gathered = self._run.gather()
            self._dumped(self._gathered)
        except (RewarmError, OSError) as wrong:
            self._lines.append(f"nothing was dumped: {wrong}" if self._dump else f"nothing was gathered: {wrong}")
            if self._dump and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _dumped(self, gathered: Gathered) -> None:
        if self._dump is None:
            return
        if self._cache:
            self._lines.append(f"{self._cache} turns a compilation cache on: programs that it served were not tuned")
        entries = (*self._run.known.given, *gathered.entries)
        if not entries:
            self._lines.append(f"no test tuned anything: {self._dump} was not written")
            return
        count = self._run.dump(self._dump, entries, gathered.entries)
        self._lines.append(f"{self._dump} has {_many(count, 'result')}, {len(gathered.entries)} of them tuned here")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what was loaded, dumped, and tuned although something had been loaded."""
        if self._run.is_worker or (self._gathered is None and not self._lines):
            return
        terminalreporter.write_sep("=", "rewarm: tuning")
        for line in self._report():
            terminalreporter.write_line(line)

    def _report(self) -> list[str]:
        gathered, run = self._gathered, self._run
        lines = []
        if self._load is not None:
            lines.append(f"{_many(len(run.known.given), 'result')} loaded from {self._load}")
            lines += _some(run.left_out, _SHOWN_LEFT_OUT, "not loaded: ")
        lines += self._lines
        if gathered is None:
            return lines
        lines += _some([str(finding) for finding in gathered.findings], _SHOWN_LEFT_OUT, "not read: ")
        count = sum(len(tuned.entries) for tuned in gathered.tests)
        if self._load is not None and count:
            tests = _many(len(gathered.tests), "test")
            lines.append(f"{tests} tuned {_many(count, 'fusion')} although results were loaded:")
            lines += [line for tuned in gathered.tests[:_SHOWN_TESTS] for line in self._of_test(tuned)]
            if len(gathered.tests) > _SHOWN_TESTS:
                lines.append(f"  and {len(gathered.tests) - _SHOWN_TESTS} tests more")
        elif self._load is not None:
            lines.append("no test tuned anything")
        return lines

    def _of_test(self, tuned: Tuned) -> list[str]:
        from rewarm.autotune.describing import config_in_words, fusion_line

        lines = [f"  {tuned.test}"]
        for entry in tuned.entries[:_SHOWN_FUSIONS]:
            what = f"{fusion_line(entry)} ({entry.backend}: {config_in_words(entry)})"
            lines.append(f"    {self._run.known.reason(entry)}; {what}")
        if len(tuned.entries) > _SHOWN_FUSIONS:
            lines.append(f"    and {_many(len(tuned.entries) - _SHOWN_FUSIONS, 'fusion')} more")
        return lines


def _some(lines: list[str], most: int, before: str) -> list[str]:
    rest = len(lines) - most
    return [before + line for line in lines[:most]] + ([f"{before}and {rest} more"] if rest > 0 else [])


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
