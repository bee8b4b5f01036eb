"""A rank: its engine with a communicator, and the process that runs it for rank 0."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from .. import _api, _core
from .._program import load_plugins
from .._types import nptype

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]


class RankEngine:
    """An engine whose collective layers have a communicator."""

    def __init__(self, path: str, rank: int, device: str, options: Mapping[str, Any]):
        """:param device: ``"cpu"``, or the rank's GPU, ``"cuda:1"``.
        :param options: ``load``: arguments of ``opwright.load``; ``plugins``: files of plugins;
        ``threads``: how many threads a run may have.
        """
        for file in options["plugins"]:
            load_plugins(file)
        self.engine = _api.load(path, **{**options["load"], "device": device})
        self.rank, self.device = rank, device
        self._context = self.engine.engine.create_execution_context()
        self._context.max_threads = options["threads"]
        self._communicator: _core.Communicator | None = None
        self._memory: _GpuMemory | None = None
        self._graph: _core._RunGraph | None = None
        self._places: dict[str, Any] = {}
        if device != "cpu":
            self._memory = _GpuMemory(_core._parse_device(device).ordinal)

    def join(self, name: str, ranks: int, timeout: float, meeting: Mapping[str, str]) -> None:
        """Waits for the other ranks.

        :param meeting: ``address`` and ``token`` of ranks of several hosts.
        """
        self._communicator = _core.Communicator(
            name, self.rank, ranks, timeout, self.device, **meeting
        )
        self._context.set_communicator(self._communicator)

    def leave(self) -> None:
        """Gives the communicator up. All ranks do so at the same time."""
        self._graph = None
        self._context.set_communicator(None)
        self._communicator = None

    def prepare(self, inputs: Arrays) -> dict[str, Array]:
        """Sets the inputs and returns arrays for the outputs.

        :raises Error: the engine does not take these inputs.
        """
        context, native = self._context, self.engine.engine
        self._inputs, before = inputs, self._places
        self._places = {}
        for name, array in inputs.items():
            dtype = np.dtype(nptype(native.get_tensor_dtype(name)))
            if array.dtype != dtype:
                raise _core.Error(f"input '{name}' is of the type {array.dtype}; expected {dtype}")
            if not context.set_input_shape(name, array.shape):
                raise _core.Error(f"input '{name}' cannot have the shape {list(array.shape)}")
            context.set_tensor_address(name, self._place(name, array))
        outputs = {}
        for name in self.engine.outputs:
            shape = tuple(context.get_tensor_shape(name))
            if any(extent < 0 for extent in shape):
                raise _core.Error(
                    f"the shape of output '{name}' depends on data, which ranks do not support"
                )
            outputs[name] = np.empty(shape, nptype(native.get_tensor_dtype(name)))
            context.set_tensor_address(name, self._place(name, outputs[name]))
        self.is_moved = self._places != before
        if self.is_moved:
            self._graph = None
        return outputs

    def _place(self, name: str, array: Array) -> int:
        """Where the engine finds the array."""
        on_host = self.engine.engine.get_tensor_location(name) == _core.TensorLocation.HOST
        if self._memory is None or on_host:
            address = int(array.ctypes.data)
        else:
            address = self._memory.place(name, array.nbytes)
        self._places[name] = array.shape, address
        return address

    def capture(self) -> bool:
        """Makes a CUDA graph of the run that was prepared; whether that is possible. All ranks do so at the same
        time."""
        try:
            self._graph = _core._RunGraph(self._context)
        except _core.Error:
            return False
        return True

    def run(self, outputs: Arrays, replay: bool = False) -> None:
        """Runs what was prepared.

        :param outputs: those of the prepared arrays that are wanted.
        :param replay: whether to launch the graph.
        :raises Error: also if another rank has ended.
        """
        if self._memory is not None:
            self._memory.write(self._inputs)
        if replay:
            assert self._graph is not None
            self._graph.launch()
        elif not self._context.execute_async_v3(0):
            raise _core.Error("the run failed")
        if self._memory is not None:
            self._memory.read(outputs)
            assert self._communicator is not None
            self._communicator.check()


class _GpuMemory:
    """Memory of a GPU for each input and output. It grows and stays, so that addresses do, too."""

    def __init__(self, gpu: int):
        self._gpu = gpu
        self._arrays: dict[str, tuple[_core.DeviceArray, int]] = {}

    def place(self, name: str, size: int) -> int:
        """The address of so many bytes."""
        array, held = self._arrays.get(name, (None, 0))
        if array is None or held < size:
            held = max(size, 2 * held)
            array = _core._device_memory(held, self._gpu)
            self._arrays[name] = array, held
        return array.data_ptr

    def write(self, arrays: Arrays) -> None:
        for name, array in arrays.items():
            if name in self._arrays:
                address = self._arrays[name][0].data_ptr
                _core._enqueue_copy(address, array.ctypes.data, array.nbytes, self._gpu)

    def read(self, arrays: Arrays) -> None:
        """Reads the arrays and waits for them."""
        for name, array in arrays.items():
            if name in self._arrays:
                address = self._arrays[name][0].data_ptr
                _core._enqueue_copy(array.ctypes.data, address, array.nbytes, self._gpu)
        _core._synchronize(self._gpu)


def main() -> None:
    """The process of a rank. Serves rank 0 until the connection ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # rank 0 gets it, too, and ends the others
    connection = Connection(int(sys.argv[1]))
    try:
        _serve(connection)
    except (EOFError, ConnectionError):
        pass  # rank 0 has ended


def _serve(connection: Connection) -> None:
    served = ServedRank()
    while True:
        connection.send(served.answer(connection.recv()))
        if served.has_failed:
            return


class ServedRank:
    """A rank that answers rank 0's messages: its config, then None once all ranks have loaded, then None for a
    capture and inputs for a run. A text is an error."""

    def __init__(self) -> None:
        self.has_failed = False
        self._engine: RankEngine | None = None
        self._has_joined = False

    def answer(self, message: Any) -> Any:
        try:
            if self._engine is None:
                self._config = config = message
                self._engine = RankEngine(
                    config["path"], config["rank"], config["device"], config["options"]
                )
                return None
            if not self._has_joined:
                config = self._config
                self._engine.join(
                    config["name"], config["ranks"], config["timeout"], config["meeting"]
                )
                self._has_joined = True
                return None
        except Exception as error:  # a plugin may raise anything
            self.has_failed = True
            return str(error)
        try:
            if message is None:
                return self._engine.capture()
            inputs, replay = message
            outputs = self._engine.prepare(inputs)
            wanted = {name: outputs[name] for name in self._config["outputs"]}
            self._engine.run(wanted, replay)
            return wanted
        except Exception as error:  # a plugin may raise anything
            return str(error)
