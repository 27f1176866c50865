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
    from numba.core.lowering import BaseLower

    def library(name: str):
        """A step of a library that only the entry point's takes."""
        usual = getattr(CPUCodeLibrary, name)
        return lambda self, *args: usual(self, *args) if self.name == ENTRY else None

    def wrapper(name: str):
        usual = getattr(BaseLower, name)
        return lambda self, *args: usual(self, *args) if self.library.name == ENTRY else None

    finalise, executable = CPUCodeLibrary._finalize_final_module, CPUContext.get_executable

    def finalise_entry(self):
        if self.name == ENTRY:
            finalise(self)
        else:
            self._finalize_dynamic_globals()
            self._finalized = True

    def executable_entry(self, code, fndesc, env):
        if code.name == ENTRY:
            return executable(self, code, fndesc, env)
        code._ensure_finalized()
        return [].append  # never called: numba wants a built-in function of its own for each helper

    patches = {
        (CPUCodeLibrary, "_optimize_final_module"): library("_optimize_final_module"),
        (CPUCodeLibrary, "_optimize_functions"): library("_optimize_functions"),
        (CPUCodeLibrary, "_finalize_final_module"): finalise_entry,
        (CPUContext, "get_executable"): executable_entry,
        (BaseLower, "create_cpython_wrapper"): wrapper("create_cpython_wrapper"),
        (BaseLower, "create_cfunc_wrapper"): wrapper("create_cfunc_wrapper"),
    }
    usual = {(owner, name): getattr(owner, name) for owner, name in patches}
    try:
        for (owner, name), step in patches.items():
            setattr(owner, name, step)
        yield
    finally:
        for (owner, name), step in usual.items():
            setattr(owner, name, step)
