"""Shows a model that somebody else's library compiles: Bayesian inference with numpyro, which knows nothing of rewarm.

    pip install numpyro
    REWARM_DIR=~/.cache/demo REWARM_STATS=1 python examples/numpyro_model.py     # run it twice

The eight schools of Rubin (1981), "Estimation in parallel randomized experiments", sampled with NUTS. The second start
compiles nothing, and prints the same means, digit by digit.
"""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools(error: np.ndarray, effect: np.ndarray | None = None) -> None:
    """What coaching does at each school, around what it does in general; not centred."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    spread = numpyro.sample("spread", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(error)):
        offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
        numpyro.sample("observed", dist.Normal(mean + spread * offset, error), obs=effect)


def main() -> None:
    """Samples, and prints the means."""
    inference = MCMC(NUTS(eight_schools), num_warmup=100, num_samples=100, progress_bar=False)
    inference.run(jax.random.key(0), ERROR, effect=EFFECT)
    for name, values in sorted(inference.get_samples().items()):
        print(name, *(f"{value:.9g}" for value in np.atleast_1d(np.asarray(values).mean(axis=0))))


if __name__ == "__main__":
    main()
