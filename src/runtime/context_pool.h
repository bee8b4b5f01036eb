#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/per_process.h"
#include "runtime/context.h"

namespace opwright {

/// Contexts of one engine for concurrent calls from any threads. There are as many contexts as
/// there are calls at once.
class ContextPool {
 public:
  explicit ContextPool(std::shared_ptr<const Engine> engine);
  ~ContextPool();

  /// A context for one call. A context that is not given back, because its run failed, is dropped.
  class Lease {
   public:
    explicit Lease(ContextPool& pool) : pool_(pool), context_(pool.take()) {}
    Context& context() { return *context_; }
    void give_back() { pool_.give_back(std::move(context_)); }

   private:
    ContextPool& pool_;
    std::unique_ptr<Context> context_;
  };

  /// The number of calls in a period. At the end of a period, contexts that no call of it needed
  /// are dropped. So the memory of a burst is freed, while callers that are always many keep their
  /// contexts: making a context takes as long as many runs.
  static constexpr size_t kPeriod = 256;
  /// The number of contexts that wait for a call.
  size_t num_idle() const;

 private:
  struct Shelf {
    std::mutex mutex;
    std::vector<std::unique_ptr<Context>> idle;  ///< the most recently used context is last
    size_t least_idle = 0;                       ///< the fewest idle contexts in this period
    size_t calls = 0;                            ///< the number of calls in this period
  };
  std::unique_ptr<Context> take();
  void give_back(std::unique_ptr<Context> context);

  const std::shared_ptr<const Engine> engine_;
  mutable PerProcess<Shelf> shelf_;
};

}  // namespace opwright
