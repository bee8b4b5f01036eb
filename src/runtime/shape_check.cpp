#include "runtime/shape_check.h"

#include "base/error.h"
#include "operators/movement.h"
#include "operators/source.h"

namespace opwright {
namespace {

struct ConcreteContext final : InferContext {
  Expr declare_size_tensor(int, const Expr&, const Expr& upper_bound) override {
    return upper_bound;
  }
};

void require_same(const Shape& expected, const Shape& shape, size_t output) {
  require(expected == shape, "output ", output, " has the shape ", shape,
          " in the engine, but the inputs make it ", expected);
}

}  // namespace

void check_shapes(const Operator& op, std::string_view layer, std::span<const PortType> types,
                  std::span<const Shape> inputs, std::span<const bool> present,
                  std::span<const std::optional<std::vector<int64_t>>> values,
                  std::span<const Shape> outputs) {
  if (!op.is_pure()) return;
  if (op.kind() == Reshape::kKind) {
    require(inputs[0].numel() == outputs[0].numel(), "a tensor of shape ", inputs[0],
            " cannot be reshaped to ", outputs[0]);
    return;
  }
  if (op.kind() == Reformat::kKind) return require_same(inputs[0], outputs[0], 0);

  std::vector<TensorInfo> infos(inputs.size());
  std::vector<const TensorInfo*> pointers(inputs.size(), nullptr);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!present[i]) continue;
    // Floating types may be mixed once the tuner has chosen; shapes do not depend on them. A
    // filling has its own, from which no candidate differs.
    const bool is_mixed = is_floating(types[i].dtype) && op.kind() != Fill::kKind;
    infos[i].dtype = is_mixed ? DataType::kFLOAT : types[i].dtype;
    infos[i].dims = sym_shape(inputs[i]);
    if (values[i])
      infos[i].values =
          std::make_shared<const std::vector<Expr>>(values[i]->begin(), values[i]->end());
    else if (op.is_shape_input(static_cast<int>(i)))
      return;
    pointers[i] = &infos[i];
  }
  ConcreteContext context;
  context.inputs = pointers;
  context.layer = layer;
  const std::vector<OutputInfo> inferred = op.infer(context);
  require(inferred.size() == outputs.size(), "the engine gives the layer ", outputs.size(),
          " outputs; it has ", inferred.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    require_same(constant_shape(inferred[i].dims), outputs[i], i);
}

}  // namespace opwright
