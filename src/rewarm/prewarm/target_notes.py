"""What is to be said of a target, whatever comes of its programs: keys that no machine asks for, other versions.

Not promised: that a target of which nothing is said has a real machine's keys; `docs/prewarm.md` says what is known.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator, Sequence

from rewarm import targets
from rewarm.prewarm.work import Job
from rewarm.targets.data_sheets import untold

# What makes the code of each platform; others that a file names are beside the point here.
_MAKERS = {
    "cpu": re.compile(r"jax|jaxlib"),
    "cuda": re.compile(r"jax|jaxlib|jax-cuda\d+-\w+|nvidia-cuda-nvcc.*|nvidia-nvvm.*"),
    "tpu": re.compile(r"jax|jaxlib|libtpu"),
}


def of_jobs(jobs: Sequence[Job]) -> dict[str, list[str]]:
    """Lines by target; none for one of which there is nothing to say.

    Raises:
      TargetError: a file is gone since the jobs were made of it.
    """
    names = dict.fromkeys(job.target for job in jobs)
    told = {name: list(_of_target(name, targets.named(name))) for name in names}
    return {name: lines for name, lines in told.items() if lines}


def _of_target(name: str, target: targets.Target) -> Iterator[str]:
    fields = untold(target)
    if fields:
        yield (
            f"{name} is from a data sheet, which does not tell {', '.join(fields)}: these are part of keys, so a real "
            "machine asks for others than were made here. Run rewarm target capture FILE on one, and say --target FILE"
        )
    if target.reported is None:
        return
    there = target.reported.versions
    others = [
        f"{package} {version} (here {_here(package)})"
        for package, version in there.items()
        if _MAKERS[target.platform].fullmatch(package) and _here(package) != version
    ]
    if others:
        yield (
            f"{name} was captured with {', '.join(others)}: keys hold the content of compilers, so what is made here "
            "is for machines that have what is here, and for no others"
        )


def _here(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
