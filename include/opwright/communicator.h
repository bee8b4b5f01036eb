#pragma once

/// \file
/// Ranks on one host, on its CPU or a GPU for each. Beyond TensorRT.

#include "logger.h"
#include "plugin_base.h"
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
                                                          char const* address, char const* token,
                                                          int32_t version) noexcept;

namespace opwright {

/// The communicator of an execution context, for a plugin that exchanges data itself.
struct PluginCommunicator {
  int32_t rank;        ///< of this process, from 0 on
  int32_t nbRanks;     ///< how many ranks there are
  char const* name;    ///< ICommunicator::getName(); "" for an ncclComm_t of the program's own
  void* communicator;  ///< on a GPU the ncclComm_t, for calls of NCCL; on the CPU null
};

/// A buffer in each rank's GPU, which kernels on the GPUs of all ranks read and write. The bytes
/// and the counters are 0 at first. It lives as long as the communicator.
struct PluginPeerMemory {
  int64_t size;          ///< bytes of each buffer
  void* const* buffers;  ///< in the host's memory: their addresses on this rank's GPU, by rank;
                         ///< null: there is no such memory
  void* table;     ///< in the GPU's memory: the same, first this rank's, then the next one's, ...
  void* counters;  ///< in the GPU's memory: 1024 numbers of 32 bits, for kernels to count calls
  void* stop;      ///< a word of 64 bits of the host's, for kernels that wait: 1 ends them
};

/// Second base class of a plugin, or of its runtime part, that exchanges data with other ranks.
/// Builds do not run such a plugin, since they have no other ranks: the first of its combinations
/// and tactics is chosen. The CUDA graphs that contexts capture leave it out, since all ranks would
/// have to capture it in the same run.
class ICommunicatingPlugin {
 public:
  virtual bool communicates() const noexcept { return true; }

 protected:
  virtual ~ICommunicatingPlugin() noexcept = default;
};

}  // namespace opwright

/// Implementation of getCommunicator().
extern "C" OPWRIGHT_API bool getPluginCommunicator_INTERNAL(
    opwright::IPluginResourceContext const* context, opwright::PluginCommunicator* communicator,
    int32_t version) noexcept;
/// Implementation of getPeerMemory().
extern "C" OPWRIGHT_API bool getPluginPeerMemory_INTERNAL(
    opwright::IPluginResourceContext const* context, char const* name, int64_t size,
    opwright::PluginPeerMemory* memory, int32_t version) noexcept;

namespace opwright {

/// Waits until all ranks of that name have come, for at most `timeoutSeconds`. On the CPU the limit
/// also holds for each exchange of data.
/// \param name 1 to 64 characters, the same on all ranks of the same user
/// \param rank 0 to nbRanks - 1, another one in each process
/// \param nbRanks 1 to 64
/// \param deviceType where the ranks' engines run; kGPU: the calling thread's current GPU, another
/// one for each rank
/// \param address where ranks of several hosts meet: rank 0's numeric address with a port, such as
/// "10.0.0.1:29500"; null for ranks of one host
/// \param token 16 to 64 characters that only these ranks know; null without an address
/// \return a communicator that the caller deletes; null, and an error, on failure.
inline ICommunicator* createCommunicator(ILogger& logger, char const* name, int32_t rank,
                                         int32_t nbRanks, double timeoutSeconds = 60,
                                         DeviceType deviceType = DeviceType::kCPU,
                                         char const* address = nullptr,
                                         char const* token = nullptr) noexcept {
  return static_cast<ICommunicator*>(
      createCommunicator_INTERNAL(&logger, name, rank, nbRanks, timeoutSeconds, deviceType, address,
                                  token, NV_TENSORRT_VERSION));
}

/// What IExecutionContext::setCommunicator() of a plugin's context was given last. A plugin calls
/// it in enqueue(), on the thread that calls that: the result may change from run to run, and
/// NCCL's communicator is not aborted before enqueue() returns. It is a function, not a method of
/// IPluginResourceContext, whose virtual table is TensorRT's.
/// \param context what attachToContext() was given
/// \return false where the context has none, or it has ended. If enqueue() then fails, the run's
/// error says why.
inline bool getCommunicator(IPluginResourceContext const& context,
                            PluginCommunicator& communicator) noexcept {
  return getPluginCommunicator_INTERNAL(&context, &communicator, NV_TENSORRT_VERSION);
}

/// Memory in which kernels of a plugin on a GPU exchange data with those of other ranks. A plugin
/// calls it in enqueue(), before it launches the kernel on the run's stream. The kernel then runs
/// after the last one that another context gave the memory of the same name. All ranks ask for the
/// same names and sizes in the same order. The first time waits for all of them. Nothing of
/// Opwright uses the memory. It takes a multiple of 2 MB of each GPU.
/// \param context what attachToContext() was given
/// \param name 1 to 119 characters. Layers that run one after another may share a name.
/// \param size bytes of each rank's buffer, the same each time
/// \param memory has no buffers, on all ranks, on the CPU, for one rank and for more than 16, for
/// an ncclComm_t of the program's own, where a GPU cannot reach another's memory, and with
/// NCCL_P2P_DISABLE=1
/// \return false where the context has no communicator or it has ended, where ranks ask for
/// different names or sizes, where memory is short on one of them, and outside of enqueue(). If
/// enqueue() then fails, the run's error says why.
inline bool getPeerMemory(IPluginResourceContext const& context, char const* name, int64_t size,
                          PluginPeerMemory& memory) noexcept {
  return getPluginPeerMemory_INTERNAL(&context, name, size, &memory, NV_TENSORRT_VERSION);
}

}  // namespace opwright
