#include <algorithm>
#include <cstdint>
#include <cstring>

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
      std::memcpy(y + done, x + std::int64_t{row} * width + column, sizeof(T) * run);
    }
    y += columns;
    row = row + 1 < height ? row + 1 : 0;
  }
}
