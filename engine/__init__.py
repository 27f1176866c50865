"""The engine: makes every number.  Knows no window; usable alone (`from engine import Run, load`)."""

from importlib import import_module

_WHERE = {
    "Design": "engine.design",
    "DesignError": "engine.design",
    "Run": "engine.run.run",
    "Simulation": "engine.run.simulation",
    "load": "engine.design",
    "save": "engine.design",
    "simulate": "engine.run.simulation",
}


def __getattr__(name: str) -> object:
    # Imported when first asked for, so that the window opens before numba and networkx are there.
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
