#include <algorithm>
#include <string>
#include <unordered_set>

#include "base/error.h"
#include "plan/format.h"
#include "plan/plan.h"
#include "plan/shapes.h"
#include "plan/validate_parts.h"
#include "plan/validate_refit.h"

namespace opwright {
namespace {

template <class Enum>
bool is_known(Enum value) {
  return static_cast<int32_t>(value) >= 0 && static_cast<int32_t>(value) < EnumMax<Enum>();
}

/// The checks of the parts that all schedules share.
class PlanCheck {
 public:
  explicit PlanCheck(const Plan& plan) : plan_(plan) {}

  void check() const {
    require(plan_.device_type == DeviceType::kCPU || plan_.device_type == DeviceType::kGPU,
            "device type ", static_cast<int>(plan_.device_type), " is unknown");
    for (const std::string* text : {&plan_.name, &plan_.builder, &plan_.backend,
                                    &plan_.architecture, &plan_.device_identity}) {
      check_text(*text, "the plan's heading");
    }
    require(!plan_.backend.empty(), "the backend that the engine is for has no name");
    validate(plan_.expressions, static_cast<int>(plan_.symbols.size()));
    check_ports();
    check_symbols();
    for (const PluginRequirement& item : plan_.requirements) {
      for (const std::string* text :
           {&item.kind, &item.name, &item.version, &item.plugin_namespace})
        check_text(*text, "a required plugin");
    }
    for (const CodeObject& item : plan_.code) {
      check_text(item.name, "a code object");
      check_text(item.target, "a code object");
    }
    check_plugin_code();
    validate_refit(plan_);
    require(!plan_.schedules.empty(), "there is no optimization profile");
  }

 private:
  void check_plugin_code() const {
    std::vector<bool> is_listed(plan_.code.size(), false);
    for (const auto& [what, list] : {std::pair("plugin library", &plan_.plugin_libraries),
                                     std::pair("plugin source", &plan_.plugin_sources)}) {
      for (const int32_t index : *list) {
        require(index >= 0 && static_cast<size_t>(index) < plan_.code.size(), "a ", what,
                " is code object ", index, " of ", plan_.code.size());
        const CodeObject& object = plan_.code[index];
        require(!is_listed[index], what, " '", object.name, "' is listed twice");
        // Code that is marked as harmless would run without permission.
        require(object.host, what, " '", object.name, "' is not marked as code for the host");
        is_listed[index] = true;
      }
    }
  }

  void check_ports() const {
    std::unordered_set<std::string_view> names;
    const auto check_port = [&](const PlanPort& port, std::string_view what) {
      check_text(port.name, what);
      require(!port.name.empty() && names.insert(port.name).second, what, " name '", port.name,
              "' is empty or used twice");
      check_dims(plan_, port.dims, what, port.name);
      check_type(port.type, static_cast<int>(port.dims.size()), what, port.name);
      require(port.dimension_names.size() <= port.dims.size(), what, " '", port.name,
              "' has more dimension names than dimensions");
      for (const std::string& text : port.dimension_names) check_text(text, what);
    };
    for (const PlanPort& port : plan_.inputs) {
      check_port(port, "input");
      require(port.aliased_input == -1, "input '", port.name, "' is marked as aliased");
      if (!port.is_shape_input) continue;
      require(is_size_type(port.type.dtype) && port.dims.size() <= 1, "shape input '", port.name,
              "' is not an INT32 or INT64 tensor of rank 0 or 1");
      require(port.dims.empty() || constant(port.dims[0]), "shape input '", port.name,
              "' has a dynamic extent");
    }
    std::vector<bool> is_aliased(plan_.inputs.size(), false);
    for (const PlanPort& port : plan_.outputs) {
      check_port(port, "output");
      const int32_t input = port.aliased_input;
      if (input == -1) continue;
      require(input >= 0 && static_cast<size_t>(input) < plan_.inputs.size() && !is_aliased[input],
              "output '", port.name, "' is aliased to input ", input, " of ", plan_.inputs.size(),
              ", or another one is");
      require(port.type == plan_.inputs[input].type && port.dims == plan_.inputs[input].dims &&
                  !plan_.inputs[input].is_shape_input,
              "output '", port.name, "' differs from input '", plan_.inputs[input].name,
              "', to which it is aliased, in type, format or shape");
      is_aliased[input] = true;
    }
  }

