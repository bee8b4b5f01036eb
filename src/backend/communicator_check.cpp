#include "backend/communicator_check.h"

#include <atomic>

namespace opwright {
namespace {

std::atomic<CommunicatorCheck> known_check{nullptr};

}  // namespace

void set_communicator_check(CommunicatorCheck check) {
  known_check.store(check, std::memory_order_release);
}

void check_communicator(void* communicator) {
  if (const CommunicatorCheck check = known_check.load(std::memory_order_acquire))
    check(communicator);
}

}  // namespace opwright
