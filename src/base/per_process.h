#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "threads/pool.h"

namespace opwright {

/// A value that a forked child makes anew: locks in the parent's value may be held for ever, and
/// its threads do not exist in the child. The child leaves the old value as it is. Any thread may
/// use it.
template <class T>
class PerProcess {
 public:
  explicit PerProcess(std::function<std::unique_ptr<T>()> make) : make_(std::move(make)) {
    made_ = new Made{threads::fork_count(), make_()};
  }
  ~PerProcess() {
    Made* const made = made_.load(std::memory_order_acquire);
    if (made->forks == threads::fork_count()) delete made;
  }
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  T& get() {
    Made* made = made_.load(std::memory_order_acquire);
    const uint64_t forks = threads::fork_count();
    while (made->forks != forks) [[unlikely]] {
        auto fresh = std::make_unique<Made>(Made{forks, make_()});
        if (made_.compare_exchange_strong(made, fresh.get(), std::memory_order_acq_rel))
          made = fresh.release();
      }
    return *made->value;
  }

 private:
  struct Made {
    uint64_t forks;
    std::unique_ptr<T> value;
  };
  const std::function<std::unique_ptr<T>()> make_;
  std::atomic<Made*> made_;
};

}  // namespace opwright
