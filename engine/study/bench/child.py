"""What has to be measured in a process of its own: start-up, compilation and peak memory.

`python -m engine.study.bench.child compile|ready|hour|flood [SECONDS]` prints one JSON object.
"""

import json
import sys
import time
from pathlib import Path

READY = "checkpointing-every-step"


def peak_mb() -> float | None:
    """The most memory this process has had resident, in MB (10^6 bytes); None where the system does not tell.

    Linux: VmHWM, since getrusage there begins with what the parent process had when it forked.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def compile_kernel() -> dict:
    """Fill the kernel cache, which the parent has pointed at an empty folder."""
    from engine.kernel import build

    began = time.perf_counter()
    build.ensure()
    return {"wall_s": time.perf_counter() - began}


def ready() -> dict:
    """Import the engine, load a problem and take the first event."""
    from engine.design.files import load
    from engine.run.simulation import Simulation

    simulation = Simulation(load(READY))
    simulation.advance(simulation.end_s, max_events=1)
    return {"events": simulation.events}


def run(text: str) -> dict:
    """Simulate the design `text` from start to end: seconds, events, requests and the peak of memory."""
    from engine.design.files import loads
    from engine.run.simulation import Simulation

    simulation = Simulation(loads(text, "toml", "benchmark"))
    wall, cpu = time.perf_counter(), time.process_time()
    simulation.advance(simulation.end_s)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    summary = simulation.summary()
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "events": summary["events"],
        "requests": summary["totals"]["offered"],
        "peak_mb": peak_mb(),
    }


def main(argv: list[str]) -> None:
    from engine.study.bench import designs

    what, *rest = argv
    if what == "compile":
        result = compile_kernel()
    elif what == "ready":
        result = ready()
    else:
        result = run({"hour": designs.twenty_nodes, "flood": designs.flood}[what](float(rest[0])))
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
