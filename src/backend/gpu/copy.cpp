#include "backend/gpu/copy.h"

#include "backend/candidates.h"
#include "backend/device.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/bit_cast.h"
#include "operators/host_run.h"
#include "operators/movement.h"

namespace opwright::gpu {
namespace {

class CopyKernel final : public Kernel {
 public:
  explicit CopyKernel(const KernelArgs& args)
      : device_(*args.device),
        layer_(args.layer),
        type_(args.candidate->inputs[0].dtype),
        to_(args.candidate->outputs[0].dtype) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    const int64_t bytes = bytes_of(type_, inputs[0].numel());
    // A change of type keeps the bits; a change of format keeps the elements.
    const bool fits = bits(type_) == bits(to_) ? inputs[0].numel() == outputs[0].numel()
                                               : bytes == bytes_of(to_, outputs[0].numel());
    require(fits, "Layer '", layer_, "': cannot copy ", inputs[0], " to ", outputs[0],
            ", which has another number of elements");
    bytes_ = static_cast<size_t>(bytes);
  }
  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue queue) override {
    // Where it can, the compiler gives input and output the same memory.
    if (bytes_ > 0 && outputs[0] != inputs[0]) device_.copy(outputs[0], inputs[0], bytes_, queue);
  }
  std::string description() const override { return "copy"; }

 private:
  const Device& device_;
  const std::string layer_;
  const DataType type_, to_;
  size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_copy_kernel(const Operator&, const KernelArgs& args) {
  return std::make_unique<CopyKernel>(args);
}

namespace {

void check(const Operator& op, const KernelArgs& args, bool keeps_type) {
  const auto reject = [&](const auto&... parts) {
    fail("Layer '", args.layer, "': the ", op.kind(), " is stored as a copy on the GPU, but ",
         parts..., "; the file was not written by Opwright as it is");
  };
  const Candidate& candidate = *args.candidate;
  if (args.inputs.empty() || args.outputs.size() != 1 ||
      candidate.inputs.size() != args.inputs.size() || candidate.outputs.size() != 1 ||
      !args.inputs[0].present || !args.outputs[0].present)
    reject("it has ", args.inputs.size(), " inputs and ", args.outputs.size(),
           " outputs, and a copy needs its first input and has one output");
  const PortType from = candidate.inputs[0], to = candidate.outputs[0];
  const bool are_linear =
      from.format == TensorFormat::kLINEAR && to.format == TensorFormat::kLINEAR;
  const bool fits =
      are_linear && (keeps_type ? from == to : are_bit_castable(from.dtype, to.dtype));
  // The compiler also makes a reshape where two formats of a tensor are the same bytes, and of a
  // transposition that moves the channels to their place in the output's format.
  const PortDesc &x = args.inputs[0], &y = args.outputs[0];
  const bool are_same_bytes =
      keeps_type && ((op.kind() == Reshape::kKind && are_dense(from, to)) ||
                     (has_shape_of(x, y) && same_bytes(x.min, x.max, from, to)));
  if (!fits && !are_same_bytes)
    reject("it is from ", str(from), " to ", str(to), ", and a copy keeps the ",
           keeps_type ? "type" : "size of elements", ", in LINEAR");
  if (candidate.tactic != 0) reject("it has the tactic ", candidate.tactic, " and a copy has none");
  if (!args.packed.empty()) reject("it has weights that were rearranged for another kernel");
}

}  // namespace

void check_copy(const Operator& op, const KernelArgs& args) { check(op, args, true); }
void check_bit_copy(const Operator& op, const KernelArgs& args) { check(op, args, false); }

}  // namespace opwright::gpu
