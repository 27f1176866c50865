"""`bench`: the benchmark table."""

import argparse

from engine.cli import outputs
from engine.cli.errors import UserError
from engine.cli.progress import Progress, compiled
from engine.cli.text import Paint, digits, duration, table, terminal_width

PEERS = {"simpy": "SimPy", "c": "C", "c_lanes": "C lanes"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="shorter runs; leaves out the first compile")
    outputs.json_argument(parser)


def execute(args: argparse.Namespace) -> int:
    target = outputs.Target(args.json)
    compiled()
    from engine.study import bench

    result: dict = {"format": 1, "machine": bench.machine()}
    paint, columns = Paint(), terminal_width()
    with Progress("measuring") as progress:
        try:
            result["workloads"] = list(bench.workload_rows(args.quick, progress))
            progress.clear()
            target.say(workload_lines(result["workloads"], paint, columns))
            result["engine"] = list(bench.machine_rows(args.quick, progress))
            progress.clear()
            target.say(["", *engine_lines(result["engine"], paint, columns)])
        except RuntimeError as error:
            raise UserError(error) from None
    m = result["machine"]
    where = f"{m['cores']} cores, {m['system']} on {m['processor']}"
    target.say(
        [
            "",
            f"{where}, Python {m['python']}, numba {m['numba']}",
        ]
    )
    target.write(result)
    return 0


def workload_lines(rows: list[dict], paint: Paint, columns: int) -> list[str]:
    """W1 to W3: the speed of each engine, how many times the peers' Redline's is, the wait and its truth."""
    cells = []
    for row in rows:
        cells.append(
            (
                row["name"],
                _rate(row["rps"]["redline"]),
                *(_rate(row["rps"].get(peer)) for peer in PEERS),
                *(_times(row["times"].get(peer)) for peer in PEERS),
                duration(row["wait_ms"]["redline"]),
                duration(row["expected_ms"]),
                {True: "agrees", False: paint("red", "differs"), None: "-"}[row["agrees"]],
            )
        )
    header = ("Requests/s", "Redline", *PEERS.values(), "xSimPy", "xC", "xlanes", "wait", "expect", " ")
    first, *rest = table(header, cells, left=(0, 10), columns=columns)
    lines = [paint("bold", first), *rest, ""]
    lines += [
        "Per second of CPU time, all rules and metrics on. xSimPy: Redline's speed as a",
        "multiple of SimPy's. expect: the mean wait by theory; for W3 by the peer in C.",
    ]
    for peer, why in rows[0]["missing"].items():
        lines.append(f"{PEERS[peer]}: {why}")
    return lines


def engine_lines(rows: list[dict], paint: Paint, columns: int) -> list[str]:
    """Start, memory and checks: what was measured and the bound asked for."""
    cells = []
    for row in rows:
        measured = row["measured"]
        bound = ", ".join(f"{_quantity(key, most)}" for key, most in row["bound"].items())
        cells.append(
            (
                row["row"],
                _quantity("wall_s", measured.get("wall_s")),
                _rate(measured.get("events_per_s")),
                _quantity("peak_mb", measured.get("peak_mb")),
                f"<= {bound}" if bound else "-",
                {True: paint("green", "met"), False: paint("red", "missed"), None: "-"}[row["met"]],
            )
        )
    first, *rest = table(("Engine", "wall", "events/s", "peak", "asked", " "), cells, (0, 5), columns)
    return [paint("bold", first), *rest]


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{digits(value / 1e6)}M" if value >= 1e6 else f"{digits(value / 1e3)}k"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{digits(value, 2 if value < 1 else 3)}x"


def _quantity(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return duration(1e3 * value) if name.endswith("_s") else f"{digits(value)}MB"
