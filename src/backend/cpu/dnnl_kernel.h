#pragma once

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "backend/cpu/dnnl_program.h"
#include "base/error.h"
#include "network/operator.h"

namespace opwright {

/// A kernel that runs one DnnlProgram for each set of shapes. It keeps the programs of recent
/// shapes, so alternating between a few shapes prepares nothing anew.
class DnnlKernel : public Kernel {
 public:
  ~DnnlKernel() override;
  size_t workspace_size() const final { return planned_workspace_; }
  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) final;
  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) final;
  std::string description() const final { return description_; }

  /// Builds the programs for the profile's opt and max shapes. Called once after construction, see
  /// make_dnnl_kernel().
  void prepare(const KernelArgs& args);

 protected:
  explicit DnnlKernel(const KernelArgs& args);
  /// Composes the program for shapes with at least one output element.
  virtual void build(DnnlProgram& program, std::span<const Shape> inputs,
                     std::span<const Shape> outputs) = 0;

  PortType input_type(size_t index) const { return candidate_.inputs[index]; }
  PortType output_type(size_t index) const { return candidate_.outputs[index]; }
  const Candidate& candidate() const { return candidate_; }
  const std::string& layer() const { return layer_; }

 private:
  struct Entry {
    std::vector<Shape> shapes;
    std::unique_ptr<DnnlProgram> program;  ///< null when there is nothing to compute
  };
  DnnlProgram* find_or_build(std::span<const Shape> inputs, std::span<const Shape> outputs);

  std::string layer_;
  Candidate candidate_;
  std::vector<std::unique_ptr<Entry>> recent_;  ///< latest first
  DnnlProgram* current_ = nullptr;
  size_t planned_workspace_ = 0;
  void* own_workspace_ = nullptr;  ///< for shapes that need more than the planned workspace
  size_t own_workspace_size_ = 0;
  std::string description_;
};

/// Returns the result of `body`. Exceptions of oneDNN become Errors.
template <class Body>
auto with_dnnl_errors(std::string_view layer, Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    fail_with(ErrorCode::kFAILED_ALLOCATION, "Layer '", layer, "': there is not enough memory.");
  } catch (const dnnl::error& error) {
    fail_with(error.status == dnnl_out_of_memory ? ErrorCode::kFAILED_ALLOCATION
                                                 : ErrorCode::kUNSUPPORTED_STATE,
              "Layer '", layer, "': oneDNN has no kernel for these shapes (", error.what(), ").");
  }
}

template <class K, class Op>
std::unique_ptr<Kernel> make_dnnl_kernel(const Operator& op, const KernelArgs& args) {
  auto kernel = std::make_unique<K>(static_cast<const Op&>(op).params(), args);
  kernel->prepare(args);
  return kernel;
}

/// The extents of all ports at the profile's opt shape.
std::vector<Shape> opt_shapes(std::span<const PortDesc> ports);

}  // namespace opwright