  bool constant(int32_t expression) const {
    return plan_.expressions[expression].op == ExprOp::kConstant;
  }

  void check_symbols() const {
    require(plan_.size_bounds.size() == plan_.symbols.size(), plan_.symbols.size(),
            " symbols have ", plan_.size_bounds.size(), " bounds");
    std::vector<size_t> first_use(plan_.symbols.size(), plan_.expressions.size());
    for (size_t i = plan_.expressions.size(); i-- > 0;)
      if (plan_.expressions[i].op == ExprOp::kSymbol)
        first_use[static_cast<size_t>(plan_.expressions[i].value)] = i;
    size_t settled = 0;  // number of expressions that bounds of the size tensors so far depend on
    const std::vector<int32_t> inputs = symbol_inputs(plan_);
    for (size_t i = 0; i < plan_.symbols.size(); ++i) {
      const Symbol& symbol = plan_.symbols[i];
      check_text(symbol.name, "a symbol");
      check_text(symbol.tensor, "a symbol");
      const int32_t input = inputs[i];
      switch (symbol.kind) {
        case Symbol::Kind::kInputExtent:
        case Symbol::Kind::kInputValue: {
          const bool is_value = symbol.kind == Symbol::Kind::kInputValue;
          require(input >= 0 && plan_.inputs[input].is_shape_input == is_value, "symbol '",
                  symbol.name, "' refers to '", symbol.tensor, "', which is no ",
                  is_value ? "shape input" : "input with dynamic extents");
          const PlanPort& port = plan_.inputs[input];
          const int64_t count = !is_value           ? static_cast<int64_t>(port.dims.size())
                                : port.dims.empty() ? 1
                                                    : plan_.expressions[port.dims[0]].value;
          require(symbol.index >= 0 && symbol.index < count, "symbol '", symbol.name,
                  "' refers to element ", symbol.index, " of '", symbol.tensor, "', which has ",
                  count);
          break;
        }
        case Symbol::Kind::kSizeTensor: {
          const auto [opt, upper] = plan_.size_bounds[i];
          check_expression(plan_, opt, "size tensor", symbol.name);
          check_expression(plan_, upper, "size tensor", symbol.name);
          settled =
              std::max({settled, static_cast<size_t>(opt) + 1, static_cast<size_t>(upper) + 1});
          require(
              first_use[i] >= settled, "size tensor '", symbol.name,
              "' is used in an expression before its bounds, or before those of an earlier one");
          break;
        }
        default:
          fail("symbol '", symbol.name, "' has the unknown kind ", static_cast<int>(symbol.kind));
      }
    }
  }

  const Plan& plan_;
};

}  // namespace

void check_dims(const Plan& plan, std::span<const int32_t> dims, std::string_view what,
                const std::string& name) {
  require(dims.size() <= static_cast<size_t>(Dims::MAX_DIMS), what, " '", name, "' has rank ",
          dims.size(), ", the limit is ", Dims::MAX_DIMS);
  for (const int32_t dim : dims) check_expression(plan, dim, what, name);
}

void check_type(PortType type, int rank, std::string_view what, const std::string& name) {
  require(is_known(type.dtype), what, " '", name, "' has the unknown data type ",
          static_cast<int>(type.dtype));
  require(is_known(type.format), what, " '", name, "' has the unknown format ",
          static_cast<int>(type.format));
  require(is_valid(type.format, rank), what, " '", name, "' of rank ", rank,
          " cannot have the format ", opwright::name(type.format));
}

void validate(const Plan& plan) {
  PlanCheck(plan).check();
  const std::vector<bool> changes =
      changed_values(plan.refit, std::vector<bool>(plan.refit.weights.size(), true));
  for (size_t i = 0; i < plan.schedules.size(); ++i) {
    try {
      validate_schedule(plan, plan.schedules[i], changes);
    } catch (const Error& error) {
      fail("profile ", i, ": ", error.what());
    }
  }
}

}  // namespace opwright
