"""Measurements in a child process: `child.py` run by this Python, from this copy of the engine."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def measure(what: str, seconds: float | None = None, cache: str | None = None) -> tuple[float, dict]:
    """Wall seconds from the start of the child to its answer, and that answer.

    `cache` is a folder for the compiled kernels instead of the usual one. RuntimeError if the child fails.
    """
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
    if cache is not None:
        environment["REDLINE_CACHE"] = cache
    command = [sys.executable, "-m", "engine.study.bench.child", what]
    if seconds is not None:
        command.append(str(seconds))
    began = time.perf_counter()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as child:
        try:
            answer = child.stdout.readline()
            wall_s = time.perf_counter() - began
            complaint = child.stderr.read().strip().splitlines()[-1:]
            code = child.wait()
        except BaseException:
            child.kill()
            raise
    if code or not answer:
        raise RuntimeError(f"the measurement {what!r} failed: {(complaint or [f'exit code {code}'])[0]}")
    return wall_s, json.loads(answer)
