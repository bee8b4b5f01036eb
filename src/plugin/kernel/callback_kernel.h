#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "network/kernel.h"

namespace opwright {

/// Kernel::capture_obstacle() of plugins that exchange data with other ranks.
inline constexpr char kExchangeObstacle[] =
    "a plugin that exchanges data with other ranks, which would have to be captured on all of them "
    "in the same run";

/// The kernel of a plugin whose code is called, for all plugin interfaces. `Attached` is the plugin
/// in a context and is made in place. Its methods domain(), on_shape_change(), enqueue(),
/// description() and capture_obstacle() are those of Kernel.
///
/// It is a template, so that a run makes only two indirect calls: the kernel's and the plugin's.
template <class Attached>
class CallbackKernel final : public Kernel {
 public:
  template <class... Args>
  explicit CallbackKernel(size_t workspace_size, Args&&... args)
      : workspace_size_(workspace_size),
        attached_(std::forward<Args>(args)...),
        domain_(attached_.domain()) {}

  size_t workspace_size() const override { return workspace_size_; }
  ExecutionDomain* domain() const override { return domain_; }
  std::string capture_obstacle() const override { return attached_.capture_obstacle(); }
  std::string description() const override { return attached_.description(); }
  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    attached_.on_shape_change(inputs, outputs);
  }
  void enqueue(void const* const* inputs, void* const* outputs, void* workspace,
               Queue queue) override {
    attached_.enqueue(inputs, outputs, workspace, queue);
  }

 private:
  const size_t workspace_size_;
  Attached attached_;
  ExecutionDomain* const domain_;
};

}  // namespace opwright
