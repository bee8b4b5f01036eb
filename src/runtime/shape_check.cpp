#include "runtime/shape_check.h"

#include <algorithm>

#include "base/error.h"
#include "base/half.h"
#include "base/types.h"
#include "operators/builtin.h"
#include "operators/movement.h"
#include "operators/source.h"

namespace opwright {
namespace {

struct CheckContext final : InferContext {
  bool has_opt_sizes = false;
  Expr declare_size_tensor(int, const Expr& opt, const Expr& upper_bound) override {
    return has_opt_sizes ? opt : upper_bound;
  }
  bool is_non_negative(int) const override { return true; }
};

bool is_constant(const SymShape& shape) {
  return std::ranges::all_of(shape, [](const Expr& extent) { return extent.is_constant(); });
}

/// Throws Error if two known extents differ.
void require_same(const SymShape& expected, const SymShape& shape, size_t output) {
  bool fits = expected.size() == shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i)
    fits = !expected[i].is_constant() || !shape[i].is_constant() ||
           expected[i].constant() == shape[i].constant();
  require(fits, "output ", output, " has the shape ", str(shape),
          " in the engine, but the inputs make it ", str(expected));
}

/// Checks operators whose output has a shape or type that only the plan knows.
void check_one_to_one(const StepTensors& tensors) {
  require(tensors.inputs.size() == 1 && tensors.outputs.size() == 1 && tensors.present[0],
          "it has ", tensors.inputs.size(), " inputs and ", tensors.outputs.size(),
          " outputs in the engine; expected one of each");
}

void check_reshape(const SymShape& from, const SymShape& to) {
  if (!is_constant(from) || !is_constant(to)) return;
  const Shape before = constant_shape(from), after = constant_shape(to);
  require(before.numel() == after.numel(), "a tensor of shape ", before, " cannot be reshaped to ",
          after);
}

}  // namespace

std::vector<OutputInfo> check_tensors(const PlannedOperator& op, std::string_view layer,
                                      const Candidate& candidate, const StepTensors& tensors) {
  if (!op.can_infer()) return {};
  const std::vector<SymShape>&inputs = tensors.inputs, &outputs = tensors.outputs;
  if (op.kind() == Reshape::kKind) {
    check_one_to_one(tensors);
    check_reshape(inputs[0], outputs[0]);
    return {};
  }
  if (op.kind() == Reformat::kKind) {
    check_one_to_one(tensors);
    require_same(inputs[0], outputs[0], 0);
    return {};
  }

  // The tuner may have mixed floating types; shapes of a built-in operator do not depend on them. A
  // filling has its own type in every candidate. PlannedOperator::check() asks a plugin for its
  // types.
  const bool is_builtin = is_builtin_operator(op.kind());
  const bool is_mixed = is_builtin && op.kind() != Fill::kKind;
  std::vector<TensorInfo> infos(inputs.size());
  std::vector<const TensorInfo*> pointers(inputs.size(), nullptr);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!tensors.present[i]) continue;
    const DataType dtype = candidate.inputs[i].dtype;
    infos[i].dtype = is_mixed && is_floating(dtype) ? DataType::kFLOAT : dtype;
    infos[i].dims = inputs[i];
    if (const auto& elements = tensors.elements[i])
      infos[i].values = std::make_shared<const std::vector<Expr>>(*elements);
    pointers[i] = &infos[i];
  }
  CheckContext context;
  context.inputs = pointers;
  context.layer = layer;
  context.has_opt_sizes = tensors.has_opt_sizes;
  std::vector<OutputInfo> inferred = op.infer(context);
  require(inferred.size() == outputs.size(), "the engine gives it ", outputs.size(),
          " outputs; it has ", inferred.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    require_same(inferred[i].dims, outputs[i], i);
    const DataType expected = inferred[i].dtype, stored = candidate.outputs[i].dtype;
    require(!is_builtin || expected == stored || (is_floating(expected) && is_floating(stored)),
            "output ", i, " has the type ", name(stored), " in the engine, but the inputs make it ",
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
