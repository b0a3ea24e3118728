#!/bin/sh
# gpu_check.sh [--json] [--seconds N]: on a machine with an NVIDIA GPU of any kind, in under four minutes, what only a GPU
# can show of rewarm's tuning, as a table. From a clean checkout; where no Python here has a JAX for the GPU, one is
# installed into .venv/gpu-check first (network, some gigabytes, its time not counted).
#
# GPU_CHECK_PYTHON names a Python to use; GPU_CHECK_JAX what pip is to install in place of "jax[cuda13]" (or cuda12).
#
# Exit codes: 0 every row holds; 1 a row does not; 2 the check could not be run; 3 there is no GPU here.
set -eu
cd "$(dirname "$0")/.."

no_gpu() {
    echo "There is no GPU here that JAX can use, so nothing was checked: $1" >&2
    exit 3
}

if ! devices=$(nvidia-smi -L 2>&1); then
    [ -e /dev/nvidiactl ] || no_gpu "nvidia-smi finds none ($(echo "$devices" | tail -n 1)), and there is no /dev/nvidiactl"
fi

# Everything that the rows need: rewarm's own dependencies, and the CUDA plugin of the JAX beside them.
can_check() {
    PYTHONPATH=src "$1" -c '
import importlib.util, sys
wanted = ("jax", "jaxlib", "click", "rich", "platformdirs", "google.protobuf", "jax_plugins")
try:
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
except ModuleNotFoundError as wrong:
    missing = [wrong.name]
import pkgutil
if not missing:
    import jax_plugins
    missing = [] if any(one.name.startswith("xla_cuda") for one in pkgutil.iter_modules(jax_plugins.__path__)) else ["cuda"]
sys.exit(bool(missing) or sys.version_info < (3, 11))' 2>/dev/null
}

python=
for one in ${GPU_CHECK_PYTHON:-} .venv/gpu-check/bin/python .venv/bin/python python3 python; do
    if command -v "$one" >/dev/null 2>&1 && can_check "$one"; then
        python=$one
        break
    fi
done
if [ -z "$python" ]; then
    # A driver says up to which CUDA it goes; wheels for CUDA 13 need one that goes to 13.
    cuda=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p' | head -n 1)
    wheels=${GPU_CHECK_JAX:-jax[cuda$([ "${cuda:-13}" -ge 13 ] && echo 13 || echo 12)]}
    echo "no Python here has a JAX for the GPU; installing $wheels into .venv/gpu-check" >&2
    sh tools/make-environment .venv/gpu-check "${GPU_CHECK_PYTHON:-$(sh tools/find-python 3.12 || true)}" || exit 2
    .venv/gpu-check/bin/python -m pip install --quiet --disable-pip-version-check -e ".[autotune]" "$wheels" || {
        echo "The check could not be run: $wheels cannot be installed" >&2
        exit 2
    }
    python=.venv/gpu-check/bin/python
fi
PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" exec "$python" tests/gpu/gpu_rows.py "$@"
