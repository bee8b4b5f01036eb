#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/device.h"
#include "backend/memory.h"

namespace opwright {

/// The size tensors that one step writes, and everything that is only known after it. Where the
/// host does not read the device's memory, sizes are copied to the host in the order of the queue,
/// and read when they are needed.
struct SizeGroup {
  struct Size {
    int32_t symbol = -1;
    DataType type = DataType::kINT64;
    void* const* address = nullptr;  ///< the output's slot
    const void* copy = nullptr;      ///< on the host; null: the host reads the output itself
  };
  int step = 0;
  size_t number = 0;  ///< the group's number
  std::vector<Size> sizes;
  std::vector<size_t> outputs;           ///< outputs of the step whose extents depend on the sizes
  std::vector<int> steps;                ///< steps to be told of their shapes
  std::vector<size_t> values;            ///< tensors to be computed, as indices of RunTable::values
  std::unique_ptr<PinnedMemory> copies;  ///< copies of the sizes, and a zero behind them
  std::unique_ptr<Event> copied;
};

}  // namespace opwright
