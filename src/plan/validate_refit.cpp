#include "plan/validate_refit.h"

#include <string_view>
#include <unordered_set>

#include "base/error.h"
#include "opwright/refitter.h"
#include "plan/validate_parts.h"

namespace opwright {
namespace {

/// Checks a value and returns its size in bytes.
uint64_t check_value(DataType dtype, const Shape& shape, std::string_view what,
                     const std::string& name) {
  require(static_cast<int32_t>(dtype) >= 0 && static_cast<int32_t>(dtype) < EnumMax<DataType>(),
          what, " '", name, "' has the unknown data type ", static_cast<int>(dtype));
  for (const int64_t extent : shape)
    require(extent >= 0, what, " '", name, "' has the shape ", shape);
  return static_cast<uint64_t>(bytes_of(dtype, shape.numel()));
}

void check_weights(const RefitPlan& refit) {
  std::unordered_set<std::string_view> names;
  for (const RefitWeight& weight : refit.weights) {
    check_text(weight.name, "refittable weights");
    require(!weight.name.empty() && names.insert(weight.name).second,
            "the name of refittable weights '", weight.name, "' is empty or used twice");
    const uint64_t bytes =
        check_value(weight.dtype, weight.shape, "refittable weights", weight.name);
    require(weight.data.size() == 0 || weight.data.size() == bytes, "refittable weights '",
            weight.name, "' have ", weight.data.size(), " bytes, their shape and type take ",
            bytes);
    for (const WeightUse& use : weight.uses) {
      check_text(use.layer, "refittable weights");
      require(use.role >= 0 && use.role < EnumMax<WeightsRole>(), "refittable weights '",
              weight.name, "' have the unknown role ", use.role);
    }
  }
}

}  // namespace

void validate_refit(const Plan& plan) {
  const RefitPlan& refit = plan.refit;
  require(!refit.weights.empty() || (refit.values.empty() && refit.operations.empty()),
          "there are values, but no refittable weights that they come from");
  check_weights(refit);
  const int32_t count = refit.num_values();
  std::vector<bool> is_known(static_cast<size_t>(count)), is_result(is_known.size());
  for (const RefitOperation& operation : refit.operations) {
    for (const int32_t output : operation.outputs) {
      require(output >= 0 && output < count && !refit.is_weight(output) && !is_result[output],
              "operation '", operation.name, "' gives value ", output, " of ", count,
              ", which is not there, a weight or given before");
      is_result[output] = true;
    }
  }
  for (int32_t value = 0; value < count; ++value) {
    is_known[value] = !is_result[value];
    if (refit.is_weight(value)) continue;
    const uint64_t bytes = check_value(refit.dtype(value), refit.shape(value), "value", str(value));
    require(refit.data(value).size() == (is_result[value] ? 0 : bytes), "value ", value, " has ",
            refit.data(value).size(), " bytes; expected ", is_result[value] ? 0 : bytes);
  }
  for (const RefitOperation& operation : refit.operations) {
    check_text(operation.name, "an operation");
    check_text(operation.kind, "an operation");
    validate(operation.attributes);
    for (const Attribute& attribute : operation.attributes)
      check_text(attribute.name, "an attribute");
    for (const int32_t input : operation.inputs)
      require(input == -1 || (input >= 0 && input < count && is_known[input]), "operation '",
              operation.name, "' reads value ", input, " of ", count,
              ", which is not there or given later");
    for (const int32_t output : operation.outputs) is_known[output] = true;
  }
}

void validate_source(const RefitPlan& refit, const PlanTensor& tensor, const Shape& shape) {
  if (tensor.source == -1) return;
  require(tensor.source >= 0 && tensor.source < refit.num_values(), "weight '", tensor.name,
          "' is made of value ", tensor.source, " of ", refit.num_values());
  require(refit.shape(tensor.source).numel() == shape.numel(), "weight '", tensor.name,
          "' has the shape ", shape, ", the value that it is made of ", refit.shape(tensor.source));
}

}  // namespace opwright
