#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/pointwise_broadcast.h"

namespace opwright {

/// A copy between dense tensors. A table per axis says which index of the input each index of the
/// output reads, or that it takes a fill value. Trailing axes that are copied whole are merged into
/// longer items. The longest contiguous run of the last axis is copied at once.
class TableCopy {
 public:
  static constexpr int64_t kFill = -1;

  /// Leaves nothing to copy until prepare() is called again.
  void clear() { rows_ = 0; }
  /// Allocates room for tables of these extents.
  void reserve(const Axes& output);
  /// Prepares a copy for tensors of equal rank, extents in memory order. `fill_table(axis, table)`
  /// writes output[axis] indices below input[axis], or kFill. It is not called for trailing axes
  /// for which `is_whole(axis)` says that they are copied whole. Does not allocate where reserve()
  /// was called for the output.
  template <class IsWhole, class FillTable>
  void prepare(const Axes& input, const Axes& output, int element_size, IsWhole&& is_whole,
               FillTable&& fill_table) {
    clear();
    for (int i = 0; i < output.count; ++i)
      if (output[i] == 0) return;
    int merged = output.count;
    while (merged > 0 && is_whole(merged - 1)) --merged;
    begin(input, output, element_size, merged);
    for (int axis = 0; axis < merged; ++axis) fill_table(axis, tables_[axis]);
    finish();
  }
  /// `fill` points to one element.
  void run(const void* from, void* to, const void* fill) const;

 private:
  static constexpr int64_t kIrregular = INT64_MIN;

  void begin(const Axes& input, const Axes& output, int element_size, int merged);
  void finish();
  void find_run();
  void copy_rows(const std::byte* from, std::byte* to, const std::byte* fill, int64_t begin,
                 int64_t end) const;
  void copy_row(const std::byte* from, std::byte* to, const std::byte* fill) const;
  void copy_items(const std::byte* from, std::byte* to, const std::byte* fill, int64_t begin,
                  int64_t end) const;
  void fill_items(std::byte* to, const std::byte* fill, int64_t count) const;

  std::vector<int64_t> storage_;
  int64_t* tables_[Axes::kMax] = {};
  int64_t extents_[Axes::kMax] = {}, strides_[Axes::kMax] = {};  // strides of the input in bytes
  int outer_count_ = 0;  // axes before the last one, whose items make a row
  int element_size_ = 1;
  int64_t rows_ = 0;  // 0 while the tables are not complete
  int64_t count_ = 0, row_bytes_ = 0, item_bytes_ = 0, grain_ = 1;
  int64_t item_elements_ = 1;
  int64_t repeat_ = 1;  ///< consecutive copies of each item of a row in the last axis
  int64_t run_begin_ = 0, run_end_ = 0, step_ = 1;
  int64_t period_ = 0;     ///< items after which a row repeats itself; 0: it does not
  bool has_fill_ = false;  // in the table of the last axis
};

}  // namespace opwright
