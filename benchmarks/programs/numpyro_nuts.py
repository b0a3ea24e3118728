"""Bayesian inference with numpyro: NUTS on a hierarchical logistic regression.

The data are drawn from the model's own family with a fixed seed: yes-or-no answers in groups, where each
group has its own intercept and its own weights, which vary around those of the whole population.
"""

from __future__ import annotations

import argparse

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from _result import print_result
from numpyro.infer import MCMC, NUTS, init_to_median

GROUPS = 8
FEATURES = 3
PER_GROUP = 40


def make_data(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws the group, the features and the answer of each observation."""
    draw = np.random.default_rng(seed)
    group = np.repeat(np.arange(GROUPS), PER_GROUP)
    features = draw.normal(size=(len(group), FEATURES)).astype(np.float32)
    weights = np.array([1.0, -0.5, 0.25]) + 0.4 * draw.normal(size=(GROUPS, FEATURES))
    intercepts = 0.3 + 0.6 * draw.normal(size=GROUPS)
    logits = intercepts[group] + (features * weights[group]).sum(axis=1)
    answers = (draw.uniform(size=len(group)) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    return group, features, answers


def model(group: jax.Array, features: jax.Array, answers: jax.Array | None = None) -> None:
    """The regression; the groups' effects are written non-centred and correlated, as is usual for NUTS."""
    effects = FEATURES + 1
    mean = numpyro.sample("mean", dist.Normal(0.0, 2.0).expand([effects]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([effects]).to_event(1))
    correlation = numpyro.sample("correlation", dist.LKJCholesky(effects, concentration=2.0))
    with numpyro.plate("groups", GROUPS):
        offset = numpyro.sample("offset", dist.Normal(0.0, 1.0).expand([effects]).to_event(1))
    effect = numpyro.deterministic("effect", mean + offset @ (scale[:, None] * correlation).T)
    logits = effect[group, 0] + (features * effect[group, 1:]).sum(axis=-1)
    with numpyro.plate("observations", len(group)):
        numpyro.sample("answers", dist.Bernoulli(logits=logits), obs=answers)


def main() -> None:
    """Runs two chains side by side; the result is every sample of every site."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--samples", type=int, default=100)
    arguments = parser.parse_args()
    sampler = MCMC(
        NUTS(model, init_strategy=init_to_median),
        num_warmup=arguments.warmup,
        num_samples=arguments.samples,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    sampler.run(jax.random.key(0), *make_data(seed=0))
    samples = jax.device_get(sampler.get_samples(group_by_chain=True))
    print("posterior mean of the population's effects", samples["mean"].mean(axis=(0, 1)))
    print_result(samples)


if __name__ == "__main__":
    main()
