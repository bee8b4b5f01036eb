"""Base classes of streams that engines are read from and written to.

They list the methods to define and hold no state.
"""

from __future__ import annotations

from . import _core
from ._plugins.classes import InterfaceInfo, IVersionedInterface
from ._runtime_classes import _missing

__all__ = ["IStreamReader", "IStreamReaderV2", "IStreamWriter"]


class IStreamReader(IVersionedInterface):
    """Gives an engine's bytes one after the other: derive from it, and give it to
    ``Runtime.deserialize_cuda_engine``."""

    interface_info = InterfaceInfo("IStreamReader", 1, 0)

    def read(self, size: int) -> bytes:
        """The next bytes, at most ``size``; none at the end of the stream."""
        _missing(self, "read(self, size)")


class IStreamReaderV2(IVersionedInterface):
    """As ``IStreamReader``, with a position that can be set. Opwright reads from front to back and
    does not set it."""

    interface_info = InterfaceInfo("IStreamReaderV2", 1, 0)

    def read(self, num_bytes: int, stream: int) -> bytes:
        """The next bytes, at most ``num_bytes``; none at the end of the stream.

        :param stream: 0. The bytes are to be there on return.
        """
        _missing(self, "read(self, num_bytes, stream)")

    def seek(self, offset: int, where: _core.SeekPosition) -> bool:
        """Set the position; whether that was possible."""
        _missing(self, "seek(self, offset, where)")


class IStreamWriter(IVersionedInterface):
    """Takes an engine's bytes one after the other: derive from it, and give it to
    ``Builder.build_serialized_network_to_stream``."""

    interface_info = InterfaceInfo("IStreamWriter", 1, 0)

    def write(self, data: bytes) -> int:
        """Take bytes; how many were taken, and 0 on failure."""
        _missing(self, "write(self, data)")
