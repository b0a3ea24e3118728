"""Shows a server that must start fast: the time from its start to its first answer, cold and warm.

    python examples/server.py                   # starts it four times with one cache, and measures
    REWARM_DIR=~/.cache/demo python examples/server.py serve 8080
    curl -d '{"text": "to be or not to be"}' http://127.0.0.1:8080/

The model's function is of `rewarm.jit`, so from the third start on it is not traced either; what a start loads is
read and loaded by threads while the server imports. No start is told what to load: the starts before it are known.
Exits with status 1 if a warm start compiled anything, or if two starts gave different answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

LAYERS, WIDTH, CONTEXT, STARTS = 12, 128, 32, 4


# -- the server: what a user writes --------------------------------------------------------------------------------


def serve(port: int) -> None:
    """Answers until it is ended: POST {"text": ...} gives a number, GET gives what rewarm did."""
    import rewarm

    rewarm.enable()

    import jax
    import jax.numpy as jnp
    import numpy as np

    random = np.random.default_rng(0)
    embedding = random.standard_normal((256, WIDTH)).astype(np.float32)
    weights = (random.standard_normal((LAYERS, 4, WIDTH, WIDTH)) * WIDTH**-0.5).astype(np.float32)

    @rewarm.jit
    def score(embedding: Any, weights: Any, tokens: Any) -> Any:
        """A small transformer, unrolled, as real ones often are."""
        x = embedding[tokens]
        for query, key, value, out in weights:
            attention = jax.nn.softmax((x @ query) @ (x @ key).T * WIDTH**-0.5)
            x = x + jnp.tanh(attention @ (x @ value)) @ out
            x = x / jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)
        return jnp.mean(x)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = asked["text"].encode()[:CONTEXT].ljust(CONTEXT)
            self._answer({"score": float(score(embedding, weights, np.frombuffer(text, np.uint8)))})

        def do_GET(self) -> None:
            self._answer(rewarm.stats().as_dict())

        def _answer(self, answer: dict[str, Any]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", port), Handler) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


# -- the demo ------------------------------------------------------------------------------------------------------


class DemoError(RuntimeError):
    """The demo did not show what it is there to show; the message is one line for people."""


def start(cache: Path) -> tuple[float, dict[str, Any], dict[str, Any]]:
    """Starts the server and ends it again; returns the seconds to the first answer, the answer, and the numbers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REWARM", "JAX_"))}
    environment = {**kept, "JAX_PLATFORMS": "cpu", "REWARM_DIR": str(cache)}
    since = time.perf_counter()
    words = [sys.executable, __file__, "serve", "0"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = (process.stdout.readline() if process.stdout else "").strip()
            if not port:
                raise DemoError("the server did not start")
            url = f"http://127.0.0.1:{port}/"
            answer = ask(url, json.dumps({"text": "to be or not to be"}).encode())
            seconds = time.perf_counter() - since
            return seconds, answer, until_proved(url)
        finally:
            process.terminate()


def ask(url: str, data: bytes | None = None) -> dict[str, Any]:
    """Returns one answer of the server."""
    with urllib.request.urlopen(url, data, timeout=300) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


def until_proved(url: str) -> dict[str, Any]:
    """Returns the numbers; of a start without a trace once its proof beside the program has come out, or 60 s later."""
    end = time.monotonic() + 60.0
    stats = ask(url)
    while "skipped" in stats["jitted"] and not any(name.startswith("proof") for name in stats["jitted"]):
        if time.monotonic() > end:
            break
        time.sleep(0.5)
        stats = ask(url)
    return stats


def demo() -> None:
    """Starts the server some times, and shows each."""
    print(f"{'start':>5} {'first answer':>13} {'hits':>5} {'misses':>7} {'traced':>7}")
    answers, compiled = [], []
    with tempfile.TemporaryDirectory(prefix="rewarm-demo-") as folder:
        for number in range(1, STARTS + 1):
            seconds, answer, stats = start(Path(folder))
            traced = "no" if "skipped" in stats["jitted"] else "yes"
            print(f"{number:5} {seconds:11.2f} s {stats['hits']:5} {stats['misses']:7} {traced:>7}", flush=True)
            answers.append(answer)
            compiled.append(stats["misses"])
    if any(compiled[1:]):
        raise DemoError("a warm start compiled something")
    if any(answer != answers[0] for answer in answers):
        raise DemoError(f"the answers differ: {answers}")
    print("ok: warm starts compiled nothing and gave the same answer, bit by bit")


def main() -> int:
    """Runs the demo, or the server, and returns the exit status."""
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]))
        return 0
    try:
        demo()
    except DemoError as error:
        print(f"server: FAILED: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
