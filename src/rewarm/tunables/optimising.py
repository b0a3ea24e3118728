"""Optuna as the one who says what to try next in a large space (extra `rewarm[tune]`).

Not promised: that it finds better ones than `searching.py` by itself. It models what it was told (TPE), which pays
where candidates are dear.
"""

from __future__ import annotations

import importlib
from typing import Any

from rewarm.errors import RewarmError
from rewarm.tunables.spaces import Config, Space, canonical

# How many proposals may be ones that constraints forbid, or that were made before, for each that is wanted. Beyond
# that the model has settled, and each costs some 10 ms.
_TRIES = 8


class MissingOptimiserError(RewarmError, ImportError):
    """Optuna was asked for and is not installed."""


class Optuna:
    """A proposer (`searching.Proposer`) of Optuna's TPE sampler, seeded.

    Raises:
      MissingOptimiserError: it is not installed.
    """

    def __init__(self, space: Space, seed: int = 0) -> None:
        try:
            self._optuna: Any = importlib.import_module("optuna")
        except ImportError as wrong:
            raise MissingOptimiserError(
                f"optimiser='optuna' needs Optuna, which cannot be imported ({wrong}): pip install 'rewarm[tune]'"
            ) from wrong
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        # All parameters by place: Optuna's own kinds of distributions know no labels, and nothing of powers.
        distributions = self._optuna.distributions
        self._places = {
            name: (
                distributions.IntDistribution(0, len(one.values) - 1)
                if one.is_ordered
                else distributions.CategoricalDistribution(tuple(range(len(one.values))))
            )
            for name, one in space.parameters.items()
        }
        self._space = space
        self._study = self._optuna.create_study(sampler=self._optuna.samplers.TPESampler(seed=seed))
        self._asked: dict[str, Any] = {}
        self.told(space.default, 1.0)

    def propose(self, count: int) -> list[Config]:
        """So many allowed configurations that were not proposed before, or fewer."""
        found: list[Config] = []
        for _ in range(_TRIES * count):
            if len(found) == count:
                break
            trial = self._study.ask(self._places)
            parameters = self._space.parameters
            config = {name: parameters[name].values[place] for name, place in trial.params.items()}
            text = canonical(config)
            if text in self._asked or self._space.broken(config) is not None:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
                continue
            self._asked[text] = trial
            found.append(config)
        return found

    def told(self, config: Config, score: float | None) -> None:
        """What came of one, whoever proposed it; of one that was told before, nothing new is taken."""
        text = canonical(config)
        trial, states = self._asked.get(text, self), self._optuna.trial.TrialState
        self._asked[text] = None
        if trial is None:
            return
        if trial is not self:
            state = states.FAIL if score is None else states.COMPLETE
            self._study.tell(trial, score, state=state)
        elif score is not None:
            places = {name: one.index(config[name]) for name, one in self._space.parameters.items()}
            made = self._optuna.trial.create_trial(params=places, distributions=self._places, value=score)
            self._study.add_trial(made)
