"""Bayesian inference with numpyro: NUTS on one of several textbook models, on data drawn with a fixed seed."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from _result import print_result
from numpyro.infer import MCMC, NUTS, init_to_median


def eight_schools(data: np.ndarray) -> None:
    """A hierarchical normal model, non-centred."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    scale = numpyro.sample("scale", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(data)):
        offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
        numpyro.sample("observed", dist.Normal(mean + scale * offset, 10.0), obs=data)


def regression(data: np.ndarray) -> None:
    """A linear regression with Student's errors."""
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 1.0))
    noise = numpyro.sample("noise", dist.Exponential(1.0))
    at = jnp.linspace(-1.0, 1.0, len(data))
    numpyro.sample("observed", dist.StudentT(4.0, intercept + slope * at, noise), obs=data)


def mixture(data: np.ndarray) -> None:
    """A mixture of three normal distributions."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    means = numpyro.sample("means", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
    parts = dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(means, 1.0))
    numpyro.sample("observed", parts, obs=data)


def volatility(data: np.ndarray) -> None:
    """Stochastic volatility: a random walk of the log scale."""
    step = numpyro.sample("step", dist.Exponential(10.0))
    path = numpyro.sample("path", dist.GaussianRandomWalk(step, num_steps=len(data)))
    numpyro.sample("observed", dist.Normal(0.0, jnp.exp(path)), obs=data)


def counts(data: np.ndarray) -> None:
    """A Poisson regression with a seasonal effect."""
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    season = numpyro.sample("season", dist.Normal(0.0, 0.5).expand([4]).to_event(1))
    rate = jnp.exp(level + season[np.arange(len(data)) % 4])
    numpyro.sample("observed", dist.Poisson(rate), obs=np.abs(data).astype(np.int32))


def process(data: np.ndarray) -> None:
    """A Gaussian process with a squared exponential kernel, its parameters sampled."""
    variance = numpyro.sample("variance", dist.LogNormal(0.0, 1.0))
    length = numpyro.sample("length", dist.LogNormal(0.0, 1.0))
    at = jnp.linspace(0.0, 5.0, len(data))
    kernel = variance * jnp.exp(-0.5 * ((at[:, None] - at) / length) ** 2) + 0.1 * jnp.eye(len(data))
    numpyro.sample("observed", dist.MultivariateNormal(jnp.zeros(len(data)), covariance_matrix=kernel), obs=data)


MODELS: dict[str, Callable[[np.ndarray], None]] = {
    model.__name__: model for model in (eight_schools, regression, mixture, volatility, counts, process)
}


def main() -> None:
    """Runs one chain; the result is every sample of every site."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="eight_schools")
    parser.add_argument("--size", type=int, default=20, help="how many observations")
    parser.add_argument("--samples", type=int, default=30)
    arguments = parser.parse_args()
    data = np.random.default_rng(0).normal(size=arguments.size).astype(np.float32)
    sampler = MCMC(
        NUTS(MODELS[arguments.model], init_strategy=init_to_median),
        num_warmup=arguments.samples,
        num_samples=arguments.samples,
        progress_bar=False,
    )
    sampler.run(jax.random.key(0), data)
    print_result(jax.device_get(sampler.get_samples()))


if __name__ == "__main__":
    main()
