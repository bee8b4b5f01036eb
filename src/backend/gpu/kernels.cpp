#include "backend/gpu/kernels.h"

#include <unordered_map>

#include "operators/movement.h"
#include "operators/pointwise.h"
#include "operators/reduce.h"
#include "operators/source.h"

namespace opwright::gpu {

const KernelEntry* find_entry(std::string_view kind) {
  static const std::unordered_map<std::string_view, KernelEntry> table = {
      {Concatenation::kKind, concatenation_kernels()},
      {Cumulative::kKind, cumulative_kernels()},
      {Fill::kKind, fill_kernels()},
      {Gather::kKind, gather_kernels()},
      {Pointwise::kKind, pointwise_kernels()},
      {Reduce::kKind, reduce_kernels()},
      {Reformat::kKind, reformat_kernels()},
      {Reshape::kKind, reshape_kernels()},
      {Slice::kKind, slice_kernels()},
      {Softmax::kKind, softmax_kernels()},
      {Transpose::kKind, transpose_kernels()},
  };
  const auto found = table.find(kind);
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace opwright::gpu
