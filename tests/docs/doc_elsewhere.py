"""How blocks of pages are tested that several people edit: what a comment before the block says elsewhere.

Not promised: that a block is found whose first line was changed; a test names it, and it is to be brought into step.
"""

from __future__ import annotations

_JAX = "import jax, jax.numpy as jnp, numpy as np, rewarm\n"

# (page, first line of the block) -> its comments.
ELSEWHERE = {
    ("README.md", "$ make demo     # a real training program, cold and then warm, with the time it saved"): (
        "<!-- not run: make downloads environments of its own -->"
    ),
    (
        "README.md",
        "$ rewarm explain                        # the misses of the last run; --run ID, --program NAME, or a KEY",
    ): (
        "<!-- before: " + "python - <<'END'\n"
        "program = '''import jax, numpy as np\n"
        "def train_step(params):\n"
        "    return params * {rate} + 1\n"
        "jax.jit(train_step)(np.ones(4, np.float32))'''\n"
        "import subprocess, sys, pathlib, os\n"
        "os.environ.pop('REWARM_STATS', None)\n"
        "for rate in ('2e-3', '3e-3'):\n"
        "    pathlib.Path('train.py').write_text(program.format(rate=rate))\n"
        "    subprocess.run([sys.executable, 'train.py'], check=True, env=dict(os.environ, REWARM='1'))\n"
        "END\n-->"
    ),
    ("README.md", '@rewarm.tunable(space={"chunk": [64, 256, 1024]}, default={"chunk": 64})'): (
        "<!-- not run: a function without a body; docs/tuner.md has it whole -->"
    ),
    ("README.md", "@rewarm.jit                     # or jax.jit = rewarm.jit, before the program's own imports"): (
        f"<!-- before: {_JAX}-->"
    ),
    ("README.md", "$ pip install ."): "<!-- excerpt --><!-- needs: flax, optax -->",
    ("README.md", "rewarm autotune ls                                          # what there is, in words"): (
        "<!-- not run: a list of commands with files of the reader's; tests/autotune runs each -->"
    ),
    ("docs/tuner.md", "$ export REWARM_DIR=~/.cache/demo"): (
        "<!-- differs: which chunk is fastest is a matter of the machine --><!-- before: "
        "printf 'import jax, numpy as np, kernels\\njax.jit(kernels.total)(np.ones(65536, np.float32))\\n'"
        " > train.py -->"
    ),
    (
        "docs/tuner.md",
        "$ pytest --rewarm-autotune-load=tuning.lock --rewarm-no-tuning      # what is not tuned is an UntunedError",
    ): ("<!-- before: printf 'def test_nothing():\\n    pass\\n' > test_nothing.py -->"),
    (
        "docs/prewarm.md",
        "import jax, rewarm",
    ): "<!-- not run: mypkg is the reader's; tests/prewarm runs plans of this form -->",
    ("docs/prewarm.md", "def plan(devices):   # with the imports of the one above"): (
        "<!-- not run: mypkg is the reader's; tests/prewarm runs plans of this form -->"
    ),
    (
        "docs/sharing.md",
        "aws s3api put-bucket-lifecycle-configuration --bucket my-bucket --lifecycle-configuration file://lifecycle.json",
    ): ("<!-- not run: needs an account of AWS -->"),
    ("docs/sharing.md", "gcloud storage buckets update gs://my-bucket --lifecycle-file=lifecycle.json"): (
        "<!-- not run: needs an account of Google Cloud -->"
    ),
    (
        "docs/sharing.md",
        "az storage account management-policy create --account-name NAME --resource-group GROUP --policy @policy.json",
    ): ("<!-- not run: needs an account of Azure -->"),
    ("docs/report.md", "$ rewarm report --open                                  # the last start, in a browser"): (
        "<!-- not run: opens a browser, and names the reader's runs; tests/report runs each option -->"
    ),
    (
        "docs/report.md",
        "$ python -m pytest -s tests/report/test_report_page.py -k many    # measures both, in Chromium",
    ): ("<!-- not run: a test of this repository, which runs with the others -->"),
    (
        "docs/report.md",
        '$ rewarm report --format json -o - | python -c "import json, sys; '
        "print(json.load(sys.stdin)['totals']['seconds_saved'])\"",
    ): "<!-- before: rewarm run -c 'import jax; jax.jit(lambda x: x + 1)(1)' -->",
    ("docs/report.md", '$ eval "$(rewarm completion bash)"                                        # in ~/.bashrc'): (
        "<!-- not run: lines for three shells; docs/index.md runs bash's -->"
    ),
}
