// Circular padding of the last two axes, at the speed of memory. What would cost more than the bytes, divisions for each
// element, is done once for each row: a warp makes a row of y. Rows begin anywhere, so the vectors of y do not lie as
// those of x do: what lies within a row of x is stored as BYTES at once, made of words of 4 bytes that are shifted
// against each other. Only the edges, where the row begins anew, are elements by themselves. WARPS, of a block, BYTES
// and EARLY, whether edges are read first, are constants for the tuner.

template <int bytes> struct Word;
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned int; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };

constexpr int kWarp = 32;
constexpr int kAtOnce = 8;  // elements that a lane reads before it writes

__device__ inline int wrap(int i, int n) {
  i += i < 0 ? n : i < n ? 0 : -n;
  if (i >= 0 && i < n) return i;  // of all but large pads
  i %= n;
  return i < 0 ? i + n : i;
}

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

// `to` [columns] is `from` [width] over and over, `left` elements in front of it first.
template <class Element>
__device__ void repeat(const Element* from, int width, int left, Element* to, int columns) {
  using Vector = typename Word<BYTES>::type;
  constexpr int kVector = BYTES / sizeof(Element);
  constexpr int kLoads = kAtOnce / kVector;
  constexpr int kMargin = sizeof(Element) < 4 ? 1 : 0;  // see load_shifted
  const int lane = threadIdx.x % kWarp;

  // Columns from `head` on, which is aligned, are `vectors` vectors; the first is at element head - left of the row.
  const int ahead = static_cast<int>(reinterpret_cast<uint64_t>(to) / sizeof(Element) % kVector);
  const int begin = max(0, left + kMargin);
  const int end = min(columns, left + width - kMargin);
  const int head = (begin + ahead + kVector - 1) / kVector * kVector - ahead;
  const int vectors = max(0, end - head) / kVector, inner = vectors * kVector;

  const auto edge_column = [&](int i) { return i < head ? i : i + inner; };
  const auto load_edge = [&](int column) { return __ldg(from + wrap(column - left, width)); };
  // Read here already, to wait for memory once, or as late as possible, to have registers for more warps.
  Element edge = 0;
  if (EARLY && lane < columns - inner) edge = load_edge(edge_column(lane));
#pragma unroll 1
  for (int first = lane; first < vectors; first += kWarp * kLoads) {
    Vector values[kLoads];
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int i = first + load * kWarp;
      if (i < vectors) values[load] = load_shifted(from + (head - left) + i * kVector);
    }
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int i = first + load * kWarp;
      if (i < vectors) __stcs(reinterpret_cast<Vector*>(to + head) + i, values[load]);  // past the caches
    }
  }
#pragma unroll 1
  for (int i = lane; i < columns - inner; i += kWarp) {
    const int column = edge_column(i);
    if (!EARLY || i != lane) edge = load_edge(column);
    to[column] = edge;
  }
}

// x [lines / rows, height, width] into y [lines / rows, rows, columns], by ceil(lines / WARPS) blocks of WARPS warps.
template <class T>
__device__ void circ_pad(const T* x, int lines, int height, int width, int rows, int columns,
                         int top, int left, T* y) {
  using Element = typename Word<sizeof(T)>::type;  // elements are moved as their bits
  const unsigned line = blockIdx.x * WARPS + threadIdx.x / kWarp;
  if (line >= lines) return;
  const unsigned image = line / rows;
  const int row = static_cast<int>(line - image * rows);
  const uint64_t from_row = uint64_t{image} * height + wrap(row - top, height);
  const Element* const from = reinterpret_cast<const Element*>(x) + from_row * width;
  repeat(from, width, left, reinterpret_cast<Element*>(y) + uint64_t{line} * columns, columns);
}
