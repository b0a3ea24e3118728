"""Programs that several processes compile together: all of them load it, or all of them compile it.

Not promised: that what all have is loaded. Where it is not certain, all compile, as without rewarm. And nothing that
JAX does not promise itself: a process that dies, or never comes to the program, leaves the others where it leaves
them without rewarm, after 10 s at most (`_WAIT`), and 60 s in the life of a process (`_PATIENCE`). Agreeing was tried
in jobs on CPU, with compilations that wait as XLA's do; what is said here of GPU was read in XLA's source.

On CPU a process compiles such a program by itself, so nothing is agreed on. On GPU XLA divides the tuning of kernels
among the processes of the program: each publishes its share in the service of `jax.distributed`, under a name made of
the program, and waits for the shares of the others, up to 24 hours (XLA, `ConfigAssigner::AssignConfigs` and before it
`Autotuner::Autotune`, with `xla_gpu_shard_autotuning`, which is on by default). So one that loads leaves those that
compile waiting. And kernels that were tuned apart may differ, where the processes must run one program: so only
entries of one compilation are loaded together. What came out of a compilation by all says so, by an id in its header
(`producer`); other entries are compared by their digests, which agree where the processes share a directory.

What is agreed on, in the same service, for each key and set of processes, once in a job:

    rewarm/<key>/<digest of the ranks>/entry       which compilation the first one who asks has loaded
    rewarm/<key>/<digest of the ranks>/loaded      how many have loaded the same
    rewarm/<key>/<digest of the ranks>/decision    "load " compilation, or "compile " id

One who has no entry, or another one, decides to compile, at once. The last one to be counted decides to load. One who
waits for longer than the deadline decides to compile. A decision is set where there is none; whoever comes too late
with his own, or later altogether, obeys the one that is there. It holds for the rest of the job, so that a process
that asks once more, alone (`lower().compile()` on one rank), waits for nobody.

Agreeing takes some 2 ms on one host for a program that all have, and 1 ms for one that they have not.

Why nobody waits for one who does not come, beyond what JAX has anyway:

* the service keeps one decision, and who reads one reads that one. Two processes never obey different ones.
* "load" is decided only when all have loaded the entry. So no load can fail after it, and nobody compiles.
* "compile" is obeyed by all who have asked and by all who will. XLA finds the same processes as without rewarm.
* after "compile" each may load or compile at later requests: its share is published, and stays.
* a process that does not ask (rewarm is off there, or its key is another one) is never counted, so nobody loads.

What remains, with its worst outcome:

* after "load", an entry is gone when a process asks for it once more: that one compiles alone, its tuning not shared,
  so it waits for nobody. Its kernels may be others than those of the other processes.
* one process cannot reach the service, though it is there: it compiles. If the others load, it waits for their shares
  through the same service, for 24 hours at most. Asking is tried three times.
* the service dies, or hangs: JAX ends the other processes, when the connection breaks or the heartbeat is missed (100 s
  by default), wherever they are; a call to the service may hang until then.
* a process that JAX restarted inside a job (`jax_enable_recoverability`) is counted twice: "load" may be decided while
  another has not asked. It obeys; if it has no entry, it compiles alone, as above.
* one is later than the deadline while the others have loaded: all compile although all have it.
* a job of processes with different keys (another version, other options, on one of them) waits for the deadline at
  each program until the patience of the process is over, and compiles everything.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from rewarm.cache import MOCKED, Request
from rewarm.jax_adapter import seam
from rewarm.jax_adapter.seam import Call, JobStore
from rewarm.jax_adapter.seam.tuning import is_described

logger = logging.getLogger("rewarm")

_WAIT = 10.0
_PATIENCE = 60.0

# For a value that is known to be there.
_PROMPT = 5.0
_TRIES, _PAUSE = 3, 1.0

_LOAD, _COMPILE = "load", "compile"


class Decision(NamedTuple):
    """What the processes of a program do.

    Attributes:
      loads: whether all load it; else all compile it.
      compilation: of which compilation the entries are, or will be; "" where nothing could be agreed on.
    """

    loads: bool
    compilation: str


_UNKNOWN = Decision(loads=False, compilation="")


class Agreements:
    """The decisions of one job, as one of its processes takes part in them. Safe for any number of threads.

    Args:
      store: the values that the processes share.
      patience: seconds that this process waits for others altogether.
    """

    def __init__(self, store: JobStore, patience: float = _PATIENCE) -> None:
        self.store = store
        self._patience = patience
        self._lock = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}
        self._decided: dict[str, Decision] = {}

    def agree(self, key: str, have: str | None, ranks: frozenset[int], deadline: float = _WAIT) -> Decision:
        """What all processes of a program do; never raises.

        Args:
          key: of the program.
          have: of which compilation the entry is that this process has loaded; `None`: it has none.
          ranks: the processes of the program.
          deadline: seconds to wait for the others, where this process has an entry.
        """
        name = f"rewarm/{key}/{_digest(ranks)}"
        with self._lock:
            turn = self._turns.setdefault(name, threading.Lock())
        with turn:  # one process is counted once, however many of its threads ask
            decision = self._decided.get(name)
            if decision is None:
                decision = self._ask_again_and_again(name, have, len(ranks), deadline)
                if decision is not _UNKNOWN:
                    self._decided[name] = decision
        return decision

    def _ask_again_and_again(self, name: str, have: str | None, ranks: int, deadline: float) -> Decision:
        for tried in range(_TRIES):
            try:
                return _read(self._ask(name, have, ranks, deadline))
            except Exception as error:  # noqa: BLE001 - no failure of the service stops a program here
                logger.debug("rewarm: JAX's distributed service: %s", error)
                have = None  # it may have been counted already
                if tried < _TRIES - 1:
                    time.sleep(_PAUSE)
        logger.warning("rewarm: JAX's distributed service does not answer: compiling")
        return _UNKNOWN

    def _ask(self, name: str, have: str | None, ranks: int, deadline: float) -> str | None:
        if have is None or not self._is_the_same(name, have):
            return self._decide(name, _COMPILE)
        if self.store.count(f"{name}/loaded") >= ranks:
            return self._decide(name, f"{_LOAD} {have}")
        return self._wait(name, deadline) or self._decide(name, _COMPILE)

    def _is_the_same(self, name: str, have: str) -> bool:
        """Whether the others have an entry of the same compilation, as far as they have asked."""
        return self.store.put_new(f"{name}/entry", have) or self.store.get(f"{name}/entry", _PROMPT) == have

    def _decide(self, name: str, wanted: str) -> str | None:
        """What was decided: what is wanted, unless somebody was faster."""
        if wanted == _COMPILE:
            wanted = f"{_COMPILE} {uuid.uuid4().hex}"
        if self.store.put_new(f"{name}/decision", wanted):
            return wanted
        return self.store.get(f"{name}/decision", _PROMPT)

    def _wait(self, name: str, deadline: float) -> str | None:
        """The decision of somebody else, or `None`: none came in time."""
        since = time.monotonic()
        decision = self.store.get(f"{name}/decision", min(deadline, max(0.0, self._patience)))
        if decision is None:
            with self._lock:
                self._patience -= time.monotonic() - since
        return decision


def _read(decision: str | None) -> Decision:
    word, _, compilation = (decision or "").partition(" ")
    if word not in (_LOAD, _COMPILE) or not compilation:
        raise ValueError(f"not a decision: {decision!r}")
    return Decision(word == _LOAD, compilation)


def _digest(ranks: frozenset[int]) -> str:
    return hashlib.sha256(",".join(map(str, sorted(ranks))).encode("ascii")).hexdigest()[:16]


class Accord:
    """One request for a program that several processes compile together (`cache.Agreement`).

    Args:
      agreements: of the job.
      key: of the program.
      call: what JAX asks for.
      compile_now: compiles it.
    """

    def __init__(self, agreements: Agreements, key: str, call: Call, compile_now: Callable[[], Any]) -> None:
        self._agreements = agreements
        self._key = key
        self._call = call
        self._compile_now = compile_now
        self._ranks = ranks_of(call)
        self._compiled_in = ""

    def loads(self, compilation: str) -> bool:
        """See `cache.Agreement`.

        Also what this job has compiled together is loaded: who has it was not needed for it, or has done its part.
        """
        return self._agreements.agree(self._key, compilation, self._ranks).compilation == compilation

    def compile(self) -> Any:
        """Compile, with the others or, where they have loaded it already, alone."""
        decision = self._agreements.agree(self._key, None, self._ranks)
        self._compiled_in = "" if decision.loads else decision.compilation
        if decision.loads:
            logger.info("rewarm: key %s: the other processes have loaded it; it is compiled here alone", self._key[:12])
            seam.tune_alone(self._call)
        return self._compile_now()

    def compilation(self) -> str:
        """See `cache.Agreement`."""
        return self._compiled_in


# ---------------------------------------------------------------------------------------------------------------
# What the rest of the adapter asks


def ranks_of(call: Call) -> frozenset[int]:
    """The processes of a program."""
    return frozenset(int(device.process_index) for device in call.flat_devices())


def compile_together(call: Call) -> bool:
    """Whether the processes of a program wait for one another while they compile it. Of described devices there are
    none, and of mocked ones there is this one."""
    several = call.backend.platform == "gpu" and len(ranks_of(call)) > 1
    return several and not is_described(call.backend) and not is_mocked(call)


def is_mocked(call: Call) -> bool:
    """Whether the other processes of the devices are only pretended (`jax_mock_gpu_topology`), outside of any job."""
    return call.backend.platform == "gpu" and bool(seam.mocked_gpus()) and seam.job_client() is None


def of_mocked(request: Request[Any], call: Call) -> Request[Any]:
    """A request for a program whose devices are mocked. Its key and its entry are those of the real topology, and the
    entry says that it comes from a mock.

    XLA tunes here alone: whom it would share the work with is not there. That is said of a compile whose key is made,
    and what it says is in no code.
    """
    compile_ = request.compile

    def alone() -> Any:
        seam.tune_alone(call)
        return compile_()

    producer = {**request.producer, MOCKED: seam.mocked_gpus()}
    return request._replace(compile=alone, producer=producer, again=None, place=None)


_lock = threading.Lock()
_latest: list[Agreements] = []


def agreements() -> Agreements | None:
    """The agreements of the job that this process is in; `None`: of none."""
    client = seam.job_client()
    if client is None:
        return None
    with _lock:
        if not _latest or not _latest[0].store.is_of(client):
            _latest[:] = [Agreements(JobStore(client))]
        return _latest[0]


def of_several_processes(request: Request[Any], call: Call) -> Request[Any]:
    """A request for a program, with what follows from its being one of several processes."""
    if is_mocked(call) and not is_described(call.backend):
        request = of_mocked(request, call)
    if len(ranks_of(call)) == 1:
        return request
    together = compile_together(call)
    # Of platforms other than CPU it is not known that nobody waits for the others.
    request = request._replace(turns=call.backend.platform == "cpu" and not together)
    if not together:
        return request
    # Nobody compiles it again beside the program, or loads it elsewhere.
    request = request._replace(again=None, place=None)
    found = agreements()
    if found is None:
        return request._replace(bypass=request.bypass or "jax.distributed was shut down")
    if request.components is None:
        return request
    accord = Accord(found, request.components.key(), call, request.compile)
    return request._replace(compile=accord.compile, agreement=accord)
