#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/device.h"
#include "backend/memory.h"

namespace opwright {

/// The size tensors that one step writes, and what can only be known after it. Where the host does
/// not read the device's memory, they are copied to the host in the order of the queue, and read
/// when something needs them.
struct SizeGroup {
  struct Size {
    int32_t symbol = -1;
    DataType type = DataType::kINT64;
    void* const* address = nullptr;  ///< the slot of the output
    const void* copy = nullptr;      ///< on the host; null where that reads the output itself
  };
  int step = 0;
  size_t number = 0;  ///< among the groups
  std::vector<Size> sizes;
  std::vector<size_t> outputs;           ///< of the step: those whose extents they tell
  std::vector<int> steps;                ///< to be told of their shapes
  std::vector<size_t> values;            ///< to be computed, as indices of RunTable::values
  std::unique_ptr<PinnedMemory> copies;  ///< and a zero behind them
  std::unique_ptr<Event> copied;
};

}  // namespace opwright
