"""Makes the engine's stream the current stream of libraries that launch kernels.

Before callbacks run on a GPU, the engine asks each imported library for the calling thread's
current stream. If it is another stream, the engine enters its own. Triton uses PyTorch's stream.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

# Limit of cached streams. Programs have few. If one makes new ones all the time, the cache starts
# over.
_MAX_STREAMS = 64


@dataclass(frozen=True)
class Switch:
    """Functions that get and set a library's current stream on a device."""

    current: Callable[[], int]
    """The handle of the calling thread's current stream, 0 for the default one."""
    enter: Callable[[int], Any]
    """Makes the stream of a handle the current one. Returns the argument of `leave`."""
    leave: Callable[[Any], Any]
    """Makes the former stream current again."""


class _Streams(dict[int, Any]):
    """Stream objects by handle, made at their first use."""

    def __init__(self, make: Callable[[int], Any]):
        super().__init__()
        self._make = make

    def __missing__(self, handle: int) -> Any:
        if len(self) >= _MAX_STREAMS:
            self.clear()
        made = self[handle] = self._make(handle)
        return made


def _of_torch(torch: Any, device: int) -> Switch:
    cuda, core = torch.cuda, torch._C
    cuda.init()

    def make(handle: int) -> Any:
        # ExternalStream would treat a null handle as a missing one.
        return cuda.ExternalStream(handle, device) if handle else cuda.default_stream(device)

    get_raw = getattr(core, "_cuda_getCurrentRawStream", None)
    get = getattr(core, "_cuda_getCurrentStream", None)
    set_ = getattr(core, "_cuda_setStream", None)
    if get_raw is None or get is None or set_ is None:
        streams = _Streams(make)

        def enter(handle: int) -> Any:
            former = cuda.current_stream(device)
            cuda.set_stream(streams[handle])
            return former

        return Switch(lambda: int(cuda.current_stream(device).cuda_stream), enter, cuda.set_stream)

    # As torch.cuda.set_stream, without its Stream objects.
    def make_setter(handle: int) -> Callable[[], None]:
        stream = make(handle)
        return partial(
            set_,
            stream_id=stream.stream_id,
            device_index=stream.device_index,
            device_type=stream.device_type,
        )

    setters = _Streams(make_setter)

    def enter_by_id(handle: int) -> Any:
        former = get(device)
        setters[handle]()
        return former

    def leave_by_id(former: Any) -> None:
        set_(stream_id=former[0], device_index=former[1], device_type=former[2])

    return Switch(partial(get_raw, device), enter_by_id, leave_by_id)


def _of_cupy(cupy: Any, device: int) -> Switch:
    get = cupy.cuda.get_current_stream
    streams = _Streams(lambda handle: cupy.cuda.ExternalStream(handle, device))

    def enter(handle: int) -> Any:
        former = get()
        streams[handle].use()
        return former

    return Switch(lambda: int(get().ptr), enter, lambda former: former.use())


_numba_stream = threading.local()


def _of_numba(cuda: Any) -> Switch:
    """The switch of Numba, which has no current stream: a kernel without a stream is launched on
    the default one. So this wraps launches, and within callbacks sends those of the default stream
    to the engine's stream."""

    def current() -> int:
        return getattr(_numba_stream, "handle", 0)

    def leave(handle: int) -> None:
        _numba_stream.handle = handle

    def enter(handle: int) -> int:
        former = current()
        _numba_stream.handle = handle
        return former

    dispatcher = importlib.import_module(cuda.__name__ + ".dispatcher").CUDADispatcher
    launch = dispatcher.call
    if not getattr(launch, "_opwright", False):
        streams = _Streams(cuda.external_stream)

        def call(self: Any, args: Any, launch_config: Any, *numbas_own: Any) -> Any:
            handle = current()
            if numbas_own:  # the target within Numba: the grid, the block, the stream, the memory
                block, stream, shared_memory = numbas_own
                if handle and _is_default(stream):
                    stream = streams[handle]
                return launch(self, args, launch_config, block, stream, shared_memory)
            if handle and _is_default(launch_config.stream):
                former = launch_config
                launch_config = former.dispatcher.configure(
                    former.griddim, former.blockdim, streams[handle], former.sharedmem
                )
                if getattr(former, "pre_launch_callbacks", None):
                    launch_config.pre_launch_callbacks = former.pre_launch_callbacks
            return launch(self, args, launch_config)

        call._opwright = True  # type: ignore[attr-defined]
        dispatcher.call = call
    return Switch(current, enter, leave)


def _is_default(stream: Any) -> bool:
    """Whether a launch configuration's stream, 0 or an object, is the default one."""
    handle = getattr(stream, "handle", stream)
    handle = getattr(handle, "value", handle)  # a ctypes value
    return not handle or int(handle) == 0


def _find_torch(device: int) -> Switch | None:
    torch = sys.modules["torch"]
    return _of_torch(torch, device) if torch.cuda.is_available() else None


def _find_cupy(device: int) -> Switch | None:
    return _of_cupy(sys.modules["cupy"], device)


def _find_numba(device: int) -> Switch | None:
    cuda = sys.modules["numba.cuda"]
    if getattr(cuda, "config", None) is not None and cuda.config.ENABLE_CUDASIM:
        return None
    try:
        return _of_numba(cuda)
    except ImportError as error:
        warnings.warn(
            f"in plugins' callbacks this version of Numba launches kernels on the default stream ({error}); give "
            "each launch the engine's stream: kernel[grid, block, numba.cuda.external_stream(stream)]",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


_LIBRARIES: dict[str, Callable[[int], Switch | None]] = {
    "torch": _find_torch,
    "cupy": _find_cupy,
    "numba.cuda": _find_numba,
}

_lock = threading.RLock()
# The examined libraries and their switches, by device number.
_known: dict[int, set[str]] = {}
_switches: dict[int, dict[str, Switch]] = {}


def find_switches(device: int) -> list[Switch]:
    """The switches of the imported libraries, new ones at the end.

    :param device: the number of the GPU.
    """
    with _lock:
        known = _known.setdefault(device, set())
        switches = _switches.setdefault(device, {})
        if "triton" in sys.modules and "triton" not in known:
            importlib.import_module("torch")  # at its first launch Triton takes PyTorch's stream
            known.add("triton")
        for name, find in _LIBRARIES.items():
            if name in known or name not in sys.modules:
                continue
            try:
                switch = find(device)
            except AttributeError:
                continue  # it is being imported
            known.add(name)
            if switch is not None:
                switches[name] = switch
        return list(switches.values())


def stream_getter(library: str, device: int) -> Callable[[], int]:
    """A function that returns the handle of the calling thread's current stream.

    :param library: ``"torch"`` or ``"cupy"``, which is imported.
    :param device: the number of the GPU.
    """
    find_switches(device)
    return _switches[device][library].current


@contextlib.contextmanager
def entered(library: str, device: int, handle: int) -> Iterator[None]:
    """A context manager in which a stream is the calling thread's current stream of a library.

    :param library: as for :func:`stream_getter`.
    :param device: the number of the GPU.
    :param handle: the handle of the stream.
    """
    find_switches(device)
    switch = _switches[device][library]
    former = switch.enter(handle)
    try:
        yield
    finally:
        switch.leave(former)
