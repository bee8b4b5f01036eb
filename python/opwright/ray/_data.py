"""Running an engine over the batches of a dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import _api, _core
from ..serving._signature import Signature


class Predictor:
    """A class for ``Dataset.map_batches``: each of its workers has one engine.

    ``dataset.map_batches(Predictor, fn_constructor_args=[path], batch_size=64,
    compute=ray.data.ActorPoolStrategy(size=4))``.
    The engine file is mapped, so that the workers of a machine share its weights' pages; put it
    where all machines read it. Batches are NumPy's (``batch_format="numpy"``, the default) or
    Arrow's (``"pyarrow"``); columns of fixed shape go to the engine without a copy. A batch comes
    back with the engine's outputs as further columns.
    """

    def __init__(
        self,
        engine: str | os.PathLike[str],
        *,
        columns: Mapping[str, str] | None = None,
        keep: bool = True,
        **load: Any,
    ):
        """
        :param engine: the path of the engine file.
        :param columns: the column of each input of the engine; by default the column of its name.
        :param keep: whether to keep the batch's own columns.
        :param load: arguments of ``opwright.load``.
        :raises Error: as ``opwright.load``, or for a column of an input that the engine lacks.
        """
        self._engine = _api.load(engine, **load)
        self._signature = Signature.of(self._engine)
        self._columns = {name: name for name in self._engine.inputs} | dict(columns or {})
        unknown = set(self._columns) - set(self._engine.inputs)
        if unknown:
            raise _core.Error(
                f"Predictor: '{engine}' has no inputs {sorted(unknown)}; it has "
                f"{self._engine.inputs}"
            )
        self._keep = keep

    def __call__(self, batch: Any) -> Any:
        """The batch with the outputs, of the batch's own kind.

        :raises Error: for a column that is missing or invalid for the engine.
        """
        if isinstance(batch, Mapping):
            results = self._run(batch)
            return {**batch, **results} if self._keep else results
        return self._run_table(batch)

    def _run_table(self, table: Any) -> Any:
        import pyarrow
        from ray.data.extensions import ArrowTensorArray

        results = self._run({name: _column(table, name) for name in self._wanted(table)})
        arrays = {
            name: pyarrow.array(array) if array.ndim == 1 else ArrowTensorArray.from_numpy(array)
            for name, array in results.items()
        }
        if not self._keep:
            return pyarrow.table(arrays)
        for name, array in arrays.items():
            if name in table.column_names:
                table = table.set_column(table.column_names.index(name), name, array)
            else:
                table = table.append_column(name, array)
        return table

    def _wanted(self, table: Any) -> list[str]:
        self._check(table.column_names)
        return list(self._columns.values())

    def _check(self, names: Any) -> None:
        missing = [each for each in self._columns.values() if each not in names]
        if missing:
            raise _core.Error(
                f"Predictor: the batch has no columns {missing}; it has {list(names)}. columns= "
                "says which column an input is"
            )

    def _run(self, batch: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        self._check(batch)
        inputs = {name: np.asarray(batch[column]) for name, column in self._columns.items()}
        rows = len(next(iter(inputs.values())))
        shapes = {name: array.shape for name, array in inputs.items()}
        most = rows if self._signature.fits(shapes) else self._signature.max_batch(shapes)
        if rows == 0 or most == 0:
            most = max(rows, 1)  # the engine's error says what does not fit
        parts = [
            self._call({name: array[start : start + most] for name, array in inputs.items()})
            for start in range(0, max(rows, 1), most)
        ]
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _call(self, inputs: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        results = self._engine(**inputs)
        return results if isinstance(results, dict) else {self._engine.outputs[0]: results}


def _column(table: Any, name: str) -> np.ndarray[Any, Any]:
    """A column as an array. A single chunk of numbers or tensors is not copied."""
    column = table.column(name)
    chunk = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if hasattr(chunk, "chunks"):  # combine_chunks() of extension types returns a chunked array
        chunk = chunk.chunk(0)
    return chunk.to_numpy(zero_copy_only=False)
