"""How the kernel reaches its arrays: typed views of addresses kept in the ``SIM`` record.

``node(w, i)`` is the i-th NODE record as numba sees it, a bare pointer: reading and writing its fields costs what it
costs in C, nothing is counted or checked, and a helper takes two words instead of a dozen array descriptors.
"""

from __future__ import annotations

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from engine.program import layout as L

SIM_T = numba.from_dtype(L.SIM)

# Everything the kernel calls is compiled with these; `_nrt=False` (no reference counting) is not a documented
# option, so it is dropped where this numba does not know it: no array is passed between helpers, it saves little.
OPTIONS = {"nogil": True, "error_model": "numpy"}
try:
    numba.njit(**OPTIONS, _nrt=False)
    OPTIONS["_nrt"] = False
except Exception:  # pragma: no cover - depends on the numba version
    pass
# forceinline is said either way, since a helper that does not say inherits it from its first caller.
kernel = numba.njit(**OPTIONS, forceinline=False)
inlined = numba.njit(**OPTIONS, forceinline=True)  # the short ones on the path of every call

_I8 = ir.IntType(8)
_I64 = ir.IntType(64)


def _address(context, builder, w, index, index_type, name, size):
    offset = L.SIM.fields[name][1]
    index = context.cast(builder, index, index_type, types.int64)
    base = builder.bitcast(w, _I8.as_pointer())
    slot = builder.gep(base, [ir.Constant(_I64, offset)])
    start = builder.load(builder.bitcast(slot, _I8.as_pointer().as_pointer()))
    # No address changes while the kernel runs: the optimiser need not read it again after every store.
    start.set_metadata("invariant.load", builder.module.add_metadata([]))
    return builder.gep(start, [builder.mul(index, ir.Constant(_I64, size))], inbounds=True)


def _record(name, dtype):
    rec = numba.from_dtype(dtype)

    @intrinsic
    def at(typingctx, w, i):
        def codegen(context, builder, signature, args):
            p = _address(context, builder, args[0], args[1], signature.args[1], name, dtype.itemsize)
            return builder.bitcast(p, context.get_value_type(rec))

        return rec(w, i), codegen

    return at


def _cells(name, scalar, size):
    """Reader and writer of a plain array of numbers."""

    @intrinsic
    def get(typingctx, w, i):
        def codegen(context, builder, signature, args):
            p = _address(context, builder, args[0], args[1], signature.args[1], name, size)
            return builder.load(builder.bitcast(p, context.get_value_type(scalar).as_pointer()))

        return scalar(w, i), codegen

    @intrinsic
    def put(typingctx, w, i, v):
        def codegen(context, builder, signature, args):
            p = _address(context, builder, args[0], args[1], signature.args[1], name, size)
            v = context.cast(builder, args[2], signature.args[2], scalar)
            builder.store(v, builder.bitcast(p, context.get_value_type(scalar).as_pointer()))
            return context.get_dummy_value()

        return types.void(w, i, v), codegen

    return get, put


node = _record("node", L.NODE)
edge = _record("edge", L.EDGE)
call = _record("call", L.CALL)
event = _record("heap", L.EVENT)
agenda = _record("agenda", L.EVENT)
lane = _record("lane", L.LANE)
item = _record("item", L.EVENT)
inst = _record("inst", L.INST)
stream = _record("stream", L.STREAM)
segment = _record("seg", L.SEG)
source = _record("src", L.SRC)
fault = _record("fault", L.FAULT)
goal = _record("goal", L.GOAL)
sub = _record("sub", L.SUB)
fill = _record("fill", L.FILL)
frame = _record("frame", L.FRAME)
fnode = _record("fnode", L.FNODE)
fedge = _record("fedge", L.FEDGE)
mark = _record("mark", L.NODE)
tallies = _record("cnt", L.TALLIES)
freason = _record("freason", L.TALLIES)

adj, _ = _cells("adj", types.int32, 4)
cnt, set_cnt = _cells("cnt", types.int64, 8)
hist, set_hist = _cells("hist", types.int64, 8)
whist, set_whist = _cells("whist", types.int32, 4)
woct, set_woct = _cells("woct", types.int64, 8)  # which of an octave's 64 buckets are not empty
origin, set_origin = _cells("origin", types.int64, 8)
wheel, set_wheel = _cells("wheel", types.int32, 4)
ugrid, set_ugrid = _cells("ugrid", types.float64, 8)
level, _ = _cells("level", types.int32, 4)
tick, set_tick = _cells("tick", types.int32, 4)
zig, _ = _cells("zig", types.float64, 8)
when, _ = _cells("when", types.float64, 8)


@intrinsic
def bits(typingctx, x):
    """The 64 bits of a float64 as an int64."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], _I64)

    return types.int64(types.float64), codegen


@intrinsic
def copy_record(typingctx, dst, src):
    """Copies one record over another of the same type."""
    size = dst.size

    def codegen(context, builder, signature, args):
        from numba.core import cgutils

        p8 = _I8.as_pointer()
        cgutils.raw_memcpy(
            builder,
            builder.bitcast(args[0], p8),
            builder.bitcast(args[1], p8),
            ir.Constant(_I64, size),
            1,
        )
        return context.get_dummy_value()

    return types.void(dst, src), codegen
