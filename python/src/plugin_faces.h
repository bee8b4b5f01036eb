#pragma once

// Bases of the C++ faces of both families of IPluginV3, for parts that Python implements.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "dims_exprs.h"
#include "opwright/communicator.h"
#include "plugin_callbacks.h"

namespace opwright::python {

/// A method's result as an int of 32 bits. `expected` as for integer().
inline int32_t int32(nb::handle value, const char* expected) {
  const int64_t number = integer(value, expected);
  require(std::in_range<int32_t>(number), "expected ", expected, ", a 32-bit integer; ", number,
          " came");
  return static_cast<int32_t>(number);
}
/// The attribute num_outputs. Throws Error if the plugin does not set it.
inline int32_t num_outputs_of(nb::handle plugin) {
  const nb::object value = optional_attribute(plugin, "num_outputs");
  const int32_t count = value.is_valid() ? int32(value, "the number of outputs") : -1;
  require(count != -1, "plugin class ", class_name(plugin),
          " must set num_outputs, the number of its outputs");
  return count;
}

/// The build part, as IPluginV3OneBuildV2 or an interface of the Quick family.
template <class Interface>
class BuildFace : public Interface {
 public:
  explicit BuildFace(nb::object object) : object_(std::move(object)) {}
  APILanguage getAPILanguage() const noexcept final { return APILanguage::kPYTHON; }

  int32_t configurePlugin(DynamicPluginTensorDesc const* in, int32_t num_inputs,
                          DynamicPluginTensorDesc const* out, int32_t num_outputs) noexcept final {
    return run("configure_plugin", [&] {
      self().attr("configure_plugin")(list_of(in, num_inputs), list_of(out, num_outputs));
    });
  }

  int32_t getOutputShapes(DimsExprs const* inputs, int32_t num_inputs,
                          DimsExprs const* shape_inputs, int32_t num_shape_inputs,
                          DimsExprs* outputs, int32_t num_outputs,
                          IExprBuilder& builder) noexcept final {
    return run("get_output_shapes", [&] {
      const ExprScope scope = scope_of(builder);
      const auto dims =
          sequence(self().attr("get_output_shapes")(to_list(inputs, num_inputs, scope),
                                                    to_list(shape_inputs, num_shape_inputs, scope),
                                                    ExprBuilderRef{&builder, scope}),
                   num_outputs, "DimsExprs");
      for (size_t o = 0; o < dims.size(); ++o)
        outputs[o] = from_dim_exprs(dims[o], str("output ", o));
    });
  }

  /// Classes of the One family may leave out this method and the following ones.
  int32_t getNbTactics() noexcept final {
    constexpr const char* kMethod = "get_valid_tactics";
    return guarded<int32_t>(0, kMethod, [&] {
      tactics_.clear();
      if (!nb::hasattr(self(), kMethod)) return 0;
      for (const nb::object& entry :
           sequence(self().attr(kMethod)(), -1, "tactics, which are positive integers"))
        tactics_.push_back(int32(entry, "a tactic"));
      return static_cast<int32_t>(tactics_.size());
    });
  }
  int32_t getValidTactics(int32_t* tactics, int32_t count) noexcept final {
    std::copy_n(tactics_.begin(), std::min(static_cast<size_t>(count), tactics_.size()), tactics);
    return 0;
  }

  int32_t getAliasedInput(int32_t output) noexcept final {
    constexpr const char* kMethod = "get_aliased_input";
    return guarded<int32_t>(-1, kMethod, [&] {
      if (!nb::hasattr(self(), kMethod)) return -1;
      return int32(self().attr(kMethod)(output), "the index of an input, or -1 for none");
    });
  }

 protected:
  const nb::object& self() const { return object_.get(); }
  /// Writes the types that `get_output_data_types` returned.
  static void take_types(nb::handle result, DataType* outputs, int32_t num_outputs) {
    const auto types = sequence(result, num_outputs, "DataType");
    for (size_t o = 0; o < types.size(); ++o) outputs[o] = instance<DataType>(types[o], "DataType");
  }
  static nb::list to_list(DimsExprs const* dims, int32_t count, const ExprScope& scope) {
    nb::list list;
    for (int32_t i = 0; i < count; ++i) list.append(to_dim_exprs(dims[i], scope));
    return list;
  }

 private:
  const Reference object_;
  std::vector<int32_t> tactics_;
};

/// The runtime part, as IPluginV3OneRuntime or IPluginV3QuickRuntime.
template <class Interface>
class RuntimeFace : public Interface, public CaptureLimits, public ICommunicatingPlugin {
 public:
  explicit RuntimeFace(nb::object object) : object_(std::move(object)) {}
  APILanguage getAPILanguage() const noexcept final { return APILanguage::kPYTHON; }
  std::string capture_obstacle() const final { return capture_obstacle_of_class(self()); }
  bool communicates() const noexcept final {
    return guarded<bool>(false, "communicates", [&] { return communicates_of_class(self()); });
  }

  /// Classes of the One family may leave out this method.
  int32_t setTactic(int32_t tactic) noexcept final {
    return run("set_tactic", [&] {
      if (nb::hasattr(self(), "set_tactic")) self().attr("set_tactic")(tactic);
    });
  }
  PluginFieldCollection const* getFieldsToSerialize() noexcept final {
    constexpr const char* kMethod = "get_fields_to_serialize";
    return guarded<PluginFieldCollection const*>(
        nullptr, kMethod, [&] { return fields_.set(to_fields(self().attr(kMethod)())); });
  }

 protected:
  const nb::object& self() const { return object_.get(); }

 private:
  const Reference object_;
  FieldsResult fields_;
};

}  // namespace opwright::python
