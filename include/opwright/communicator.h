#pragma once

/// \file
/// Ranks on one host whose engines run on the CPU. Beyond TensorRT.

#include "logger.h"
#include "types.h"
#include "version.h"

namespace opwright {

/// Processes of one host, called ranks, that exchange tensors through shared memory. Given to
/// IExecutionContext::setCommunicator() of engines that run on the CPU. One thread at a time runs
/// with it. It ends when a rank is missing for longer than the time limit, ends, or runs another
/// layer than the others: runs on all ranks then fail, with the reason.
class ICommunicator : public INoCopy {
 public:
  ~ICommunicator() noexcept override = default;
  virtual char const* getName() const noexcept = 0;
  virtual int32_t getRank() const noexcept = 0;
  virtual int32_t getNbRanks() const noexcept = 0;
};

}  // namespace opwright

/// Implementation of createCommunicator(); null on failure.
extern "C" OPWRIGHT_API void* createCommunicator_INTERNAL(void* logger, char const* name,
                                                          int32_t rank, int32_t nbRanks,
                                                          double timeoutSeconds,
                                                          int32_t version) noexcept;

namespace opwright {

/// Waits until all ranks of that name have come, for at most `timeoutSeconds`. The limit also holds
/// for each exchange of data.
/// \param name 1 to 64 characters, the same on all ranks of the same user
/// \param rank 0 to nbRanks - 1, another one in each process
/// \param nbRanks 1 to 64
/// \return a communicator that the caller deletes; null, and an error, on failure.
inline ICommunicator* createCommunicator(ILogger& logger, char const* name, int32_t rank,
                                         int32_t nbRanks, double timeoutSeconds = 60) noexcept {
  return static_cast<ICommunicator*>(createCommunicator_INTERNAL(
      &logger, name, rank, nbRanks, timeoutSeconds, NV_TENSORRT_VERSION));
}

}  // namespace opwright
