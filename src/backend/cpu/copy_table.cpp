#include "backend/cpu/copy_table.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/copy.h"
#include "base/parallel.h"

namespace opwright {

void TableCopy::reserve(const Axes& output) {
  int64_t total = 1;
  for (int i = 0; i < output.count; ++i) {
    if (output[i] == 0) return;
    total += output[i];
  }
  storage_.resize(total);
}

void TableCopy::begin(const Axes& input, const Axes& output, int element_size, int merged) {
  element_size_ = element_size;
  item_elements_ = 1;
  for (int i = merged; i < output.count; ++i) item_elements_ *= output[i];
  item_bytes_ = item_elements_ * element_size;
  int64_t* table = storage_.data();
  int64_t stride = item_bytes_;
  for (int i = merged - 1; i >= 0; --i) {
    strides_[i] = stride;
    stride *= input[i];
    extents_[i] = output[i];
    tables_[i] = table;
    table += output[i];
  }
  if (merged == 0) {  // the whole tensor is one item
    merged = 1;
    strides_[0] = item_bytes_, extents_[0] = 1;
    tables_[0] = table;
    table[0] = 0;
  }
  outer_count_ = merged - 1;
  count_ = extents_[outer_count_];
  row_bytes_ = count_ * item_bytes_;
  grain_ = std::max<int64_t>(1, kCopyGrainBytes / std::max<int64_t>(64, row_bytes_));
}

void TableCopy::finish() {
  find_run();
  const int64_t* table = tables_[outer_count_];
  has_fill_ = std::any_of(table, table + count_, [](int64_t index) { return index < 0; });
  repeat_ = 1;
  while (repeat_ < count_ && table[repeat_] == table[0]) ++repeat_;
  for (int64_t k = 0; k < count_; ++k)
    if (table[k] < 0 || count_ % repeat_ != 0 || table[k] != table[0] + k / repeat_) repeat_ = 1;
  step_ = count_ > 1 ? table[1] - table[0] : 1;
  for (int64_t k = 1; k < count_ && step_ != kIrregular; ++k)
    if (table[k] < 0 || table[k - 1] < 0 || table[k] - table[k - 1] != step_) step_ = kIrregular;
  // A row with a period repeats its first run, as Tile does.
  period_ = run_begin_ == 0 && run_end_ > 1 && run_end_ < count_ && !has_fill_ ? run_end_ : 0;
  for (int64_t k = period_; k < count_ && period_ > 0; ++k)
    if (table[k] != table[k - period_]) period_ = 0;
  rows_ = 1;
  for (int i = 0; i < outer_count_; ++i) rows_ *= extents_[i];
}

/// Finds the longest range of the last axis that is contiguous in the input.
void TableCopy::find_run() {
  const int64_t* table = tables_[outer_count_];
  run_begin_ = run_end_ = 0;
  for (int64_t begin = 0; begin < count_;) {
    int64_t end = begin + 1;
    while (end < count_ && table[begin] >= 0 && table[end] == table[begin] + (end - begin)) ++end;
    if (table[begin] >= 0 && end - begin > run_end_ - run_begin_)
      run_begin_ = begin, run_end_ = end;
    begin = end;
  }
}

void TableCopy::fill_items(std::byte* to, const std::byte* fill, int64_t count) const {
  fill_elements(to, fill, element_size_, count * item_elements_);
}

void TableCopy::copy_items(const std::byte* from, std::byte* to, const std::byte* fill,
                           int64_t begin, int64_t end) const {
  const int64_t* table = tables_[outer_count_];
  for (int64_t k = begin; k < end; ++k) {
    std::byte* item = to + k * item_bytes_;
    if (table[k] < 0) {
      int64_t last = k + 1;  // padding comes in runs
      while (last < end && table[last] < 0) ++last;
      // An item of several elements may be four bytes long, too, so the number of elements is
      // checked.
      if (element_size_ == 4 && item_elements_ == 1 && last == k + 1)
        std::memcpy(item, fill, 4);
      else
        fill_items(item, fill, last - k);
      k = last - 1;
    } else if (item_bytes_ == 4) {
      std::memcpy(item, from + table[k] * 4, 4);
    } else {
      std::memcpy(item, from + table[k] * item_bytes_, item_bytes_);
    }
  }
}

void TableCopy::copy_row(const std::byte* from, std::byte* to, const std::byte* fill) const {
  const int64_t* table = tables_[outer_count_];
  if (step_ == 0 && item_bytes_ == element_size_)  // one repeated element
    return fill_elements(to, from + table[0] * item_bytes_, element_size_, count_);
  if (period_ > 0) {
    const int64_t bytes = period_ * item_bytes_;
    const std::byte* run = from + table[0] * item_bytes_;
    for (int64_t done = 0; done < row_bytes_; done += bytes)
      std::memcpy(to + done, run, std::min(bytes, row_bytes_ - done));
    return;
  }
  if (step_ != 1 && step_ != kIrregular)  // strided, reversed or repeated
    return gather_elements(to, from + table[0] * item_bytes_, item_bytes_, step_ * item_bytes_,
                           count_);
  if (repeat_ > 1)
    return repeat_elements(to, from + table[0] * item_bytes_, item_bytes_, repeat_,
                           count_ / repeat_);
  if (!has_fill_ && (run_end_ - run_begin_) * 4 < count_)
    return pick_elements(to, from, item_bytes_, table, count_);
  copy_items(from, to, fill, 0, run_begin_);
  if (run_end_ > run_begin_)
    std::memcpy(to + run_begin_ * item_bytes_, from + table[run_begin_] * item_bytes_,
                (run_end_ - run_begin_) * item_bytes_);
  copy_items(from, to, fill, run_end_, count_);
}

void TableCopy::copy_rows(const std::byte* from, std::byte* to, const std::byte* fill,
                          int64_t begin, int64_t end) const {
  int64_t index[Axes::kMax];
  int64_t rest = begin;
  for (int i = outer_count_ - 1; i >= 0; --i) {
    index[i] = rest % extents_[i];
    rest /= extents_[i];
  }
  const std::byte* previous = nullptr;
  const int last = outer_count_ - 1;
  // Rows along the last outer axis share the indices of the axes before it.
  for (int64_t row = begin; row < end;) {
    const std::byte* first = from;
    bool filled = false;
    for (int i = 0; i < last; ++i) {
      const int64_t at = tables_[i][index[i]];
      filled |= at < 0;
      first += at < 0 ? 0 : at * strides_[i];
    }
    const int64_t length = last < 0 ? 1 : std::min(extents_[last] - index[last], end - row);
    for (int64_t k = 0; k < length; ++k, ++row) {
      const int64_t at = last < 0 ? 0 : tables_[last][index[last] + k];
      if (filled || at < 0) {
        fill_items(to + row * row_bytes_, fill, count_);
        previous = nullptr;
        continue;
      }
      const std::byte* const source = last < 0 ? first : first + at * strides_[last];
      if (source == previous)  // the same row again
        std::memcpy(to + row * row_bytes_, to + (row - 1) * row_bytes_, row_bytes_);
      else
        copy_row(source, to + row * row_bytes_, fill);
      previous = source;
    }
    if (last < 0) continue;
    index[last] = 0;
    for (int i = last - 1; i >= 0 && ++index[i] == extents_[i]; --i) index[i] = 0;
  }
}

void TableCopy::run(const void* from, void* to, const void* fill) const {
  const auto* source = static_cast<const std::byte*>(from);
  if (rows_ > 0 && outer_count_ == 0 && run_end_ - run_begin_ == count_)
    return parallel_copy(to, source + tables_[0][0] * item_bytes_, row_bytes_);
  parallel_for(rows_, grain_, [&](int64_t begin, int64_t end) {
    copy_rows(source, static_cast<std::byte*>(to), static_cast<const std::byte*>(fill), begin, end);
  });
}

}  // namespace opwright
