"""How numba compiles the fast tier's functions, and the type that it gives a simulation."""

from __future__ import annotations

from typing import Any

from numba import njit, types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.imputils import lower_getattr_generic
from numba.core.pythonapi import NativeValue
from numba.extending import typeof_impl, unbox

from backend.advisor.twin.fast.tables import Sim

# Without NRT, numba counts no references to the arrays, which took half of the time. No function creates an array.
_OPTIONS: dict[str, Any] = {"cache": True, "error_model": "numpy", "nogil": True, "_nrt": False}
compiled = njit(**_OPTIONS)

# numba has no annotations here.
_ir: Any = cgutils
_tuple: Any = types.Tuple
_native: Any = NativeValue
_base: Any = types.NamedTuple.__init__
_model: Any = register_default
_unbox: Any = unbox
_reader: Any = lower_getattr_generic


class SimType(types.NamedTuple):
    """numba's type of a simulation: passed as a pointer to its tables, and with a short name.

    numba passes a named tuple by value, which is 90 values for these tables. This took three tenths of the time. It
    also writes a type's name into the name of each compiled function, and the usual name lists all columns: compiled
    code took 42 MB on disk instead of 7.
    """

    def __init__(self, parts: tuple[types.Type, ...]) -> None:
        _base(self, parts, Sim)
        self.name = Sim.__name__

    @property
    def tables(self) -> Any:
        """The tuple to which it points."""
        return _tuple(self.types)


class _SimModel(models.PrimitiveModel):
    def __init__(self, manager: Any, of: SimType) -> None:
        super().__init__(manager, of, manager.lookup(of.tables).get_value_type().as_pointer())  # type: ignore[no-untyped-call]


def _type_of(sim: Sim, context: object) -> SimType:
    return SimType(tuple(typeof_impl(part, context) for part in sim))


def _unboxed(of: SimType, sim: Any, context: Any) -> Any:
    # The pointer is valid until the outermost call returns.
    tables = context.unbox(of.tables, sim)
    place = _ir.alloca_once_value(context.builder, tables.value)
    return _native(place, is_error=tables.is_error, cleanup=tables.cleanup)


def _table_of(_context: Any, builder: Any, of: SimType, pointer: Any, name: str) -> Any:
    return builder.load(_ir.gep_inbounds(builder, pointer, 0, of.fields.index(name)))


_model(SimType)(_SimModel)
typeof_impl.register(Sim)(_type_of)
_unbox(SimType)(_unboxed)
_reader(SimType)(_table_of)
