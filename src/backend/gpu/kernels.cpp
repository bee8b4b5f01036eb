#include "backend/gpu/kernels.h"

#include <unordered_map>

namespace opwright::gpu {
namespace {

using KernelTable = std::unordered_map<std::string_view, KernelEntry>;

/// By the kind of operator; complete once the library is loaded, as RegisteredKernels fill it.
KernelTable& kernel_table() {
  static KernelTable table;
  return table;
}

}  // namespace

void register_kernels(std::string_view kind, const KernelEntry& entry) {
  kernel_table().emplace(kind, entry);
}

const KernelEntry* find_entry(std::string_view kind) {
  const auto found = kernel_table().find(kind);
  return found == kernel_table().end() ? nullptr : &found->second;
}

}  // namespace opwright::gpu
