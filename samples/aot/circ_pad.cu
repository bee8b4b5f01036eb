// Circular padding of the last two axes, at the speed of memory. What would cost more than the bytes, divisions for each
// element, is done once for each row: a warp makes ROWS rows of y. The rows of y begin anywhere, so its vectors do not
// lie as those of x do. There are two ways about that, which the tuner compares, with constants of its choice:
//  - VECTOR is defined: lanes read VECTOR elements, each by itself, and store them together;
//  - BYTES is defined: what lies within a row of x is stored as BYTES at once, made of words of 4 bytes that are shifted
//    against each other; only the edges, where the row begins anew, are elements by themselves.

template <int bytes> struct Word;
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned int; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };

constexpr int kWarp = 32;
constexpr int kAtOnce = 8;  // elements of a row that a lane reads before it writes

__device__ inline int wrap(int i, int n) {
  i += i < 0 ? n : i < n ? 0 : -n;
  if (i >= 0 && i < n) return i;  // of all but large pads
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

// A row of y, `to` [columns], which is a row of x, `from` [width], over and over.
template <class Element>
struct Row {
  const Element* from;
  Element* to;
  int columns;  // 0: there is no such row
};

// Elements that `to` is behind memory that is aligned for `vector` of them.
template <class Element>
__device__ int behind_aligned(const Element* to, int vector) {
  return static_cast<int>(reinterpret_cast<uint64_t>(to) / sizeof(Element) % vector);
}

#ifdef VECTOR

// A row's first vector begins in front of it, where a full one would lie: all others are stored whole.
template <bool wide, class Element>
__device__ void repeat_row(const Row<Element>& row, unsigned width, unsigned start, int first) {
  using Vector = typename Word<sizeof(Element) * VECTOR>::type;
  constexpr int kLoads = kAtOnce / VECTOR, kStep = kWarp * VECTOR;
  while (first < row.columns) {
    union {
      Element elements[VECTOR];
      Vector vector;
    } values[kLoads];
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
#pragma unroll
      for (int i = 0; i < VECTOR; ++i) {
        const int column = first + load * kStep + i;
        if (column >= 0 && column < row.columns) {
          values[load].elements[i] = __ldcs(row.from + wrap_up<wide>(start + i, width));
        }
      }
      start = wrap_up<wide>(start + kStep, width);
    }
#pragma unroll
    for (int load = 0; load < kLoads; ++load, first += kStep) {
      if (first >= 0 && first + VECTOR <= row.columns) {
        store(reinterpret_cast<Vector*>(row.to + first), values[load].vector);
      } else {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
          if (first + i >= 0 && first + i < row.columns) row.to[first + i] = values[load].elements[i];
        }
      }
    }
  }
}

template <class Element>
__device__ void repeat(const Row<Element> (&rows)[ROWS], int width, int left) {
#pragma unroll
  for (const Row<Element>& row : rows) {
    const int lane = threadIdx.x % kWarp, first = lane * VECTOR - behind_aligned(row.to, VECTOR);
    if (width >= kWarp * VECTOR) {
      repeat_row<true>(row, width, wrap(first - left, width), first);
    } else {
      repeat_row<false>(row, width, wrap(first - left, width), first);
    }
  }
}

#else

// BYTES that begin at any element. Of elements of 2 bytes, the one in front and the one behind may be read, too.
template <class Element>
__device__ typename Word<BYTES>::type load_shifted(const Element* from) {
  constexpr int kWords = BYTES / 4;
  union {
    unsigned words[kWords];
    typename Word<BYTES>::type vector;
  } value;
  const uint64_t address = reinterpret_cast<uint64_t>(from);
  const unsigned* const aligned = reinterpret_cast<const unsigned*>(address / 4 * 4);
  unsigned words[kWords + 1];
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __ldg(aligned + i);
  const unsigned shift = sizeof(Element) < 4 ? address % 4 * 8 : 0;
  words[kWords] = shift != 0 ? __ldg(aligned + kWords) : 0;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    value.words[i] = __funnelshift_r(words[i], words[i + 1], shift);
  }
  return value.vector;
}

template <class Element>
__device__ void repeat(const Row<Element> (&rows)[ROWS], int width, int left) {
  using Vector = typename Word<BYTES>::type;
  constexpr int kVector = BYTES / sizeof(Element);
  constexpr int kLoads = kAtOnce / kVector;
  constexpr int kMargin = sizeof(Element) < 4 ? 1 : 0;  // see load_shifted
  const int lane = threadIdx.x % kWarp;

  // Columns from `head` on are `vectors` vectors, of which vector 0 begins at element head - left of the row of x.
  int head[ROWS], vectors[ROWS], most = 0;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int ahead = behind_aligned(rows[r].to, kVector);
    const int begin = max(0, left + kMargin);
    const int end = min(rows[r].columns, left + width - kMargin);
    head[r] = (begin + ahead + kVector - 1) / kVector * kVector - ahead;
    vectors[r] = max(0, end - head[r]) / kVector;
    most = max(most, vectors[r]);
  }
#pragma unroll 1
  for (int first = lane; first < most; first += kWarp * kLoads) {
    Vector values[ROWS][kLoads];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const Element* const from = rows[r].from + (head[r] - left);
#pragma unroll
      for (int load = 0; load < kLoads; ++load) {
        const int i = first + load * kWarp;
        if (i < vectors[r]) values[r][load] = load_shifted(from + i * kVector);
      }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      Vector* const to = reinterpret_cast<Vector*>(rows[r].to + head[r]);
#pragma unroll
      for (int load = 0; load < kLoads; ++load) {
        const int i = first + load * kWarp;
        if (i < vectors[r]) store(to + i, values[r][load]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int inner = vectors[r] * kVector;
#pragma unroll 1
    for (int i = lane; i < rows[r].columns - inner; i += kWarp) {
      const int column = i < head[r] ? i : i + inner;
      rows[r].to[column] = __ldg(rows[r].from + wrap(column - left, width));
    }
  }
}

#endif

// x [lines / rows, height, width] into y [lines / rows, rows, columns], by blocks of WARPS warps.
template <class T>
__device__ void circ_pad(const T* x, int lines, int height, int width, int rows, int columns,
                         int top, int left, T* y) {
  using Element = typename Word<sizeof(T)>::type;  // elements are moved as their bits
  const unsigned line = (blockIdx.x * WARPS + threadIdx.x / kWarp) * ROWS;
  if (line >= lines) return;
  unsigned image = line / rows;
  int row = line - image * rows;
  Row<Element> made[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const uint64_t from = uint64_t{image} * height + wrap(row - top, height);
    made[r].from = reinterpret_cast<const Element*>(x) + from * width;
    made[r].to = reinterpret_cast<Element*>(y) + uint64_t{line + r} * columns;
    made[r].columns = line + r < lines ? columns : 0;
    if (++row == rows) row = 0, ++image;
  }
  repeat(made, width, left);
}
