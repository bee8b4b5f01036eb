#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "deferred/deferred_backend.h"
#include "operators/movement.h"
#include "operators/pointwise.h"
#include "operators/reduce.h"

namespace opwright {
namespace {

/// Notes the shapes, and gives to the device what compute() returns.
class DeferredKernel : public Kernel {
 public:
  explicit DeferredKernel(const Device& device)
      : device_(static_cast<const DeferredDevice&>(device)) {}
  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    input_ = inputs[0];
    output_ = outputs[0];
  }
  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    device_.give(work(inputs, static_cast<float*>(outputs[0])));
  }

 protected:
  virtual std::function<void()> work(void const* const* inputs, float* out) const = 0;
  static const float* floats(const void* input) { return static_cast<const float*>(input); }
  Shape input_, output_;

 private:
  const DeferredDevice& device_;
};

class Copy final : public DeferredKernel {
 public:
  using DeferredKernel::DeferredKernel;
  std::function<void()> work(void const* const* inputs, float* out) const override {
    return [in = inputs[0], out, bytes = static_cast<size_t>(output_.numel()) * sizeof(float)] {
      std::memmove(out, in, bytes);
    };
  }
};

class Sum final : public DeferredKernel {
 public:
  using DeferredKernel::DeferredKernel;
  std::function<void()> work(void const* const* inputs, float* out) const override {
    return [a = floats(inputs[0]), b = floats(inputs[1]), out, count = output_.numel()] {
      std::transform(a, a + count, b, out, std::plus<>());
    };
  }
};

/// The sum of each row, which is what the last axis has.
class SumRows final : public DeferredKernel {
 public:
  using DeferredKernel::DeferredKernel;
  std::function<void()> work(void const* const* inputs, float* out) const override {
    return
        [in = floats(inputs[0]), out, rows = output_.numel(), columns = input_[input_.rank() - 1]] {
          for (int64_t row = 0; row < rows; ++row)
            out[row] = std::accumulate(in + row * columns, in + (row + 1) * columns, 0.0F);
        };
  }
};

bool is_sum(const Pointwise& op, const KernelArgs& args) {
  const std::vector<PointwiseInstruction> program = decode(op.params());
  return args.inputs.size() == 2 && program.size() == 3 &&
         program[2].op == opcode(ElementWiseOperation::kSUM) &&
         args.inputs[0].max == args.outputs[0].max && args.inputs[1].max == args.outputs[0].max;
}

}  // namespace

std::unique_ptr<Kernel> make_deferred_kernel(const Operator& op, const KernelArgs& args) {
  const auto is_float = [](const PortDesc& port) {
    return port.present && port.type == PortType{DataType::kFLOAT, TensorFormat::kLINEAR};
  };
  if (!std::all_of(args.outputs.begin(), args.outputs.end(), is_float)) return nullptr;
  if (dynamic_cast<const Reshape*>(&op) != nullptr && is_float(args.inputs[0]))
    return std::make_unique<Copy>(*args.device);
  if (!std::all_of(args.inputs.begin(), args.inputs.end(), is_float)) return nullptr;
  if (const auto* pointwise = dynamic_cast<const Pointwise*>(&op))
    if (is_sum(*pointwise, args)) return std::make_unique<Sum>(*args.device);
  if (const auto* reduce = dynamic_cast<const Reduce*>(&op))
    if (reduce->params().op == ReduceOperation::kSUM &&
        reduce->params().axes == int64_t{1} << (args.inputs[0].max.rank() - 1))
      return std::make_unique<SumRows>(*args.device);
  return nullptr;
}

}  // namespace opwright
