from .sim import Reference, run

__all__ = ["Reference", "run"]
