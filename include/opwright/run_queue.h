#pragma once

/// \file
/// Beyond TensorRT: runs that an engine does on threads of its own, many at once, while the caller
/// goes on. Methods do not throw.

#include "runtime.h"

namespace opwright {

class IQueuedRun;

/// How far a run has come.
enum class RunState : int32_t {
  kWAITING = 0,    ///< No thread has begun it.
  kRUNNING = 1,    ///< A thread is at it.
  kDONE = 2,       ///< The outputs are there.
  kFAILED = 3,     ///< IQueuedRun::getErrorDesc() says why; outputs are not valid.
  kCANCELLED = 4,  ///< It was cancelled, or its queue deleted, before a thread began it.
};

/// What came of IRunQueue::submit().
enum class SubmitResult : int32_t {
  kSUBMITTED = 0,
  kFULL = 1,     ///< As many runs wait as the queue may hold.
  kREFUSED = 2,  ///< Something is wrong with the arguments.
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

/// Hears of the end of runs.
class IRunListener : public IVersionedInterface {
 public:
  ~IRunListener() override = default;
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IRunListener", 1, 0}; }

  /// Called once for each run: by the thread that ran it, or by the one that cancelled it or
  /// deletes the queue. IQueuedRun::wait() returns after it. It must not delete the run or the
  /// queue.
  virtual void runEnded(IQueuedRun& run) noexcept = 0;
};

}  // namespace v_1_0
using IRunListener = v_1_0::IRunListener;

/// A run that was submitted. Safe for use by several threads at once. Delete it at any time: what
/// has not begun is cancelled then, what runs is waited for.
class IQueuedRun : public INoCopy {
 public:
  ~IQueuedRun() noexcept override = default;

  virtual RunState getState() const noexcept = 0;
  /// Waits until the run has ended, whichever way.
  /// \param seconds to wait at most; negative: without limit.
  /// \return whether it has.
  virtual bool wait(double seconds) const noexcept = 0;
  /// Cancels a run that no thread has begun, which frees its place in the queue at once.
  /// \return whether it is cancelled.
  virtual bool cancel() noexcept = 0;
  /// The shape of an output as it was computed; nbDims is -1 before the run is kDONE, and where
  /// there is no such output.
  virtual Dims getOutputShape(char const* tensorName) const noexcept = 0;
  /// Of a run that is kFAILED: what went wrong; kSUCCESS and "" otherwise.
  virtual ErrorCode getErrorCode() const noexcept = 0;
  virtual char const* getErrorDesc() const noexcept = 0;
};

/// A bounded queue of runs, and the threads that do them in the order in which they came. Threads
/// start when they are first needed. Contexts are reused from run to run; there are at most as many
/// as threads. Made by ICudaEngine::createRunQueue(), deleted by the caller before its engine,
/// which cancels what waits and returns when nothing runs any more. Safe for use by several threads
/// at once. A child after fork() has an empty queue with threads of its own.
class IRunQueue : public INoCopy {
 public:
  ~IRunQueue() noexcept override = default;

  /// Submits a run in the engine's first profile and returns at once. The shapes, and the values of
  /// shape inputs, are checked before. On a GPU the run is on the default stream, and the thread
  /// waits for it.
  /// \param bindings an address for each input and output, in the order of
  ///     ICudaEngine::getIOTensorName(); the array is copied. The memory stays, and inputs are left
  ///     alone, until the run has ended. An output whose extents depend on data has memory for the
  ///     largest ones.
  /// \param inputShapes a shape for each input, in that order; null where the engine fixes all.
  /// \param listener hears of the end; null for none. It must stay until then.
  /// \param result what came of it; may be null.
  /// \return null unless it is kSUBMITTED; the error recorder hears the reason.
  virtual IQueuedRun* submit(void* const* bindings, Dims const* inputShapes, IRunListener* listener,
                             SubmitResult* result) noexcept = 0;
  IQueuedRun* submit(void* const* bindings, Dims const* inputShapes) noexcept {
    return submit(bindings, inputShapes, nullptr, nullptr);
  }

  /// Sets how many threads there are at most, and how many runs wait at most beside those that a
  /// thread does or is free to do. Runs that wait already stay.
  /// \param maxThreads 0: the cores that the process may use.
  /// \return false, and nothing changes, for numbers below 0 or more than 4096 threads.
  virtual bool setLimits(int32_t maxThreads, int32_t maxWaiting) noexcept = 0;
  virtual int32_t getMaxThreads() const noexcept = 0;
  virtual int32_t getMaxWaiting() const noexcept = 0;
  /// The runs that no thread has begun.
  virtual int32_t getNbWaiting() const noexcept = 0;
};

}  // namespace opwright

/// Behind createRunQueue(): takes an ICudaEngine, returns an IRunQueue.
extern "C" OPWRIGHT_API void* createRunQueue_INTERNAL(void* engine, int32_t maxThreads,
                                                      int32_t maxWaiting, int32_t version) noexcept;

namespace opwright {

/// A queue of an engine's runs, which the engine outlives.
/// \param maxThreads how many threads at most; 0: the cores that the process may use.
/// \param maxWaiting how many runs wait at most beside those that a thread does.
/// \return null for numbers that IRunQueue::setLimits() refuses; the engine's error recorder hears
///     the reason.
inline IRunQueue* createRunQueue(ICudaEngine& engine, int32_t maxThreads = 0,
                                 int32_t maxWaiting = 256) noexcept {
  return static_cast<IRunQueue*>(
      createRunQueue_INTERNAL(&engine, maxThreads, maxWaiting, NV_TENSORRT_VERSION));
}

}  // namespace opwright
