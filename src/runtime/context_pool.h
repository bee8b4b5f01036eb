#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/per_process.h"
#include "runtime/context.h"

namespace opwright {

/// Contexts of one engine for as many calls as there are at once, whichever threads they come from.
/// Any thread may take one.
class ContextPool {
 public:
  explicit ContextPool(std::shared_ptr<const Engine> engine);
  ~ContextPool();

  /// A context for one call. One that is not given back, since its run failed, is dropped.
  class Lease {
   public:
    explicit Lease(ContextPool& pool) : pool_(pool), context_(pool.take()) {}
    Context& context() { return *context_; }
    void give_back() { pool_.give_back(std::move(context_)); }

   private:
    ContextPool& pool_;
    std::unique_ptr<Context> context_;
  };

  /// So many calls make a period. What none of a period's calls needed is dropped at its end: the
  /// memory of a burst is given back, and callers that are many all the time keep their contexts,
  /// as making one takes as long as many runs.
  static constexpr size_t kPeriod = 256;
  /// The contexts that wait for a call.
  size_t num_idle() const;

 private:
  struct Shelf {
    std::mutex mutex;
    std::vector<std::unique_ptr<Context>> idle;  ///< the one that was used last behind
    size_t least_idle = 0;                       ///< in this period
    size_t calls = 0;                            ///< in this period
  };
  std::unique_ptr<Context> take();
  void give_back(std::unique_ptr<Context> context);

  const std::shared_ptr<const Engine> engine_;
  mutable PerProcess<Shelf> shelf_;
};

}  // namespace opwright
