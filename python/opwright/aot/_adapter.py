"""Base of the compilers for languages whose kernels take arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from .._core import DataType
from ._arrays import Array, Layout, arrays, left_out, places, symbols
from ._code import Code, CompileError
from ._gpu import chosen_architecture, kind


@dataclass
class Given:
    """The ports and the architecture that a kernel is compiled for, as in the makers' parameters of
    these names."""

    inputs: Iterable[Any]
    extra: Iterable[Any]
    outputs: Iterable[Any]
    arch: str | None


class Adapter(ABC):
    """A kernel of a language. `make` asks for its `parameters`, binds each of them to a tensor or
    an extra argument, and compiles the kernel. `bind_tensor` and `bind_extra` tell `layout` the
    code's arguments for a parameter.
    """

    maker: ClassVar[str]
    """The maker's name for messages: ``"aot.warp"``."""
    elements: ClassVar[dict[DataType, Any]]
    """The language's element types."""

    def __init__(self, kernel: str, given: Given, constants: Mapping[str, Any] | None = None):
        """:param kernel: the kernel's name for messages.
        :param constants: parameters that are already bound.
        """
        inputs = list(given.inputs)
        self.kernel = kernel
        self.constants = constants
        self.arch = chosen_architecture(self.maker, given.arch)
        self.extra = symbols(given.extra)
        self.inputs = arrays(self.maker, "inputs", inputs, self.elements)
        self.outputs = arrays(self.maker, "outputs", given.outputs, self.elements, inputs)
        self.layout = Layout(len(self.inputs), self.extra, len(self.outputs))
        self.places: list[int] = []
        """The number of each parameter's argument among inputs, extra arguments and outputs."""

    @abstractmethod
    def parameters(self) -> list[str]:
        """The names of the kernel's parameters, constants included."""

    @abstractmethod
    def bind_tensor(self, name: str, number: int, array: Array | None) -> None:
        """Binds the parameter to a tensor, which is None for an absent input.

        :param number: the number of an input or, counting on, of an output.
        """

    @abstractmethod
    def bind_extra(self, name: str, number: int) -> None:
        """Binds the parameter to an extra argument."""

    @abstractmethod
    def compile(self) -> Code:
        """Compiles the kernel, whose parameters are now bound, or takes it from the cache."""

    def fail(self, reason: str) -> CompileError:
        return CompileError(f"{self.maker}: the kernel {self.kernel}: {reason}")

    @property
    def is_ptx(self) -> bool:
        return kind(self.arch) == "ptx"

    def make(self, order: Iterable[str] | None) -> Code:
        """Compiles the code. `order` has the names of the parameters, as for `places`."""
        self.bind(order)
        return self.compile()

    def code(self, code: bytes, name: str, target: str, **launch: Any) -> Code:
        """Makes the result of `compile`.

        :param launch: the block, the shared memory and, if the kernel fixes it, the grid.
        """
        return Code(
            code,
            name,
            target,
            self.layout.parameters,
            kind=kind(self.arch),
            added=self.layout.added,
            order=self.layout.order,
            launch=launch,
        )

    def bind(self, order: Iterable[str] | None) -> None:
        """Binds each parameter, in the kernel's order."""
        names, constants = self.parameters(), self.constants or {}
        free = [name for name in names if name not in constants]
        before = len(self.inputs) + len(self.extra)
        without = left_out(len(free), before, self.outputs)
        fits = len(free) + len(without) == before + len(self.outputs)
        if not fits or not set(constants) <= set(names):
            raise self._wrong_number(free)
        self.places = places(free, order, self.fail, without)
        for name, place in zip(free, self.places):
            number = place - len(self.inputs)
            if 0 <= number < len(self.extra):
                self.bind_extra(name, number)
            else:
                tensor = place if number < 0 else place - len(self.extra)
                self.bind_tensor(name, tensor, [*self.inputs, *self.outputs][tensor])

    def _wrong_number(self, free: Sequence[str]) -> CompileError:
        come = (
            f"{len(self.inputs)} inputs, {len(self.extra)} extra arguments and "
            f"{len(self.outputs)} outputs come, in this order"
        )
        if self.constants is None:
            return self.fail(f"it has {len(free)} parameters, but {come}")
        return CompileError(
            f"{self.maker}: the kernel {self.kernel} has the parameters ({', '.join(free)}) beside "
            f"the constants ({', '.join(self.constants)}), but {come}"
        )
