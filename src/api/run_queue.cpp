#include "api/run_queue.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "api/engine.h"
#include "base/error_report.h"

namespace opwright {
namespace {

/// A run that the queue and its submitter share.
class SubmittedRun final : public QueuedRun {
 public:
  SubmittedRun(std::shared_ptr<RunQueueApi::Core> core, std::vector<void*> bindings,
               std::vector<Shape> shapes, IQueuedRun& face, IRunListener* listener)
      : core_(std::move(core)),
        bindings_(std::move(bindings)),
        shapes_(std::move(shapes)),
        face_(face),
        listener_(listener) {}

  void run() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      state_ = RunState::kRUNNING;
    }
    ErrorCode code = ErrorCode::kSUCCESS;
    std::string text;
    try {
      compute();
    } catch (const Error& error) {
      code = error.code();
      text = error.what();
    } catch (const std::bad_alloc&) {
      code = ErrorCode::kFAILED_ALLOCATION;
      text = "there is not enough memory";
    } catch (const std::exception& error) {
      code = ErrorCode::kFAILED_EXECUTION;
      text = error.what();
    } catch (...) {
      code = ErrorCode::kUNSPECIFIED_ERROR;
      text = "an exception of an unknown type was thrown";
    }
    const bool is_done = code == ErrorCode::kSUCCESS;
    if (!is_done) core_->engine->errors().report(code, text.c_str());
    end(is_done ? RunState::kDONE : RunState::kFAILED, code, std::move(text));
  }
  void drop() noexcept override { end(RunState::kCANCELLED, ErrorCode::kSUCCESS, {}); }

  bool cancel() {
    if (core_->queue.withdraw(*this)) drop();
    return state() == RunState::kCANCELLED;
  }
  RunState state() const {
    const std::lock_guard lock(mutex_);
    return state_;
  }
  bool wait(double seconds) const {
    std::unique_lock lock(mutex_);
    const auto has_ended = [this] { return has_ended_; };
    // A wait that is too long for the clock has no limit.
    constexpr double kLong = 1e9;
    if (seconds >= 0 && seconds < kLong)
      return ended_.wait_for(lock, std::chrono::duration<double>(seconds), has_ended);
    ended_.wait(lock, has_ended);
    return true;
  }
  Shape output_shape(int output) const {
    const std::lock_guard lock(mutex_);
    require(state_ == RunState::kDONE, "the run has computed no outputs (yet)");
    return output_shapes_[static_cast<size_t>(output)];
  }
  ErrorCode code() const {
    const std::lock_guard lock(mutex_);
    return code_;
  }
  /// Does not change once the run has ended.
  const char* text() const {
    const std::lock_guard lock(mutex_);
    return text_.c_str();
  }
  const Engine& engine() const { return *core_->engine; }

 private:
  void compute() {
    ContextPool::Lease lease(core_->contexts);
    Context& context = lease.context();
    for (size_t i = 0; i < shapes_.size(); ++i) {
      const int input = static_cast<int>(i);
      context.set_input_address(input, bindings_[i]);
      if (!(context.input_shape(input) == shapes_[i])) context.set_input_shape(input, shapes_[i]);
    }
    for (size_t o = 0; o + shapes_.size() < bindings_.size(); ++o)
      context.set_output_address(static_cast<int>(o), bindings_[shapes_.size() + o]);
    context.enqueue();
    context.synchronize();
    std::vector<Shape> shapes;
    for (size_t o = 0; o + shapes_.size() < bindings_.size(); ++o)
      shapes.push_back(context.output_shape(static_cast<int>(o)));
    lease.give_back();
    const std::lock_guard lock(mutex_);
    output_shapes_ = std::move(shapes);
  }
  void end(RunState state, ErrorCode code, std::string text) noexcept {
    {
      const std::lock_guard lock(mutex_);
      state_ = state;
      code_ = code;
      text_ = std::move(text);
    }
    if (listener_ != nullptr) listener_->runEnded(face_);
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    ended_.notify_all();
  }

  const std::shared_ptr<RunQueueApi::Core> core_;
  const std::vector<void*> bindings_;
  const std::vector<Shape> shapes_;
  IQueuedRun& face_;
  IRunListener* const listener_;
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  RunState state_ = RunState::kWAITING;
  bool has_ended_ = false;  ///< set after the listener was called
  std::vector<Shape> output_shapes_;
  ErrorCode code_ = ErrorCode::kSUCCESS;
  std::string text_;
};

