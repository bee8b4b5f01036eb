#pragma once

#include <cstdint>

#include "operators/reduce.h"

namespace opwright {

/// The loops of a reduction over elements of one type. Totals are double for FP32 elements and
/// int64_t for integers. FP32 elements are added in FP32 only within short blocks, so that the
/// error does not grow with the length.
struct ReduceFunctions {
  /// The most rows that `add_rows` takes, and the most that may be added to a block before it must
  /// be flushed.
  static constexpr int kRows = 8, kRowsPerBlock = 64;
  static constexpr int64_t kShortRow = 8;

  /// Reduces `count` contiguous elements into *total.
  void (*reduce)(const void* from, int64_t count, void* total);
  /// Reduces rows of 1 to kShortRow elements, one behind the other, into one total each.
  void (*reduce_short)(const void* from, int64_t rows, int64_t count, void* totals);
  /// Combines row[i] of 1 to kRows rows into block[i], for i < count.
  void (*add_rows)(const void* const* rows, int row_count, int64_t count, void* block);
  /// Combines block[i] into totals[i] and sets the block to the neutral element.
  void (*flush)(void* block, int64_t count, void* totals);
  /// Sets a block or totals to the neutral element.
  void (*clear_block)(void* block, int64_t count);
  void (*clear_totals)(void* totals, int64_t count);
  /// Combines others[i] into totals[i].
  void (*merge)(const void* others, int64_t count, void* totals);
};

/// `type` is kFLOAT, kINT32 or kINT64; kAVG uses the loops of kSUM.
const ReduceFunctions& reduce_functions(ReduceOperation op, DataType type);

}  // namespace opwright
