#include "backend/gpu/kernels.h"

#include <unordered_map>

#include "base/library.h"

namespace opwright::gpu {
namespace {

/// By the kind of operator; complete once the library is loaded, as RegisteredKernels fill it.
struct KernelTable : std::unordered_map<std::string_view, KernelEntry> {};

}  // namespace

void register_kernels(std::string_view kind, const KernelEntry& entry) {
  Library::part<KernelTable>().emplace(kind, entry);
}

const KernelEntry* find_entry(std::string_view kind) {
  const auto& table = Library::part<KernelTable>();
  const auto found = table.find(kind);
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace opwright::gpu
