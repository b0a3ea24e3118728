"""Whether a candidate is faster than the default, from samples taken in interleaved rounds. Pure functions.

Not promised: that a verdict holds on another day, or on other inputs. Promised, as far as the noise of one round does
not depend on who is measured first (callers shuffle): where a candidate is no faster, "faster" is said with at most the
stated probability, over all looks and all candidates together, whatever the distribution of the noise.

Samples are paired by round, so what changes from round to round and hits both (drift, clocks, other tenants) cancels.
Of the logarithms of the ratios the median is taken, with the distribution-free interval between two order statistics:
W. R. Thompson, "On Confidence Ranges for the Median and Other Expectation Distributions for Populations of Unknown
Distribution Form", Annals of Mathematical Statistics 7, 1936. Looks and candidates are corrected for by Bonferroni's
inequality, which needs no independence.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from rewarm.tunables.records import Comparison

__all__ = ["MINIMUM_EFFECT", "Comparison", "Limits", "compare", "fewest_rounds", "is_noisy", "speed_up", "spread"]

FASTER, SLOWER, SAME, UNDECIDED = "faster", "slower", "same", "undecided"

# What is not worth another configuration: layout of code in memory alone moves small kernels by about as much.
MINIMUM_EFFECT = 0.01

# A difference below so many of the clock's steps is none.
_STEPS = 2.0


class Limits(NamedTuple):
    """Beyond which a session is noisy.

    Attributes:
      drift: change of the default's median from the first third of the rounds to the last, relative.
      spread: half of the rounds lie so far apart, relative to the median.
      others: share of the processors' time that went to other processes, from 0 to 1.
      frequency: change of the processors' frequency over the session, relative.
      stolen: share of the time that a hypervisor took, from 0 to 1.
    """

    drift: float = 0.10
    spread: float = 0.10
    others: float = 0.20
    frequency: float = 0.10
    stolen: float = 0.02


LIMITS = Limits()


def compare(
    candidate_seconds: Sequence[float],
    default_seconds: Sequence[float],
    *,
    confidence: float = 0.95,
    looks: int = 1,
    candidates: int = 1,
    effect: float = MINIMUM_EFFECT,
    resolution: float = 0.0,
) -> Comparison:
    """Compare a candidate with the default.

    "faster": by more than the smallest effect, and in the later half of the rounds, too: what is fast at first alone is
    not. "slower" likewise. "same": the whole interval is within the smallest effect. Else "undecided": more rounds may
    tell.

    Args:
      candidate_seconds: of one call, one sample for each round.
      default_seconds: of the default in the same rounds; a longer one's surplus is left out.
      confidence: of all verdicts together.
      looks: how often, in all, the samples are looked at while they grow.
      candidates: how many are compared with the default.
      effect: the smallest difference that counts, relative.
      resolution: of a sample, in seconds: the clock's, divided by the calls of a batch.

    Raises:
      ValueError: a sample is not above 0, or there is none.
    """
    pairs = list(zip(candidate_seconds, default_seconds, strict=False))
    if not pairs or not all(0 < one < math.inf and 0 < other < math.inf for one, other in pairs):
        raise ValueError("samples of one round at least, all finite and above 0, are expected")
    logs = [math.log(default / candidate) for candidate, default in pairs]
    error = (1.0 - confidence) / (max(1, looks) * max(1, candidates))
    rank = _rank(len(logs), error)
    ordered = sorted(logs)
    low, high = (ordered[rank - 1], ordered[-rank]) if rank else (ordered[0], ordered[-1])
    shortest = min(statistics.median(one) for one in zip(*pairs, strict=True))
    least = math.log1p(max(effect, _STEPS * resolution / shortest))
    verdict = _verdict(low, high, least, logs) if rank else UNDECIDED
    return Comparison(math.exp(statistics.median(logs)), math.exp(low), math.exp(high), verdict, confidence, len(logs))


def _verdict(low: float, high: float, least: float, logs: Sequence[float]) -> str:
    later = statistics.median(logs[len(logs) // 2 :])
    if low > least:
        return FASTER if later > least else UNDECIDED
    if high < -least:
        return SLOWER if later < -least else UNDECIDED
    return SAME if -least < low and high < least else UNDECIDED


@functools.lru_cache(4096)
def _rank(rounds: int, error: float) -> int:
    """The largest k for which the k-th smallest and the k-th largest hold the median but for `error`; 0: none does.

    The median lies below the k-th smallest with P(Bin(rounds, 1/2) < k).
    """
    total, below, rank = 2**rounds, 0, 0
    while rank < rounds // 2:
        below += math.comb(rounds, rank)
        if 2 * below / total > error:
            break
        rank += 1
    return rank


def fewest_rounds(*, confidence: float = 0.95, looks: int = 1, candidates: int = 1) -> int:
    """With fewer rounds every verdict is "undecided": even if all of them agree it may be chance."""
    error = (1.0 - confidence) / (max(1, looks) * max(1, candidates))
    return max(2, math.ceil(1.0 - math.log2(error)))


def speed_up(candidate_seconds: Sequence[float], default_seconds: Sequence[float]) -> float:
    """The median over the rounds of the default's seconds by the candidate's, without a word on how sure it is.

    Raises:
      ValueError: there is no round.
    """
    return statistics.median(default / one for one, default in zip(candidate_seconds, default_seconds, strict=False))


def spread(seconds: Sequence[float]) -> float:
    """How far apart the middle half of the samples lies, relative to the median; 0 for fewer than two samples."""
    if len(seconds) < 2 or not (middle := statistics.median(seconds)):
        return 0.0
    first, _, third = statistics.quantiles(seconds, n=4, method="inclusive")
    return (third - first) / middle


def is_noisy(
    default_seconds: Sequence[float],
    *,
    others: float | None = None,
    frequencies: Sequence[float] = (),
    stolen: float | None = None,
    limits: Limits = LIMITS,
) -> tuple[str, ...]:
    """What makes a session noisy, in words, each with what was found and what is borne; nothing for a quiet one.

    Args:
      default_seconds: the default's samples in the order of the rounds.
      others: share of the processors' time that went to other processes; `None`: not known.
      frequencies: of the processors over the session, in any unit.
      stolen: share of the time that a hypervisor took.
      limits: what is borne.
    """
    found = (
        ("drift", "the default drifted", drift(default_seconds), limits.drift),
        ("spread", "the default's rounds lie apart", spread(default_seconds), limits.spread),
        ("others", "other processes took processor time", others or 0.0, limits.others),
        ("frequency", "the processors' frequency changed", _change(frequencies), limits.frequency),
        ("stolen", "the hypervisor took processor time", stolen or 0.0, limits.stolen),
    )
    return tuple(
        f"noisy ({word}): {said}, {share:.1%} where {most:.0%} is borne"
        for word, said, share, most in found
        if share > most
    )


def drift(seconds: Sequence[float]) -> float:
    """How far the medians of the first and the last third of the samples lie apart, relative; 0 for few samples."""
    third = len(seconds) // 3
    if third < 2:
        return 0.0
    first, last = statistics.median(seconds[:third]), statistics.median(seconds[-third:])
    return max(first, last) / min(first, last) - 1.0 if min(first, last) > 0 else 0.0


def _change(values: Sequence[float]) -> float:
    good = [one for one in values if one > 0]
    return max(good) / min(good) - 1.0 if good else 0.0
