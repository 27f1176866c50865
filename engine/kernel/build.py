"""The compiled kernel: where its cache lies, and filling it in a child process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = sorted(HERE.glob("*.py")) + [HERE.parent / "program" / "layout.py"]
USUAL_S = 40.0  # what a first compile takes at most on two slow cores; only to scale the progress bar


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """A name for exactly this kernel: its sources, numba, numpy and Python."""
    from importlib.metadata import version

    h = hashlib.sha256()
    for path in SOURCES:
        h.update(path.read_bytes())
    h.update(f"{version('numba')} {version('numpy')} {sys.version}".encode())
    return h.hexdigest()[:16]


def _user_cache() -> Path:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "redline" / "kernel"


@lru_cache(maxsize=1)
def cache_folder() -> Path:
    """A writable folder for the compiled kernel: REDLINE_CACHE, else the user's cache, else a temporary one."""
    choices = [Path(os.environ["REDLINE_CACHE"])] if os.environ.get("REDLINE_CACHE") else [_user_cache()]
    choices.append(Path(tempfile.gettempdir()) / f"redline-kernel-{os.environ.get('USER', 'user')}")
    for base in choices:
        folder = base / fingerprint()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    return Path(tempfile.mkdtemp(prefix="redline-kernel-"))


def ready() -> bool:
    """Whether the kernel has been compiled for this machine before."""
    return (cache_folder() / "ready").exists()


def load():
    """The compiled entry point, from the cache where it is there. Compiles in this process if it is not."""
    import numba

    numba.config.CACHE_DIR = str(cache_folder())
    numba.config.OPT = 2  # as quick as 3 here, and compiled sooner
    from engine.kernel.loop import advance

    return advance


def compile_now() -> None:
    """Compiles (or loads) the kernel by running the smallest possible state once, and notes that it is there."""
    import gc

    from engine.kernel.lean import lean
    from engine.run.simulation import warm_up

    gc.disable()
    try:
        with lean():
            warm_up(load())
    except Exception:  # numba has changed inside: compile the ordinary way, in a new process
        code = (
            "from engine.kernel import build; from engine.run import simulation as s; s.warm_up(build.load())"
        )
        subprocess.run([sys.executable, "-c", code], check=True, env=_environment())
    (cache_folder() / "ready").write_text("compiled\n", encoding="utf-8")


def _environment() -> dict[str, str]:
    """The environment of a child that has to find this package."""
    path = [str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}


def ensure(progress: Callable[[float], None] | None = None) -> None:
    """Fills the cache in a child process if it is empty. progress gets shares from 0 to 1, guessed from the time."""
    if ready():
        return
    started = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-c", "from engine.kernel.build import compile_now; compile_now()"],
        env=_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        while True:
            try:
                _, err = child.communicate(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                if progress:
                    progress(min(0.99, (time.monotonic() - started) / USUAL_S))
    except BaseException:
        child.kill()
        child.wait()
        raise
    if child.returncode != 0:
        last = err.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise RuntimeError(f"the engine could not be compiled: {last[0]}")
    if progress:
        progress(1.0)
