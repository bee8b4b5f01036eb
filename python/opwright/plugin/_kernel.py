"""`kernel`: a plugin of a shape rule and a kernel."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import numbers
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

from .. import aot
from .._core import DataType
from .._core._plugin import (
    AutoTuneCombination,
    ShapeExpr,
    SymExprs,
    SymFloat32,
    SymInt64,
    TensorDesc,
    build_architecture,
)
from ._decorators import _DEVICES, current, register
from ._fingerprint import fingerprint
from ._signature import Signature, SignatureError, Taken, describe

F = TypeVar("F", bound=Callable[..., Any])

_FLOATING = (DataType.FLOAT, DataType.HALF, DataType.BF16, DataType.FP8)
_DEVICE_OF = {"cpp": "cpu", "numba": "cpu", "cuda": "cuda", "triton": "cuda", "numba_cuda": "cuda"}
_BLOCK = ("block_x", "block_y", "block_z")
_LAUNCH = ("num_warps", "num_stages")  # options of Triton kernels that tactics may set


def _maker_of(code: Any) -> str:
    """The name of the function of `opwright.aot` that compiles the code."""
    if isinstance(code, str):
        return "cuda" if re.search(r"\b__(global|device)__\b", code) else "cpp"
    if isinstance(code, os.PathLike):
        return "cuda" if Path(code).suffix == ".cu" else "cpp"
    if type(code).__module__.partition(".")[0] == "triton":
        return "triton"
    if type(code).__module__.startswith("numba.cuda."):
        return "numba_cuda"
    if callable(code) and not isinstance(code, type):
        return "numba"
    raise TypeError(
        "kernel: expected C++ or CUDA source as a str or pathlib.Path, a function for Numba, or a "
        f"kernel of Triton or numba.cuda; {type(code).__name__} came"
    )


def _triple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _define(name: str, value: Any) -> str:
    return f"-D{name}={int(value) if isinstance(value, bool) else value}"


def _with_constants(function: Any, constants: Mapping[str, Any]) -> Any:
    """A copy of the function with these values of global names."""
    function = getattr(function, "py_func", function)
    known = {**function.__globals__, **constants}
    return FunctionType(
        function.__code__, known, function.__name__, function.__defaults__, function.__closure__
    )


def _symbol(plugin_id: str, place: int, value: Any) -> Any:
    """Converts an extra argument: integers and extents to 64-bit, other numbers to FP32."""
    if type(value).__name__.startswith("Sym"):
        return value
    if isinstance(value, ShapeExpr):
        return SymInt64(value)
    if isinstance(value, numbers.Integral):
        return SymInt64(int(value))
    if isinstance(value, numbers.Real):
        return SymFloat32(float(value))
    raise TypeError(
        f"plugin '{plugin_id}': extra argument {place} is {value!r}; expected a number, an extent, or "
        "one of the classes SymInt8 to SymInt64, SymFloat32, SymFloat64, SymPointer"
    )


class _Named:
    """A value, or a function of the user whose parameter names say what it depends on."""

    def __init__(
        self, plugin_id: str, what: str, given: Any, signature: Signature, known: set[str]
    ):
        self._given = given
        self._names: list[str] = []
        if not callable(given):
            return
        self._names = list(inspect.signature(given).parameters)
        unknown = [name for name in self._names if name not in known]
        if unknown:
            raise SignatureError(
                f"plugin '{plugin_id}', kernel: {what} `{describe(given)}` asks for "
                f"'{unknown[0]}'; expected any of: {', '.join(sorted(known))}, for the registered "
                f"`{signature.text}`"
            )

    @property
    def fingerprint(self) -> str:
        return fingerprint(self._given) if callable(self._given) else repr(self._given)

    def __call__(self, values: Mapping[str, Any]) -> Any:
        if not callable(self._given):
            return self._given
        return self._given(**{name: values[name] for name in self._names})


@dataclass
class _Tactic:
    code: Any
    constants: dict[str, Any]


class Kernels:
    """The kernels of one plugin for one device, with the functions that follow from them."""

    def __init__(
        self,
        plugin_id: str,
        signature: Signature,
        codes: Sequence[Any],
        name: str | None,
        grid: Any,
        block: Any,
        extra: Any,
        types: str | None,
        constants: Sequence[Mapping[str, Any]],
        options: dict[str, Any],
    ):
        self._id, self._signature = plugin_id, signature
        self._makers = [_maker_of(code) for code in codes]
        devices = {_DEVICE_OF[maker] for maker in self._makers}
        if len(devices) != 1:
            raise ValueError(
                f"plugin '{plugin_id}', kernel: the kernels are for different devices; decorate the "
                "function twice, once with those for the CPU and once with those for GPUs"
            )
        self.device = devices.pop()
        self._name = name or plugin_id.rpartition("::")[2]
        self._types = types
        self._options = options
        self._tactics = [
            (maker, _Tactic(code, dict(values)))
            for (maker, code), values in itertools.product(zip(self._makers, codes), constants)
        ]
        known = {*signature.tensors, "outputs", *(a.name for a in signature.attributes)}
        shared = set.intersection(*(set(values) for values in constants))
        clash = sorted(known & shared)
        if clash:
            raise ValueError(
                f"plugin '{plugin_id}', kernel: '{clash[0]}' is a constant and a parameter of "
                f"`{signature.text}`; rename one"
            )
        known |= shared
        self._grid = _Named(plugin_id, "grid", grid, signature, known)
        self._block = _Named(plugin_id, "block", block, signature, known)
        self._extra = _Named(plugin_id, "extra", extra, signature, known)

    @property
    def fingerprint(self) -> str:
        """Identifies these kernels for timings."""
        parts = [self._name, self._types, sorted(self._options.items())]
        parts += [f.fingerprint for f in (self._grid, self._block, self._extra)]
        for maker, tactic in self._tactics:
            code = tactic.code
            if isinstance(code, os.PathLike):
                path = Path(code)
                text = path.read_bytes() if path.is_file() else b""
            else:
                text = (code if isinstance(code, str) else fingerprint(code)).encode()
            parts += [maker, hashlib.sha256(text).hexdigest(), sorted(tactic.constants.items())]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def autotune(self, tensors: Sequence[Any], outputs: Sequence[TensorDesc]) -> Any:
        types = self._types
        if types is not None and "," not in types:
            entries = []
            for port in [*tensors, *outputs]:
                is_free = port is not None and port.dtype in _FLOATING
                entries.append(types if is_free else "FP32" if port is None else port.dtype.name)
            types = ", ".join(entries)
        tactics = list(range(1, len(self._tactics) + 1)) if len(self._tactics) > 1 else None
        return AutoTuneCombination(types, "LINEAR" if types else None, tactics)

    def compile(
        self,
        tensors: Sequence[Any],
        attributes: Sequence[Any],
        outputs: Sequence[TensorDesc],
        tactic: int,
    ) -> tuple[str, aot.Code, Any, SymExprs]:
        maker, chosen = self._tactics[max(tactic, 1) - 1]
        values: dict[str, Any] = {"outputs": outputs, **chosen.constants}
        names = list(self._signature.tensors)
        if len(tensors) > len(names) or self._is_variadic():
            values[names[-1]] = tuple(tensors[len(names) - 1 :])
            names.pop()
        values.update(zip(names, tensors))
        values.update(zip((a.name for a in self._signature.attributes), attributes))
        extra = SymExprs.from_tuple(
            [_symbol(self._id, i, value) for i, value in enumerate(self._extra(values))]
        )
        code = self._make(maker, chosen, inputs=tensors, outputs=outputs, extra=extra)
        grid, block = self._grid(values), self._block(values)
        threads = {} if block is None else dict(zip(_BLOCK, _triple(block)))
        launch = code.launch(*_triple(grid), **threads)
        return code.name, code, launch, extra

    def _is_variadic(self) -> bool:
        return any(kind.name == "TENSORS" for kind in self._signature.tensors.values())

    def _make(self, maker: str, tactic: _Tactic, **ports: Any) -> aot.Code:
        options = dict(self._options)
        constants = tactic.constants
        if maker == "triton":
            options |= {n: v for n, v in constants.items() if n in _LAUNCH}
            constexprs = {n: v for n, v in constants.items() if n not in _LAUNCH}
            return aot.triton(tactic.code, constexprs, **ports, **options)
        if maker in ("numba", "numba_cuda"):
            function = _with_constants(tactic.code, constants) if constants else tactic.code
            make_of = aot.numba if maker == "numba" else aot.numba_cuda
            return make_of(function, self._name, **ports, **options)
        flags = [*options.pop("flags", ()), *(_define(n, v) for n, v in constants.items())]
        make = aot.cuda if maker == "cuda" else aot.cpp
        return make(tactic.code, self._name, flags=flags, **ports, **options)


def kernel(
    plugin_id: str,
    code: Any,
    name: str | None = None,
    *,
    grid: Any = 1,
    extra: Any = (),
    types: str | None = None,
    constants: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
    block: Any = None,
    lazy_register: bool = False,
    **options: Any,
) -> Callable[[F], F]:
    """Defines a whole plugin by a function for the shapes, as `register` takes it, and a kernel
    that is compiled into engines. `autotune` and `aot_impl` follow from the arguments.

    C++, for the CPU::

        @trtp.kernel(
            "example::shrink",
            '''template <class T>
            void shrink(const T* x, int64_t n, float limit, T* y, int64_t cell, int64_t, int64_t) {
              const int64_t end = n < (cell + 1) * BLOCK ? n : (cell + 1) * BLOCK;
              for (int64_t i = cell * BLOCK; i < end; ++i)
                y[i] = x[i] > limit ? T(x[i] - limit) : x[i] < -limit ? T(x[i] + limit) : T(0);
            }''',
            grid=lambda x, BLOCK: trtp.cdiv(x.shape_expr.numel(), BLOCK),
            extra=lambda x, limit: [x.shape_expr.numel(), limit],
            types="FP32|FP16",
            constants=[{"BLOCK": 1024}, {"BLOCK": 16384}],
        )
        def shrink(x: trtp.TensorDesc, limit: float) -> trtp.TensorDesc:
            return x.like()

    A function that Numba compiles; constants are global names for it::

        def negate(x, n, y, cell, _y, _z):
            for i in range(cell * BLOCK, min(n, (cell + 1) * BLOCK)):
                y[i] = -x[i]

        @trtp.kernel(
            "example::negate",
            negate,
            grid=lambda x, BLOCK: trtp.cdiv(x.shape_expr.numel(), BLOCK),
            extra=lambda x: [x.shape_expr.numel()],
            constants={"BLOCK": 4096},
        )
        def negate_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

    A Triton kernel, for GPUs; constants are its constexprs, ``num_warps`` and ``num_stages``::

        @triton.jit
        def double(x, n, y, BLOCK: tl.constexpr):
            i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(y + i, 2 * tl.load(x + i, i < n), i < n)

        @trtp.kernel(
            "example::double",
            double,
            grid=lambda x, BLOCK: trtp.cdiv(x.shape_expr.numel(), BLOCK),
            extra=lambda x: [x.shape_expr.numel()],
            constants=[{"BLOCK": 256}, {"BLOCK": 1024, "num_warps": 8}],
        )
        def double_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

    The kernel has the parameters that the function of `opwright.aot` which compiles it documents: a
    pointer for each input, the extra arguments, a pointer for each output. A plugin for both
    devices is decorated twice, once with a kernel for each.

    `grid`, `extra` and `block` may be functions that ask by name for any of the tensors'
    descriptors, the attributes, ``outputs`` and the constants.

    :param plugin_id: ``"namespace::name"``.
    :param code: C++ source (str, or the pathlib.Path of a file); CUDA C++, which has ``__global__``
        or ``__device__`` in it, or is a file ``.cu``; a function for Numba, or, for GPUs, one that
        is decorated with ``numba.cuda.jit``; a kernel of Triton. The tuner compares the entries of
        a list.
    :param name: of the function in the source; without it, the plugin's.
    :param grid: a number or extent, or a tuple of up to three.
    :param extra: the extra arguments: of numbers and extents, integers are passed as `SymInt64` and
        others as `SymFloat32`; or any of the classes that are named so.
    :param types: the tuner's choices: ``"FP32|FP16"`` for all floating inputs and outputs, or an
        entry for each of them, as in `AutoTuneCombination`. Without it, the network's types. For
        Numba, FP16 elements are their bits.
    :param constants: constants of the compilation: macros of C++ and CUDA. The tuner compares the
        entries of a list.
    :param block: for kernels of CUDA and Numba-CUDA: the number of threads, or a tuple of up to
        three.
    :param lazy_register: as in `register`.
    :param options: of the function of `opwright.aot`: ``flags``, ``arch``, ``multiples_of_16``.
    :raises SignatureError: for a function without the needed hints, or with a parameter of an
        unknown name.
    """
    codes = list(code) if isinstance(code, (list, tuple)) else [code]
    values = [constants] if isinstance(constants, Mapping) else list(constants) or [{}]
    if not codes:
        raise ValueError(f"plugin '{plugin_id}', kernel: there is no kernel in the list")

    def decorate(function: F) -> F:
        register(plugin_id, lazy_register)(function)
        plugin = current.get()[plugin_id]
        signature = plugin.signature
        made = Kernels(
            plugin_id, signature, codes, name, grid, block, extra, types, values, options
        )
        plugin.kernels[made.device] = made
        kernels, count = plugin.kernels, len(signature.attributes)

        def split(arguments: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
            at = len(arguments) - count
            return arguments[:at], arguments[at:]

        def autotune(*arguments: Any) -> Any:
            *given, outputs = arguments
            device = "cuda" if build_architecture().startswith("sm_") else "cpu"
            return kernels[device].autotune(split(given)[0], outputs)

        def aot_impl(*arguments: Any) -> Any:
            *given, outputs, tactic = arguments
            return made.compile(*split(given), outputs, tactic)

        places = list(range(count))
        for kind, written in (("autotune", autotune), ("aot_impl", aot_impl)):
            plugin.note(kind, written, Taken(places, kind == "aot_impl"))
        plugin.set("autotune", lambda d: d.set_autotune(autotune, places, []))
        plugin.set(
            f"aot_impl {made.device}",
            lambda d: d.set_aot_impl(_DEVICES[made.device], aot_impl, places, [], made.fingerprint),
        )
        return function

    return decorate
