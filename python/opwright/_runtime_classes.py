"""Base classes of objects that a program gives to builders, engines and registries: error
recorders, allocators, and resources that plugins share.

They list the methods to define and hold no state. The engine calls the methods by name, from any
thread.
"""

from __future__ import annotations

from typing import NoReturn

from . import _core
from ._plugins.classes import APILanguage, InterfaceInfo, IVersionedInterface

__all__ = [
    "IErrorRecorder",
    "IGpuAllocator",
    "IGpuAsyncAllocator",
    "IPluginResource",
    "IProgressMonitor",
    "Profiler",
]


def _missing(self: object, method: str) -> NoReturn:
    raise NotImplementedError(f"class {type(self).__name__} must define {method}")


class IErrorRecorder(IVersionedInterface):
    """Gets errors: derive from it and assign it to ``error_recorder`` of an object.

    An engine inherits its runtime's recorder, a context its engine's, a network its builder's. A
    plugin finds its context's recorder in ``attach_to_context``. An exception of a recorder is
    printed and otherwise ignored.
    """

    interface_info = InterfaceInfo("IErrorRecorder", 1, 0)

    #: The longest description in bytes; longer ones are cut.
    MAX_DESC_LENGTH = 127

    def num_errors(self) -> int:
        """Number of kept errors since the last ``clear``."""
        _missing(self, "num_errors(self)")

    def get_error_code(self, arg0: int) -> _core.ErrorCodeTRT:
        """Code of the error with this index."""
        _missing(self, "get_error_code(self, index)")

    def get_error_desc(self, arg0: int) -> str:
        """Description of the error with this index."""
        _missing(self, "get_error_desc(self, index)")

    def has_overflowed(self) -> bool:
        """Whether errors were dropped for lack of room."""
        return False

    def clear(self) -> None:
        """Forget all errors."""
        _missing(self, "clear(self)")

    def report_error(self, arg0: _core.ErrorCodeTRT, arg1: str) -> bool:
        """Record an error; True ends the current operation."""
        _missing(self, "report_error(self, code, description)")


class IGpuAllocator(IVersionedInterface):
    """Provides memory, on the CPU host memory: derive from it and assign it to ``gpu_allocator``.

    Plugins reach it through the resource context of ``attach_to_context``. Addresses are integers.
    """

    interface_info = InterfaceInfo("IGpuAllocator", 1, 0)

    def allocate(self, size: int, alignment: int, flags: int) -> int | None:
        """The address of ``size`` bytes; ``alignment`` is a power of two. None or 0 on failure."""
        _missing(self, "allocate(self, size, alignment, flags)")

    def deallocate(self, memory: int) -> bool:
        """Free a block; False on failure."""
        _missing(self, "deallocate(self, memory)")

    def reallocate(self, address: int, alignment: int, new_size: int) -> int | None:
        """The new address of a block that grows or shrinks; None or 0 on failure."""
        return None

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int | None:
        """As ``allocate``, in the order of the work on the stream."""
        return self.allocate(size, alignment, flags)

    def deallocate_async(self, memory: int, stream: int) -> bool:
        """As ``deallocate``, in the order of the work on the stream."""
        return self.deallocate(memory)


class IGpuAsyncAllocator(IGpuAllocator):
    """An allocator that only defines ``allocate_async`` and ``deallocate_async``."""

    def allocate(self, size: int, alignment: int, flags: int) -> int | None:
        return self.allocate_async(size, alignment, flags, 0)

    def deallocate(self, memory: int) -> bool:
        return self.deallocate_async(memory, 0)

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int | None:
        _missing(self, "allocate_async(self, size, alignment, flags, stream)")

    def deallocate_async(self, memory: int, stream: int) -> bool:
        _missing(self, "deallocate_async(self, memory, stream)")


class IProgressMonitor(IVersionedInterface):
    """Follows a build, and may end it: derive from it and assign it to
    ``IBuilderConfig.progress_monitor``."""

    interface_info = InterfaceInfo("IProgressMonitor", 1, 0)

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        """A phase of ``num_steps`` steps begins within ``parent_phase``, or None."""
        _missing(self, "phase_start(self, phase_name, parent_phase, num_steps)")

    def step_complete(self, phase_name: str, step: int) -> bool:
        """A step of a phase is done; False ends the build."""
        _missing(self, "step_complete(self, phase_name, step)")

    def phase_finish(self, phase_name: str) -> None:
        """A phase has ended."""
        _missing(self, "phase_finish(self, phase_name)")


class Profiler(_core.IProfiler):
    """Prints the time of each layer after a run."""

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """Print a line."""
        print(f"{layer_name}: {_core._time_text(ms)}")


class IPluginResource(IVersionedInterface):
    """An object that plugins share by a key.

    ``IPluginRegistry.acquire_plugin_resource(key, resource)`` keeps a clone of the first resource
    for a key and gives it to every caller.
    """

    interface_info = InterfaceInfo("IPluginResource", 1, 0)

    def clone(self) -> IPluginResource:
        """The resource that the registry keeps, ready for use."""
        _missing(self, "clone(self)")

    def release(self) -> None:
        """Free the clone's contents, after the last plugin has released it."""
        _missing(self, "release(self)")


class LibraryErrorRecorder(IErrorRecorder):
    """A recorder that C++ code implements."""

    api_language = APILanguage.CPP

    def __init__(self, handle: _core._RecorderHandle):
        self._handle = handle

    def num_errors(self) -> int:
        return self._handle.num_errors()

    def get_error_code(self, arg0: int) -> _core.ErrorCodeTRT:
        return self._handle.get_error_code(arg0)

    def get_error_desc(self, arg0: int) -> str:
        return self._handle.get_error_desc(arg0)

    def has_overflowed(self) -> bool:
        return self._handle.has_overflowed()

    def clear(self) -> None:
        self._handle.clear()

    def report_error(self, arg0: _core.ErrorCodeTRT, arg1: str) -> bool:
        return self._handle.report_error(arg0, arg1)


class LibraryAllocator(IGpuAllocator):
    """The memory of a device, or an allocator that C++ code implements. 0 stands for failure."""

    api_language = APILanguage.CPP

    def __init__(self, handle: _core._AllocatorHandle):
        self._handle = handle

    def allocate(self, size: int, alignment: int = 0, flags: int = 0) -> int:
        return self._handle.allocate(size, alignment, int(flags))

    def deallocate(self, memory: int) -> bool:
        return self._handle.deallocate(memory)

    def reallocate(self, address: int, alignment: int, new_size: int) -> int:
        return self._handle.reallocate(address, alignment, new_size)

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int:
        return self._handle.allocate_async(size, alignment, int(flags), stream)

    def deallocate_async(self, memory: int, stream: int) -> bool:
        return self._handle.deallocate_async(memory, stream)


class LibraryResource(IPluginResource):
    """A resource that C++ code put under a key. Only C++ code can use its contents."""

    api_language = APILanguage.CPP

    def __init__(self, key: str):
        self.key = key

    def clone(self) -> NoReturn:
        raise _core.Error(
            f"the plugin resource '{self.key}' is implemented in C++; acquire it by its key"
        )

    def release(self) -> NoReturn:
        raise _core.Error(
            f"the plugin resource '{self.key}' is implemented in C++; release it with "
            "release_plugin_resource"
        )
