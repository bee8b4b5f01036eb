#include "function_inputs.h"

#include "base/error.h"
#include "base/half.h"
#include "base/types.h"
#include "tensor_desc.h"

namespace opwright::python {
namespace {

bool is_shape_input(const FunctionPlugin& definition, size_t input) {
  const FunctionParameter* parameter = parameter_of_input(definition.parameters(), input);
  return parameter != nullptr && parameter->kind == ParameterKind::kShapeInput;
}

/// Throws Error unless shapes may depend on the input's values.
void check_shape_input(const FunctionPlugin& definition, std::string_view layer, size_t i,
                       const TensorInfo& info) {
  const auto reject = [&](const auto&... parts) {
    fail("layer '", layer, "': plugin '", id_of(definition), "': input '",
         parameter_of_input(definition.parameters(), i)->name, "' is a shape input ", parts...);
  };
  if (info.dtype != DataType::kINT32 && info.dtype != DataType::kINT64)
    reject("of type ", name(info.dtype), "; it must be INT32 or INT64");
  if (info.dims.size() > 1)
    reject("of rank ", info.dims.size(), "; it must be a scalar or a vector");
  if (info.values != nullptr) return;
  if (!is_constant(info.dims) || numel(info.dims).constant() > TensorInfo::kMaxValues)
    reject("of shape ", info.dims, "; it must have a constant extent of at most ",
           TensorInfo::kMaxValues);
  reject(
      "whose values depend on data, so that no shape can follow from them; they must come from a "
      "constant, from shapes, from a size tensor or from an input of the network (whose values a "
      "profile bounds with set_shape_input)");
}

/// The elements of a shape input's port: constants, or symbols from `first` on.
std::vector<Expr> elements_of(const PortDesc& port, int first) {
  std::vector<int64_t> constants(static_cast<size_t>(port.opt.numel()));
  if (!port.constant.empty())
    convert(port.constant.data(), port.type.dtype, constants.data(), DataType::kINT64,
            port.opt.numel());
  std::vector<Expr> elements;
  for (const int64_t constant : constants) {
    const int symbol = first + static_cast<int>(elements.size());
    elements.push_back(port.constant.empty() ? Expr::symbol(symbol) : Expr(constant));
  }
  return elements;
}

}  // namespace

DescribedInputs describe_inputs(const FunctionPlugin& definition, const InferContext& context) {
  DescribedInputs described;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    const TensorInfo* info = context.inputs[i];
    if (info == nullptr) {
      described.objects.push_back(nb::none());
      continue;
    }
    TensorDesc desc = describe_input(info->dtype, info->dims, static_cast<int>(i));
    if (is_shape_input(definition, i)) {
      check_shape_input(definition, context.layer, i, *info);
      described.objects.push_back(nb::cast(describe_shape_input(std::move(desc), *info->values)));
    } else {
      described.objects.push_back(nb::cast(std::move(desc)));
    }
  }
  return described;
}

DescribedInputs describe_inputs(const FunctionPlugin& definition,
                                std::span<const PortDesc> inputs) {
  DescribedInputs described;
  std::vector<TensorDesc> descs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const PortDesc& port = inputs[i];
    SymShape extents;
    for (int axis = 0; port.present && axis < port.opt.rank(); ++axis) {
      const int symbol = static_cast<int>(described.opt.size());
      described.opt.push_back(port.opt[axis]);
      extents.push_back(port.min[axis] == port.max[axis] ? Expr(port.opt[axis])
                                                         : Expr::symbol(symbol));
    }
    descs.push_back(describe_port(port, static_cast<int>(i), extents));
  }
  int symbol = static_cast<int>(described.opt.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].present) {
      described.objects.push_back(nb::none());
    } else if (is_shape_input(definition, i)) {
      const std::vector<Expr> elements = elements_of(inputs[i], symbol);
      if (inputs[i].constant.empty()) {
        symbol += static_cast<int>(elements.size());
        described.shape_inputs.push_back(static_cast<int>(i));
      }
      described.objects.push_back(nb::cast(describe_shape_input(std::move(descs[i]), elements)));
    } else {
      described.objects.push_back(nb::cast(std::move(descs[i])));
    }
  }
  return described;
}

}  // namespace opwright::python
