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

    def __init__(self, path: str, rank: int, options: Mapping[str, Any]):
        """:param options: ``load``: arguments of ``opwright.load``; ``plugins``: files of plugins;
        ``threads``: how many threads a run may have.
        """
        for file in options["plugins"]:
            load_plugins(file)
        self.engine = _api.load(path, **{"device": "cpu", **options["load"]})
        self.rank = rank
        self._context = self.engine.engine.create_execution_context()
        self._context.max_threads = options["threads"]

    def join(self, name: str, ranks: int, timeout: float) -> None:
        """Waits for the other ranks."""
        communicator = _core.Communicator(name, self.rank, ranks, timeout)
        self._context.set_communicator(communicator)

    def prepare(self, inputs: Arrays) -> dict[str, Array]:
        """Sets the inputs and returns arrays for the outputs.

        :raises Error: the engine does not take these inputs.
        """
        context, native = self._context, self.engine.engine
        for name, array in inputs.items():
            dtype = np.dtype(nptype(native.get_tensor_dtype(name)))
            if array.dtype != dtype:
                raise _core.Error(f"input '{name}' is of the type {array.dtype}; expected {dtype}")
            if not context.set_input_shape(name, array.shape):
                raise _core.Error(f"input '{name}' cannot have the shape {list(array.shape)}")
            context.set_tensor_address(name, array.ctypes.data)
        outputs = {}
        for name in self.engine.outputs:
            shape = tuple(context.get_tensor_shape(name))
            if any(extent < 0 for extent in shape):
                raise _core.Error(
                    f"the shape of output '{name}' depends on data, which ranks do not support"
                )
            outputs[name] = np.empty(shape, nptype(native.get_tensor_dtype(name)))
            context.set_tensor_address(name, outputs[name].ctypes.data)
        return outputs

    def run(self) -> None:
        """Runs what was prepared.

        :raises Error: also if another rank has ended.
        """
        if not self._context.execute_async_v3(0):
            raise _core.Error("the run failed")


def main() -> None:
    """The process of a rank. Serves rank 0 until the connection ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # rank 0 gets it, too, and ends the others
    connection = Connection(int(sys.argv[1]))
    try:
        _serve(connection)
    except (EOFError, ConnectionError):
        pass  # rank 0 has ended


def _serve(connection: Connection) -> None:
    config = connection.recv()
    try:
        engine = RankEngine(config["path"], config["rank"], config["options"])
        connection.send(None)
        connection.recv()  # all ranks have loaded
        engine.join(config["name"], config["ranks"], config["timeout"])
        connection.send(None)
    except Exception as error:  # a plugin may raise anything
        connection.send(str(error))
        return
    while True:
        inputs = connection.recv()
        try:
            outputs = engine.prepare(inputs)
            engine.run()
            connection.send({name: outputs[name] for name in config["outputs"]})
        except Exception as error:  # a plugin may raise anything
            connection.send(str(error))
