#pragma once

/// \file
/// Ranks on one host, on its CPU or a GPU for each. Beyond TensorRT.

#include "logger.h"
#include "types.h"
#include "version.h"

namespace opwright {

/// Processes of one host, called ranks, that exchange tensors: on the CPU through shared memory, on
/// GPUs with NCCL. Given to IExecutionContext::setCommunicator(). One thread at a time runs with
/// it. It ends when a rank's process ends; on the CPU also when a rank is missing for longer than
/// the time limit, or runs another layer than the others. Runs on all ranks then fail, with the
/// reason.
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
                                                          opwright::DeviceType deviceType,
                                                          int32_t version) noexcept;

namespace opwright {

/// Waits until all ranks of that name have come, for at most `timeoutSeconds`. On the CPU the limit
/// also holds for each exchange of data.
/// \param name 1 to 64 characters, the same on all ranks of the same user
/// \param rank 0 to nbRanks - 1, another one in each process
/// \param nbRanks 1 to 64
/// \param deviceType where the ranks' engines run; kGPU: the calling thread's current GPU, another
/// one for each rank
/// \return a communicator that the caller deletes; null, and an error, on failure.
inline ICommunicator* createCommunicator(ILogger& logger, char const* name, int32_t rank,
                                         int32_t nbRanks, double timeoutSeconds = 60,
                                         DeviceType deviceType = DeviceType::kCPU) noexcept {
  return static_cast<ICommunicator*>(createCommunicator_INTERNAL(
      &logger, name, rank, nbRanks, timeoutSeconds, deviceType, NV_TENSORRT_VERSION));
}

}  // namespace opwright
