#include "backend/cuda/kernels.h"

#include <unordered_map>

#include "operators/movement.h"
#include "operators/pointwise.h"
#include "operators/reduce.h"

namespace opwright::cuda {

const KernelEntry* find_entry(std::string_view kind) {
  static const std::unordered_map<std::string_view, KernelEntry> table = {
      {Pointwise::kKind, pointwise_kernels()},
      {Reduce::kKind, reduce_kernels()},
      {Reformat::kKind, reformat_kernels()},
  };
  const auto found = table.find(kind);
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace opwright::cuda
