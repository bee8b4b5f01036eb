#pragma once

#include <array>
#include <optional>

#include "base/error.h"
#include "execution_domain.h"
#include "function_inputs.h"
#include "plugin/model/function_plugin.h"
#include "plugin_bindings.h"

namespace opwright::python {

/// A function of a plugin, and the indices of the plugin's attributes that it takes.
struct PluginFunction {
  Reference function;
  std::vector<int> attributes;
  bool wants_tactic = false;
  std::vector<std::string> keywords;  ///< names of its last parameters, passed by keyword
  std::string fingerprint;            ///< identifies the function's code
  int communicator = -1;    ///< the place of its trtp.Comm behind the tensors; -1: it takes none
  bool capturable = false;  ///< its GPU work may be captured and replayed without it
};

/// A function plugin of Python. The functions are set while their module is imported. The
/// interpreter's lock guards them.
class PythonDefinition final : public FunctionPlugin {
 public:
  PythonDefinition(std::string plugin_namespace, std::string name,
                   std::vector<FunctionParameter> parameters, int num_outputs,
                   std::string signature, nb::object function, nb::dict enums);

  void set_impl(std::optional<DeviceType> device, PluginFunction function);
  void set_autotune(PluginFunction function) { autotune_ = std::move(function); }
  void set_aot_impl(std::optional<DeviceType> device, PluginFunction function);
  void set_pointwise_impl(PluginFunction function) { pointwise_ = std::move(function); }
  void set_reference(std::shared_ptr<const FunctionPlugin> reference) {
    reference_ = std::move(reference);
  }
  void set_repeatable(bool repeatable) { is_repeatable_ = repeatable; }

  const std::string& name() const override { return name_; }
  const std::string& plugin_namespace() const override { return namespace_; }
  const std::vector<FunctionParameter>& parameters() const override { return parameters_; }
  int num_outputs() const override { return num_outputs_; }
  bool has_impl(DeviceType device) const override;
  bool has_aot_impl(DeviceType device) const override;
  bool communicates() const override;
  bool has_autotune() const override { return autotune_.has_value(); }
  std::vector<std::string> impl_attributes() const override;

  std::vector<OutputInfo> infer(InferContext& context,
                                const FieldValues& attributes) const override;
  std::vector<Candidate> autotune(const CandidateQuery& query,
                                  const FieldValues& attributes) const override;
  std::unique_ptr<Kernel> attach(const KernelArgs& args, const FieldValues& attributes,
                                 const FunctionOutputs& outputs) const override;
  std::string fingerprint(FunctionMode mode) const override;
  Attributes pointwise(std::string_view layer, const FieldValues& attributes) const override;
  KernelCode compile(const KernelArgs& args, const FieldValues& attributes) const override;
  std::shared_ptr<const FunctionPlugin> reference() const override { return reference_; }
  bool is_repeatable() const override { return is_repeatable_; }

  /// "sample::circ_pad"
  std::string id() const { return namespace_ + "::" + name_; }
  int num_tensors() const { return num_tensors_; }

 private:
  const PluginFunction& impl(DeviceType device) const;
  /// An attribute's value as a Python object of the declared form: a scalar, text, bytes, list,
  /// tuple, member of an enum or NumPy array.
  nb::object attribute_value(const FunctionParameter& attribute, const FieldValue& value) const;
  /// Python values of the attributes that the function takes.
  std::vector<nb::object> bind_attributes(const PluginFunction& function,
                                          const FieldValues& attributes) const;
  /// Calls one of the functions. Adds a note with the function's name to an exception.
  nb::object call(const char* name, const PluginFunction& function, std::string_view layer,
                  const std::vector<nb::object>& arguments) const;
  /// Calls `register` with these descriptors and returns its checked result as a list of
  /// descriptors.
  std::vector<nb::object> call_register(std::string_view layer,
                                        const std::vector<nb::object>& inputs,
                                        const FieldValues& attributes) const;
  /// Descriptors of outputs with their ranges, for inputs that also have ranges.
  nb::tuple describe_outputs(std::string_view layer, const DescribedInputs& inputs,
                             std::span<const PortDesc> outputs,
                             const FieldValues& attributes) const;
  /// Throws Error if a launch or an argument depends on an extent that no network has.
  void check_extents(std::string_view layer, const KernelCode& code) const;
  /// Throws Error unless a kernel with these parameters (of opwright.aot.Code) fits the ports and
  /// the extra arguments.
  void check_parameters(const KernelArgs& args, nb::handle parameters, nb::handle extra) const;
  void check_again(std::string_view layer, int output, const SymShape& extents,
                   const Shape& expected, std::span<const int64_t> symbols) const;
  /// Throws Error that names layer and plugin.
  template <class... Parts>
  [[noreturn]] void reject(std::string_view layer, const Parts&... parts) const {
    fail("layer '", layer, "': plugin '", id(), "': ", parts...);
  }

  const std::string namespace_, name_;
  const std::vector<FunctionParameter> parameters_;
  const int num_outputs_;
  const std::string signature_;  ///< of `register`, for messages
  int num_tensors_ = 0;
  const Reference enums_;  ///< enum classes by attribute name
  PluginFunction register_;
  using PerDevice = std::array<std::optional<PluginFunction>, 2>;  // CPU, GPU
  static void set(PerDevice& functions, std::optional<DeviceType> device, PluginFunction function);
  PerDevice impls_, aot_impls_;
  std::optional<PluginFunction> autotune_, pointwise_;
  std::shared_ptr<const FunctionPlugin> reference_;
  bool is_repeatable_ = true;
};

/// Makes the kernel that calls this `impl`. Inputs without an aliased output are read-only.
std::unique_ptr<Kernel> attach_impl(std::string plugin, const PluginFunction& impl,
                                    const std::vector<nb::object>& attributes,
                                    const KernelArgs& args, const FunctionOutputs& outputs);
/// The architecture of the device for which this thread runs an autotune or aot_impl function, as
/// Device::architecture() returns it; empty outside of these functions.
std::string_view build_architecture();

}  // namespace opwright::python
