#include "runtime/shape_check.h"

#include "base/error.h"
#include "base/half.h"
#include "base/types.h"
#include "operators/movement.h"
#include "operators/source.h"

namespace opwright {
namespace {

struct ConcreteContext final : InferContext {
  bool has_opt_sizes = false;
  Expr declare_size_tensor(int, const Expr& opt, const Expr& upper_bound) override {
    return has_opt_sizes ? opt : upper_bound;
  }
};

void require_same(const Shape& expected, const Shape& shape, size_t output) {
  require(expected == shape, "output ", output, " has the shape ", shape,
          " in the engine, but the inputs make it ", expected);
}

/// Of operators whose output has a shape or a type of its own, which the plan alone knows.
void check_one_to_one(const StepTensors& tensors) {
  require(tensors.inputs.size() == 1 && tensors.outputs.size() == 1 && tensors.present[0],
          "it has ", tensors.inputs.size(), " inputs and ", tensors.outputs.size(),
          " outputs in the engine; expected one of each");
}

}  // namespace

std::vector<OutputInfo> check_tensors(const Operator& op, std::string_view layer,
                                      const Candidate& candidate, const StepTensors& tensors) {
  if (!op.can_infer()) return {};
  const std::span<const Shape> inputs = tensors.inputs, outputs = tensors.outputs;
  if (op.kind() == Reshape::kKind) {
    check_one_to_one(tensors);
    require(inputs[0].numel() == outputs[0].numel(), "a tensor of shape ", inputs[0],
            " cannot be reshaped to ", outputs[0]);
    return {};
  }
  if (op.kind() == Reformat::kKind) {
    check_one_to_one(tensors);
    require_same(inputs[0], outputs[0], 0);
    return {};
  }

  std::vector<TensorInfo> infos(inputs.size());
  std::vector<const TensorInfo*> pointers(inputs.size(), nullptr);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!tensors.present[i]) continue;
    // Floating types may be mixed once the tuner has chosen; shapes do not depend on them. A
    // filling has its own, from which no candidate differs.
    const DataType dtype = candidate.inputs[i].dtype;
    infos[i].dtype = is_floating(dtype) && op.kind() != Fill::kKind ? DataType::kFLOAT : dtype;
    infos[i].dims = sym_shape(inputs[i]);
    if (const auto& elements = tensors.elements[i])
      infos[i].values =
          std::make_shared<const std::vector<Expr>>(elements->begin(), elements->end());
    pointers[i] = &infos[i];
  }
  ConcreteContext context;
  context.inputs = pointers;
  context.layer = layer;
  context.has_opt_sizes = tensors.has_opt_sizes;
  std::vector<OutputInfo> inferred = op.infer(context);
  require(inferred.size() == outputs.size(), "the engine gives it ", outputs.size(),
          " outputs; it has ", inferred.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    require_same(constant_shape(inferred[i].dims), outputs[i], i);
    const DataType expected = inferred[i].dtype, stored = candidate.outputs[i].dtype;
    require(expected == stored || (is_floating(expected) && is_floating(stored)), "output ", i,
            " has the type ", name(stored), " in the engine, but the inputs make it ",
            name(expected));
  }
  return inferred;
}

std::vector<int64_t> integers(const PlanTensor& weight) {
  const DataType type = weight.type.dtype;
  require(type == DataType::kINT32 || type == DataType::kINT64, "tensor '", weight.name,
          "' decides shapes, so it must be INT32 or INT64, not ", name(type));
  const int64_t count = static_cast<int64_t>(weight.data.size()) / bytes_of(type, 1);
  require(count > 0 && count <= TensorInfo::kMaxValues, "tensor '", weight.name,
          "' decides shapes, but has ", count, " elements; expected 1 to ", TensorInfo::kMaxValues);
  std::vector<int64_t> elements(static_cast<size_t>(count));
  convert(weight.data.data(), type, elements.data(), DataType::kINT64, count);
  return elements;
}

}  // namespace opwright
