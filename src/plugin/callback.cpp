#include "plugin/callback.h"

#include <array>
#include <atomic>
#include <utility>

namespace opwright {

namespace {

thread_local std::exception_ptr pending;
std::array<std::atomic<ExecutionDomain*>, EnumMax<APILanguage>()> domains{};

}  // namespace

void set_pending_exception(std::exception_ptr exception) noexcept {
  pending = std::move(exception);
}

void rethrow_pending_exception() {
  if (pending) std::rethrow_exception(std::exchange(pending, nullptr));
}

void set_execution_domain(APILanguage language, ExecutionDomain* domain) noexcept {
  domains.at(static_cast<size_t>(language)) = domain;
}

ExecutionDomain* execution_domain(APILanguage language) noexcept {
  const auto index = static_cast<size_t>(language);
  return index < domains.size() ? domains[index].load() : nullptr;
}

}  // namespace opwright