class QueuedRunApi final : public IQueuedRun {
 public:
  ~QueuedRunApi() noexcept override {
    if (run_ == nullptr) return;
    run_->cancel();
    run_->wait(-1);
  }
  void set_run(std::shared_ptr<SubmittedRun> run) { run_ = std::move(run); }

  RunState getState() const noexcept override { return run_->state(); }
  bool wait(double seconds) const noexcept override { return run_->wait(seconds); }
  bool cancel() noexcept override { return run_->cancel(); }
  Dims getOutputShape(char const* tensorName) const noexcept override {
    return run_->engine().errors().guard(Dims{-1, {}}, [&] {
      return run_->output_shape(run_->engine().output(checked_name(tensorName))).dims();
    });
  }
  ErrorCode getErrorCode() const noexcept override { return run_->code(); }
  char const* getErrorDesc() const noexcept override { return run_->text(); }

 private:
  std::shared_ptr<SubmittedRun> run_;
};

}  // namespace

RunQueueApi::Core::Core(const std::shared_ptr<const Engine>& e)
    : engine(e),
      contexts(e),
      shapes(*e),
      queue(e->name(), "allow more with IRunQueue::setLimits(maxThreads, maxWaiting)") {}

RunQueueApi::RunQueueApi(const std::shared_ptr<const Engine>& engine, int32_t max_threads,
                         int32_t max_waiting)
    : core_(std::make_shared<Core>(engine)) {
  core_->queue.set_limits(max_threads, max_waiting);
}

RunQueueApi::~RunQueueApi() noexcept { core_->queue.stop(); }

IQueuedRun* RunQueueApi::submit(void* const* bindings, Dims const* inputShapes,
                                IRunListener* listener, SubmitResult* result) noexcept {
  SubmitResult ignored{};
  SubmitResult& outcome = result == nullptr ? ignored : *result;
  outcome = SubmitResult::kREFUSED;
  return core_->engine->errors().guard<IQueuedRun*>(nullptr, [&]() -> IQueuedRun* {
    const Plan& plan = core_->engine->plan();
    require(bindings != nullptr || plan.inputs.size() + plan.outputs.size() == 0,
            "IRunQueue::submit: the array of addresses is null");
    std::vector<Shape> shapes;
    for (size_t i = 0; i < plan.inputs.size(); ++i) {
      if (inputShapes != nullptr) {
        shapes.emplace_back(inputShapes[i]);
        continue;
      }
      // Fixed extents are the same in every profile, so the first profile has them.
      const ProfileInput& range = plan.schedules[0].inputs[i];
      require(range.values || range.min == range.max, "IRunQueue::submit: input '",
              plan.inputs[i].name, "' goes from ", range.min, " to ", range.max,
              ": say its shape in inputShapes");
      Shape fixed = range.min;
      if (range.values) {
        fixed = {};
        for (const int32_t dim : plan.inputs[i].dims) fixed.push_back(plan.expressions[dim].value);
      }
      shapes.push_back(fixed);
    }
    const size_t count = plan.inputs.size() + plan.outputs.size();
    std::vector<void*> addresses(bindings, bindings + count);
    core_->shapes.check(shapes, {addresses.data(), plan.inputs.size()});
    auto face = std::make_unique<QueuedRunApi>();
    auto run = std::make_shared<SubmittedRun>(core_, std::move(addresses), std::move(shapes), *face,
                                              listener);
    face->set_run(run);
    try {
      core_->queue.submit(run);
    } catch (...) {
      face->set_run(nullptr);  // so that its destructor does not wait for the run
      try {
        throw;
      } catch (const QueueFullError&) {
        outcome = SubmitResult::kFULL;
        throw;
      }
    }
    outcome = SubmitResult::kSUBMITTED;
    return face.release();
  });
}

bool RunQueueApi::setLimits(int32_t maxThreads, int32_t maxWaiting) noexcept {
  return core_->engine->errors().run([&] { core_->queue.set_limits(maxThreads, maxWaiting); });
}

}  // namespace opwright

void* createRunQueue_INTERNAL(void* engine, int32_t maxThreads, int32_t maxWaiting,
                              int32_t version) noexcept {
  using namespace opwright;
  if (engine == nullptr) return nullptr;
  const auto& core = static_cast<EngineApi&>(*static_cast<ICudaEngine*>(engine)).engine();
  return core->errors().guard<void*>(nullptr, [&]() -> void* {
    require(version / 10000 == NV_TENSORRT_MAJOR, "the program was compiled for API level ",
            version / 10000, ", the library has ", NV_TENSORRT_MAJOR);
    auto queue = std::make_unique<RunQueueApi>(core, maxThreads, maxWaiting);
    return static_cast<IRunQueue*>(queue.release());
  });
}
