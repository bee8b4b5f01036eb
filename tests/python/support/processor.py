"""Byte products on the processor that runs the tests."""

from pathlib import Path

_FLAGS = set(Path("/proc/cpuinfo").read_text().split())
MULTIPLIES_BYTES = bool({"avx512_vnni", "avx_vnni"} & _FLAGS)
# On other processors ONNX Runtime adds pairs of products of UINT8 and INT8 in 16 bits, which larger
# weights overflow.
LARGEST_WEIGHT = 127 if MULTIPLIES_BYTES else 63
