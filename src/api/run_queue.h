#pragma once

#include <memory>

#include "opwright/run_queue.h"
#include "runtime/call_shapes.h"
#include "runtime/context_pool.h"
#include "runtime/engine.h"
#include "runtime/run_queue.h"

namespace opwright {

class RunQueueApi final : public IRunQueue {
 public:
  /// State that runs use. It outlives the queue while runs are left.
  struct Core {
    explicit Core(const std::shared_ptr<const Engine>& e);
    const std::shared_ptr<const Engine> engine;
    ContextPool contexts;
    CallShapes shapes;
    RunQueue queue;
  };

  /// Throws Error for limits that RunQueue refuses.
  RunQueueApi(const std::shared_ptr<const Engine>& engine, int32_t max_threads,
              int32_t max_waiting);
  ~RunQueueApi() noexcept override;

  IQueuedRun* submit(void* const* bindings, Dims const* inputShapes, IRunListener* listener,
                     SubmitResult* result) noexcept override;
  bool setLimits(int32_t maxThreads, int32_t maxWaiting) noexcept override;
  int32_t getMaxThreads() const noexcept override { return core_->queue.max_threads(); }
  int32_t getMaxWaiting() const noexcept override { return core_->queue.max_waiting(); }
  int32_t getNbWaiting() const noexcept override {
    return static_cast<int32_t>(core_->queue.num_waiting());
  }

 private:
  const std::shared_ptr<Core> core_;
};

}  // namespace opwright
