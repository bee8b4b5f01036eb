"""What the processor that tests run on does with bytes."""

from pathlib import Path

_FLAGS = set(Path("/proc/cpuinfo").read_text().split())
MULTIPLIES_BYTES = bool({"avx512_vnni", "avx_vnni"} & _FLAGS)
# Elsewhere ONNX Runtime adds products of UINT8 and INT8 two by two in 16 bits, of which larger weights are too much.
LARGEST_WEIGHT = 127 if MULTIPLIES_BYTES else 63
