#include "backend/cuda/copy.h"

#include "backend/device.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright::cuda {
namespace {

class CopyKernel final : public Kernel {
 public:
  explicit CopyKernel(const KernelArgs& args)
      : device_(*args.device), layer_(args.layer), type_(args.candidate->inputs[0].dtype) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    require(inputs[0].numel() == outputs[0].numel(), "Layer '", layer_, "': cannot copy ",
            inputs[0], " to ", outputs[0], ", which has another number of elements");
    bytes_ = static_cast<size_t>(bytes_of(type_, inputs[0].numel()));
  }
  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue queue) override {
    // The compiler gives both the same memory where it can.
    if (bytes_ > 0 && outputs[0] != inputs[0]) device_.copy(outputs[0], inputs[0], bytes_, queue);
  }
  std::string description() const override { return "copy"; }

 private:
  const Device& device_;
  const std::string layer_;
  const DataType type_;
  size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_copy_kernel(const Operator&, const KernelArgs& args) {
  return std::make_unique<CopyKernel>(args);
}

}  // namespace opwright::cuda
