#pragma once

/// \file
/// What the application implements to see tensors within a network while it runs.

#include "types.h"

namespace opwright {
namespace v_1_0 {

/// Sees debug tensors, which INetworkDefinition::markDebug() marked, as soon as a run has computed
/// them. Set by IExecutionContext::setDebugListener().
class IDebugListener : public IVersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IDebugListener", 1, 0}; }

  /// Called by the thread that runs the context, in the order of the run, once for each tensor
  /// whose debug state is on.
  /// \param addr the elements, dense and row-major (TensorFormat::kLINEAR), valid during the call;
  ///     null where there are none. On the GPU they are there in the order of `stream`.
  /// \param location kHOST on the CPU, kDEVICE on the GPU.
  /// \param type the tensor's in the network, whatever the engine computes in.
  /// \param shape of this run.
  /// \param name the tensor's in the network.
  /// \param stream that of the run.
  /// \return false ends the run with an error.
  virtual bool processDebugTensor(void const* addr, TensorLocation location, DataType type,
                                  Dims const& shape, char const* name, cudaStream_t stream) = 0;

  ~IDebugListener() override = default;
};

}  // namespace v_1_0
using IDebugListener = v_1_0::IDebugListener;

}  // namespace opwright
