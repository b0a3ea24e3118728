# Two commands need nothing but make and Python 3.11 or newer; each makes its own environment under .venv/, and
# both are safe to run again.
#
#   make demo        a real training program, cold and then warm
#   make test        lint, types and all tests, on this machine's Python and the newest JAX it allows
#
#   make demo-prewarm  the cache filled for this CPU from a process that runs nothing, and then used
#   make docs        the documentation site, into site/, with warnings as errors
#   make contract    the seam's tests on each supported JAX that this machine's Pythons allow
#   make campaign    the slow fault campaigns
#   make clean       remove the environments
#
# Another Python: make demo PYTHON=/path/to/python

PYTHON ?= $(shell sh tools/find-python 3.11)
CAMPAIGN ?= campaign
JAX ?= jax>=0.9,<0.13
PIP = -m pip install --quiet --disable-pip-version-check

.PHONY: demo demo-prewarm test docs contract campaign cuda-compiler tpu-compiler clean

demo: .venv/demo/ready
	.venv/demo/bin/python examples/demo.py

demo-prewarm: .venv/demo/ready
	.venv/demo/bin/python examples/demo_prewarm.py

test: .venv/test/ready cuda-compiler tpu-compiler
	.venv/test/bin/ruff check src tests benchmarks examples
	.venv/test/bin/ruff format --check src tests benchmarks examples
	.venv/test/bin/mypy
	.venv/test/bin/python -m pytest -n 2 --dist loadfile -m "not campaign"

# XLA:GPU's compiler without a GPU, in a folder of its own: tests of tuning results ask it. Where it cannot be had they
# are skipped, saying so.
cuda-compiler: .venv/test/ready
	sh tools/cuda-compiler .venv/test/bin/python || [ "$${REWARM_TEST_CUDA:-}" != 1 ]

# The TPU's compiler (libtpu), which needs no TPU: the same.
tpu-compiler: .venv/test/ready
	sh tools/tpu-compiler .venv/test/bin/python || [ "$${REWARM_TEST_TPU:-}" != 1 ]

campaign: .venv/test/ready cuda-compiler tpu-compiler
	.venv/test/bin/python -m pytest -n 2 -m "$(CAMPAIGN)"

docs: .venv/docs/ready
	NO_MKDOCS_2_WARNING=1 .venv/docs/bin/python -m mkdocs build --strict --clean

contract:
	sh tools/contract

.venv/demo/ready: pyproject.toml examples/requirements.txt
	sh tools/make-environment .venv/demo "$(PYTHON)"
	.venv/demo/bin/python $(PIP) -e . "$(JAX)" -r examples/requirements.txt
	touch $@

.venv/test/ready: pyproject.toml
	sh tools/make-environment .venv/test "$(PYTHON)"
	.venv/test/bin/python $(PIP) -e ".[test,dev,servers]" "$(JAX)"
	touch $@

# It needs no JAX: the pages are made of the source.
.venv/docs/ready: pyproject.toml
	sh tools/make-environment .venv/docs "$(PYTHON)"
	.venv/docs/bin/python $(PIP) -e ".[docs]"
	touch $@

clean:
	rm -rf .venv
