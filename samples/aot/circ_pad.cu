// Circular padding of the last two axes, at the speed of memory. What would cost more than the bytes, divisions for each
// element, is done once for each row: a warp makes a row of y, whose lanes hold VECTOR neighbours each. Rows of y
// begin anywhere, so a row's first vector begins in front of it, where a full one would lie: all others are stored
// whole. Loads cannot be aligned to the same places. WARPS and VECTOR are constants for the tuner.

template <int bytes> struct Word;
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned int; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };

__device__ inline int wrap(int i, int n) {
  i %= n;
  return i < 0 ? i + n : i;
}

// Of an index below 2 n if `once`, else of any.
template <bool once>
__device__ inline unsigned wrap_up(unsigned i, unsigned n) {
  return once ? min(i, i - n) : i % n;  // i - n is huge where i < n
}

// Past the caches, but for stores so narrow that a warp's do not fill lines: the cache collects those.
template <class Vector>
__device__ inline void store(Vector* to, Vector value) {
  if constexpr (sizeof(Vector) < 4) {
    *to = value;
  } else {
    __stcs(to, value);
  }
}

// `to` [columns] is `from` [width] over and over, from an element on.
template <bool wide, class Element>
__device__ void repeat_row(const Element* from, unsigned width, unsigned start, Element* to,
                           int first, int columns) {
  using Vector = typename Word<sizeof(Element) * VECTOR>::type;
  constexpr int kLoads = 8 / VECTOR;  // vectors that are read before the first is written
  constexpr int kStep = 32 * VECTOR;
  while (first < columns) {
    union {
      Element elements[VECTOR];
      Vector vector;
    } values[kLoads];
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
#pragma unroll
      for (int i = 0; i < VECTOR; ++i) {
        const int column = first + load * kStep + i;
        if (column >= 0 && column < columns) {
          values[load].elements[i] = __ldcs(from + wrap_up<wide>(start + i, width));
        }
      }
      start = wrap_up<wide>(start + kStep, width);
    }
#pragma unroll
    for (int load = 0; load < kLoads; ++load, first += kStep) {
      if (first >= 0 && first + VECTOR <= columns) {
        store(reinterpret_cast<Vector*>(to + first), values[load].vector);
      } else {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
          if (first + i >= 0 && first + i < columns) to[first + i] = values[load].elements[i];
        }
      }
    }
  }
}

// x [lines / rows, height, width] into y [lines / rows, rows, columns], by ceil(lines / WARPS) blocks of WARPS warps.
template <class T>
__device__ void circ_pad(const T* x, int lines, int height, int width, int rows, int columns,
                         int top, int left, T* y) {
  using Element = typename Word<sizeof(T)>::type;  // elements are moved as their bits
  const unsigned line = blockIdx.x * WARPS + threadIdx.x / 32;
  if (line >= lines) return;
  const unsigned image = line / rows;
  const int row = wrap(static_cast<int>(line - image * rows) - top, height);
  const Element* from = reinterpret_cast<const Element*>(x) + (int64_t{image} * height + row) * width;
  Element* to = reinterpret_cast<Element*>(y) + int64_t{line} * columns;

  const int ahead = static_cast<int>(reinterpret_cast<uint64_t>(to) / sizeof(T) % VECTOR);
  const int first = static_cast<int>(threadIdx.x % 32) * VECTOR - ahead;
  const unsigned start = wrap(first - left, width);
  if (width >= 32 * VECTOR) {
    repeat_row<true>(from, width, start, to, first, columns);
  } else {
    repeat_row<false>(from, width, start, to, first, columns);
  }
}
