#pragma once

/// \file
/// Beyond TensorRT: runs that an engine performs on its own threads, many at once, while the caller
/// continues. Methods do not throw.

#include "runtime.h"

namespace opwright {

class IQueuedRun;

/// The state of a run.
enum class RunState : int32_t {
  kWAITING = 0,    ///< No thread has started it.
  kRUNNING = 1,    ///< A thread runs it.
  kDONE = 2,       ///< The outputs are complete.
  kFAILED = 3,     ///< IQueuedRun::getErrorDesc() has the reason; outputs are not valid.
  kCANCELLED = 4,  ///< It was cancelled, or its queue deleted, before a thread started it.
};

/// Result of IRunQueue::submit().
enum class SubmitResult : int32_t {
  kSUBMITTED = 0,
  kFULL = 1,     ///< As many runs wait as the queue may hold.
  kREFUSED = 2,  ///< An argument is wrong.
};

namespace impl {
template <>
struct EnumMaxImpl<RunState> {
  static constexpr int32_t kVALUE = 5;
};
template <>
struct EnumMaxImpl<SubmitResult> {
  static constexpr int32_t kVALUE = 3;
};
}  // namespace impl

namespace v_1_0 {

/// Receives the end of runs.
class IRunListener : public IVersionedInterface {
 public:
  ~IRunListener() override = default;
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IRunListener", 1, 0}; }

  /// Called once for each run, by the thread that ran it, cancelled it or deletes the queue.
  /// IQueuedRun::wait() returns after it. It must not delete the run or the queue.
  virtual void runEnded(IQueuedRun& run) noexcept = 0;
};

}  // namespace v_1_0
using IRunListener = v_1_0::IRunListener;

/// A submitted run. Safe for use by several threads at once. Delete it at any time: a run that has
/// not started is cancelled then; a run that has started is waited for.
class IQueuedRun : public INoCopy {
 public:
  ~IQueuedRun() noexcept override = default;

  virtual RunState getState() const noexcept = 0;
  /// Waits until the run has ended in any state.
  /// \param seconds the longest wait; negative: without limit.
  /// \return whether the run has ended.
  virtual bool wait(double seconds) const noexcept = 0;
  /// Cancels a run that no thread has started, which frees its place in the queue at once.
  /// \return whether the run is cancelled.
  virtual bool cancel() noexcept = 0;
  /// The computed shape of an output. nbDims is -1 before the run is kDONE, and if there is no such
  /// output.
  virtual Dims getOutputShape(char const* tensorName) const noexcept = 0;
  /// The error of a run that is kFAILED; kSUCCESS and "" otherwise.
  virtual ErrorCode getErrorCode() const noexcept = 0;
  virtual char const* getErrorDesc() const noexcept = 0;
};

/// A bounded queue of runs, and the threads that run them in the order of submission. Threads start
/// when they are first needed. Contexts are reused from run to run; there are at most as many
/// contexts as threads. Created by createRunQueue(). The caller deletes the queue before its
/// engine. Deleting the queue cancels waiting runs and returns when no run is active any more. Safe
/// for use by several threads at once. A child after fork() has an empty queue with threads of its
/// own.
class IRunQueue : public INoCopy {
 public:
  ~IRunQueue() noexcept override = default;

  /// Submits a run in the engine's first profile and returns at once. Checks the shapes, and the
  /// values of shape inputs, first. On a GPU the run is on the default stream, and the thread waits
  /// for it.
  /// \param bindings an address for each input and output, in the order of
  ///     ICudaEngine::getIOTensorName(); the array is copied. The memory must stay, and inputs must
  ///     not change, until the run has ended. An output whose extents depend on data needs memory
  ///     for the largest ones.
  /// \param inputShapes a shape for each input, in that order; null if the engine fixes all shapes.
  /// \param listener receives the end of the run; null for none. It must live until then.
  /// \param result receives the result; may be null.
  /// \return null unless the result is kSUBMITTED; the error recorder receives the reason.
  virtual IQueuedRun* submit(void* const* bindings, Dims const* inputShapes, IRunListener* listener,
                             SubmitResult* result) noexcept = 0;
  IQueuedRun* submit(void* const* bindings, Dims const* inputShapes) noexcept {
    return submit(bindings, inputShapes, nullptr, nullptr);
  }

  /// Sets the most threads, and the most runs that wait beside those that a thread runs or is free
  /// to run. Runs that already wait stay.
  /// \param maxThreads 0: the cores that the process may use.
  /// \return false, and nothing changes, for numbers below 0 or more than 4096 threads.
  virtual bool setLimits(int32_t maxThreads, int32_t maxWaiting) noexcept = 0;
  virtual int32_t getMaxThreads() const noexcept = 0;
  virtual int32_t getMaxWaiting() const noexcept = 0;
  /// The number of runs that no thread has started.
  virtual int32_t getNbWaiting() const noexcept = 0;
};

}  // namespace opwright

/// Implementation of createRunQueue(): takes an ICudaEngine, returns an IRunQueue.
extern "C" OPWRIGHT_API void* createRunQueue_INTERNAL(void* engine, int32_t maxThreads,
                                                      int32_t maxWaiting, int32_t version) noexcept;

namespace opwright {

/// A queue of an engine's runs. The engine must outlive it.
/// \param maxThreads the most threads; 0: the cores that the process may use.
/// \param maxWaiting the most runs that wait beside those that a thread runs.
/// \return null for numbers that IRunQueue::setLimits() refuses; the engine's error recorder
///     receives the reason.
inline IRunQueue* createRunQueue(ICudaEngine& engine, int32_t maxThreads = 0,
                                 int32_t maxWaiting = 256) noexcept {
  return static_cast<IRunQueue*>(
      createRunQueue_INTERNAL(&engine, maxThreads, maxWaiting, NV_TENSORRT_VERSION));
}

}  // namespace opwright
