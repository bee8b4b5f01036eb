"""Stand-ins for torch, cupy and numba.cuda, as far as the engine uses them, on the emulated GPU.
Only for separate processes: `install()` registers them under the libraries' names."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from cuda_driver import DeviceArray

_thread = threading.local()


def _state() -> SimpleNamespace:
    """The calling thread's current streams."""
    if not hasattr(_thread, "state"):
        _thread.state = SimpleNamespace(torch=(0, 0, 1), cupy=Stream(0), calls=[])
    return _thread.state


def calls() -> list[str]:
    """The changes of current streams on this thread since the last call."""
    done, _state().calls = _state().calls, []
    return done


class Stream:
    """A stream of either library."""

    def __init__(self, handle: int, device: Any = None):
        self.ptr = self.cuda_stream = self.stream_id = self.handle = handle
        self.device_index, self.device_type = 0, 1

    def use(self) -> None:
        _state().calls.append(f"cupy {self.ptr}")
        _state().cupy = self


def _set_torch_stream(*, stream_id: int, device_index: int, device_type: int) -> None:
    _state().calls.append(f"torch {stream_id}")
    _state().torch = (stream_id, device_index, device_type)


_STRIDED = object()


class Tensor:
    """torch.Tensor in GPU memory."""

    is_cuda, is_cpu, requires_grad = True, False, False
    layout = _STRIDED

    def __init__(self, values: Any, order: str = "C"):
        self.array = DeviceArray(values)
        self.shape, self.dtype = self.array.shape, _TORCH_TYPES[self.array.dtype.name]
        self.device = SimpleNamespace(index=0)
        self.order = order

    def is_contiguous(self) -> bool:
        return self.order == "C"

    def contiguous(self) -> Tensor:
        return Tensor(self.array.numpy())

    def data_ptr(self) -> int:
        return self.array.ptr

    def reshape(self, *shape: Any) -> Tensor:
        shape = shape[0] if isinstance(shape[0], tuple) else shape
        return self._view(self.array.numpy().reshape(shape).shape)

    def __getitem__(self, part: slice) -> Tensor:
        return self._view((part.stop,))

    def clone(self) -> Tensor:
        return Tensor(self.numpy())

    def _view(self, shape: tuple[int, ...]) -> Tensor:
        made = object.__new__(Tensor)
        made.__dict__.update(self.__dict__, shape=shape, base=self)
        return made

    def numpy(self) -> np.ndarray:
        return self.array.numpy().reshape(-1)[: int(np.prod(self.shape))].reshape(self.shape)


Tensor.__module__ = "torch"


def _torch_empty(shape: tuple[int, ...], dtype: str, device: Any) -> Tensor:
    assert device.index == 0
    names = {value: key for key, value in _TORCH_TYPES.items()}
    return Tensor(np.zeros(shape, names[dtype]))


class _DType(str):
    """torch.dtype. Each type has one object."""


_TORCH_TYPES = {name: _DType(name) for name in ("float32", "float16", "int32", "int64", "bool")}


class ndarray(DeviceArray):
    """cupy.ndarray."""

    @property
    def data(self) -> SimpleNamespace:
        return SimpleNamespace(ptr=self.ptr, device_id=self.device)

    @property
    def flags(self) -> SimpleNamespace:
        return SimpleNamespace(c_contiguous=True)


ndarray.__module__ = "cupy"


class CUDADispatcher:
    """Numba's kernels. Launches are recorded as (arguments, stream)."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, int]] = []

    def configure(self, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0) -> Any:
        stream = stream or Stream(0)
        configuration = SimpleNamespace(
            dispatcher=self, griddim=griddim, blockdim=blockdim, stream=stream, sharedmem=sharedmem
        )
        configuration.launch = lambda *args: self.call(args, configuration)
        return configuration

    def __getitem__(self, arguments: tuple[Any, ...]) -> Any:
        return self.configure(*arguments).launch

    def call(self, args: Any, launch_config: Any) -> None:
        self.launches.append((args, launch_config.stream.handle))


class BuiltInCUDADispatcher(CUDADispatcher):
    """The dispatcher of the target within Numba itself, where four values configure a launch."""

    def configure(self, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0) -> Any:
        stream = stream or Stream(0)
        launch = lambda *args: self.call(args, griddim, blockdim, stream, sharedmem)  # noqa: E731
        return SimpleNamespace(launch=launch)

    def call(self, args: Any, griddim: Any, blockdim: Any, stream: Any, sharedmem: int) -> None:
        assert (griddim, blockdim, sharedmem) == (1, 32, 0)
        self.launches.append((args, stream.handle))


def _module(name: str, **members: Any) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module
    return module


def install_torch(private: bool = True) -> ModuleType:
    """Installs the stand-in for torch. `private`: whether it has the functions that
    torch.cuda.set_stream itself uses."""
    cuda = SimpleNamespace(
        is_available=lambda: True,
        init=lambda: None,
        ExternalStream=Stream,
        default_stream=lambda device: Stream(0),
        current_stream=lambda device: Stream(_state().torch[0]),
        set_stream=lambda stream: _set_torch_stream(
            stream_id=stream.stream_id, device_index=0, device_type=1
        ),
    )
    core = SimpleNamespace()
    if private:
        core._cuda_getCurrentRawStream = lambda device: _state().torch[0]
        core._cuda_getCurrentStream = lambda device: _state().torch
        core._cuda_setStream = _set_torch_stream
    return _module(
        "torch",
        cuda=cuda,
        _C=core,
        nn=SimpleNamespace(Parameter=type("Parameter", (Tensor,), {})),
        Tensor=Tensor,
        strided=_STRIDED,
        empty=_torch_empty,
        is_grad_enabled=lambda: False,
        **_TORCH_TYPES,
    )


def install_cupy() -> ModuleType:
    cuda = SimpleNamespace(get_current_stream=lambda: _state().cupy, ExternalStream=Stream)
    return _module("cupy", cuda=cuda, ndarray=ndarray, empty=lambda s, t: ndarray(np.zeros(s, t)))


def install_numba(dispatcher: str = "CUDADispatcher") -> CUDADispatcher:
    """Installs the stand-in for Numba. Returns a kernel of numba-cuda, or of the target within
    Numba."""
    kind = globals()[dispatcher]
    _module("numba.cuda", external_stream=Stream)
    _module("numba.cuda.dispatcher", CUDADispatcher=kind)
    return kind()
