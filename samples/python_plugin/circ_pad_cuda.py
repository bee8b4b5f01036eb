"""The CUDA kernel of the samples for CuPy and cuda-python."""

SOURCE = r"""
__device__ int wrap(int i, int n) {
  i %= n;
  return i < 0 ? i + n : i;
}

// x of extents x0..x3 into y of extents y0..y3; b0..b3 elements are added in front of each axis.
extern "C" __global__ void circ_pad(const ELEMENT* x, ELEMENT* y, int x0, int x1, int x2, int x3,
                                    int y0, int y1, int y2, int y3,
                                    int b0, int b1, int b2, int b3) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= y0 * y1 * y2 * y3) return;
  const int k0 = wrap(i / (y1 * y2 * y3) - b0, x0);
  const int k1 = wrap(i / (y2 * y3) % y1 - b1, x1);
  const int k2 = wrap(i / y3 % y2 - b2, x2);
  const int k3 = wrap(i % y3 - b3, x3);
  y[i] = x[((k0 * x1 + k1) * x2 + k2) * x3 + k3];
}
"""
BLOCK = 256  # threads


def options(itemsize: int) -> tuple[str]:
    """The compiler's options for elements of this many bytes: values are moved, so any type will do."""
    return ("-DELEMENT=" + {2: "short", 4: "int"}[itemsize],)
