#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "network/kernel.h"
#include "plugin/kernel/kernel_communicator.h"

namespace opwright {

/// The kernel of a plugin whose code is called, for all plugin interfaces. `Attached` is the plugin
/// in a context and is made in place; its first argument is the communicator that it may ask for in
/// a call. Its methods domain(), on_shape_change(), enqueue(), description() and capture_obstacle()
/// are those of Kernel.
///
/// It is a template, so that a run makes only two indirect calls: the kernel's and the plugin's.
template <class Attached>
class CallbackKernel final : public Kernel {
 public:
  /// `communicates`: whether the plugin says that it exchanges data with other ranks.
  template <class... Args>
  CallbackKernel(size_t workspace_size, const KernelArgs& kernel, bool communicates, Args&&... args)
      : workspace_size_(workspace_size),
        communicator_(std::make_shared<KernelCommunicator>(kernel, communicates)),
        attached_(communicator_, kernel, std::forward<Args>(args)...),
        domain_(attached_.domain()) {}

  size_t workspace_size() const override { return workspace_size_; }
  ExecutionDomain* domain() const override { return domain_; }
  std::string capture_obstacle() const override {
    if (communicator_->is_declared())
      return "a plugin that exchanges data with other ranks, which would have to be captured on "
             "all of them in the same run";
    return attached_.capture_obstacle();
  }
  std::string description() const override { return attached_.description(); }
  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    const KernelCommunicator::Call call(*communicator_);
    attached_.on_shape_change(inputs, outputs);
  }
  void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
               Queue queue) override {
    const KernelCommunicator::Run run(*communicator_, queue);
    attached_.enqueue(inputs, outputs, workspace, queue);
  }

 private:
  const size_t workspace_size_;
  const std::shared_ptr<KernelCommunicator> communicator_;
  Attached attached_;
  ExecutionDomain* const domain_;
};

}  // namespace opwright
