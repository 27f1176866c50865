"""A quicker first compile: only the entry point is optimised and turned into machine code.

numba compiles every helper as if Python might call it: a wrapper, the full optimiser and machine code, each time
with all it calls. Nobody calls the kernel's helpers but the kernel, and the optimiser sees them again inside the entry
point. Here they stay plain LLVM code until then. This reaches into numba's own classes, so whatever goes wrong, the
caller compiles the ordinary way instead; the machine code of the entry point comes from the same optimiser.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

ENTRY = "advance"


@contextlib.contextmanager
def lean() -> Iterator[None]:
    """While inside, numba leaves everything but `ENTRY` unoptimised."""
    from numba.core.codegen import CPUCodeLibrary
    from numba.core.cpu import CPUContext

    names = ("_optimize_final_module", "_finalize_final_module")
    optimise, finalise = (getattr(CPUCodeLibrary, name) for name in names)
    executable = CPUContext.get_executable

    def optimise_entry(self):
        if self.name == ENTRY:
            optimise(self)

    def finalise_entry(self):
        if self.name == ENTRY:
            finalise(self)
        else:
            self._finalize_dynamic_globals()
            self._finalized = True

    def executable_entry(self, library, fndesc, env):
        if library.name == ENTRY:
            return executable(self, library, fndesc, env)
        library._ensure_finalized()
        return [].append  # never called: numba wants a built-in function of its own for each helper

    CPUCodeLibrary._optimize_final_module = optimise_entry
    CPUCodeLibrary._finalize_final_module = finalise_entry
    CPUContext.get_executable = executable_entry
    try:
        yield
    finally:
        CPUCodeLibrary._optimize_final_module = optimise
        CPUCodeLibrary._finalize_final_module = finalise
        CPUContext.get_executable = executable
