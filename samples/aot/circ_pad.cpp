#include <algorithm>
#include <cstdint>
#include <cstring>

// Copies a run by lines of the cache, the last of which overlaps the one before, and asks for what
// lies 1 KiB ahead: in runs of some hundred bytes the processor does not look ahead by itself.
template <class T>
void copy_run(const T* from, std::int32_t count, T* to) {
  constexpr std::int32_t line = 64 / sizeof(T), ahead = 1024 / sizeof(T);
  if (count < line) {
    std::memcpy(to, from, sizeof(T) * count);
    return;
  }
  for (std::int32_t i = 0; i < count; i += line) {
    const std::int32_t at = std::min(i, count - line);
    __builtin_prefetch(from + at + ahead);
    std::memcpy(to + at, from + at, sizeof(T) * line);
  }
}

// One task pads one image: rows of `width` become rows of `columns`. A row of y is the row of x
// over and over, beginning `left` elements before its start: a few runs that are copied whole.
template <class T>
void circ_pad(const T* x, std::int32_t height, std::int32_t width, std::int32_t rows,
              std::int32_t columns, std::int32_t top, std::int32_t left, T* y, std::int64_t image,
              std::int64_t, std::int64_t) {
  x += image * height * width;
  y += image * rows * columns;
  std::int32_t row = (height - top % height) % height;
  for (std::int32_t i = 0; i < rows; ++i) {
    std::int32_t column = (width - left % width) % width;
    for (std::int32_t done = 0, run; done < columns; done += run, column = 0) {
      run = std::min(width - column, columns - done);
      copy_run(x + std::int64_t{row} * width + column, run, y + done);
    }
    y += columns;
    row = row + 1 < height ? row + 1 : 0;
  }
}
