"""The benchmark's workloads in C: `peer.c` compiled where there is a C compiler, run as a child process."""

import json
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("peer.c")
BUILDS = {"c": (), "c_lanes": ("-DLANES",)}
NO_COMPILER = "no C compiler (gcc or cc)"


def build(folder: Path) -> dict[str, Path]:
    """Compile both builds of the peer into `folder`; RuntimeError, with the reason, where that fails."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError(NO_COMPILER)
    return {name: _compile(compiler, folder / name, flags) for name, flags in BUILDS.items()}


def _compile(compiler: str, program: Path, flags: tuple[str, ...]) -> Path:
    for tuned in (("-march=native",), ()):  # some compilers do not know this flag for their processor
        command = [compiler, "-O3", *tuned, *flags, "-o", str(program), str(SOURCE), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return program
    complaint = (done.stderr.strip().splitlines() or ["no message"])[0]
    raise RuntimeError(f"the C compiler failed: {complaint}")


def measure(program: Path, workload: str, requests: int, seed: int) -> dict:
    """One run of W1, W2 or W3: requests, CPU seconds, mean wait, success share, mean time."""
    done = subprocess.run(
        [str(program), workload, str(requests), str(seed)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)
