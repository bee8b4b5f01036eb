#include "runtime/context_pool.h"

#include <algorithm>
#include <iterator>

namespace opwright {

ContextPool::ContextPool(std::shared_ptr<const Engine> engine)
    : engine_(std::move(engine)), shelf_([] { return std::make_unique<Shelf>(); }) {}

ContextPool::~ContextPool() = default;

std::unique_ptr<Context> ContextPool::take() {
  Shelf& shelf = shelf_.get();
  {
    const std::lock_guard lock(shelf.mutex);
    if (!shelf.idle.empty()) {
      std::unique_ptr<Context> context = std::move(shelf.idle.back());
      shelf.idle.pop_back();
      shelf.least_idle = std::min(shelf.least_idle, shelf.idle.size());
      return context;
    }
    shelf.least_idle = 0;
  }
  return std::make_unique<Context>(engine_);
}

void ContextPool::give_back(std::unique_ptr<Context> context) {
  Shelf& shelf = shelf_.get();
  std::vector<std::unique_ptr<Context>> surplus;  // destroyed after the lock is released
  {
    const std::lock_guard lock(shelf.mutex);
    shelf.idle.push_back(std::move(context));
    if (++shelf.calls < kPeriod) return;
    const auto end = shelf.idle.begin() + static_cast<std::ptrdiff_t>(shelf.least_idle);
    surplus.assign(std::make_move_iterator(shelf.idle.begin()), std::make_move_iterator(end));
    shelf.idle.erase(shelf.idle.begin(), end);
    shelf.calls = 0;
    shelf.least_idle = shelf.idle.size();
  }
}

size_t ContextPool::num_idle() const {
  Shelf& shelf = shelf_.get();
  const std::lock_guard lock(shelf.mutex);
  return shelf.idle.size();
}

}  // namespace opwright
