#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "network/operator.h"
#include "plugin/kernel/compiled_kernel.h"
#include "plugin/registry/fields.h"

namespace opwright {

/// The role of a function plugin's parameter.
enum class ParameterKind : int32_t {
  kTensor,
  kOptionalTensor,  ///< a tensor that may be absent
  kTensors,         ///< any number of tensors, after all other tensors
  kShapeInput,      ///< a tensor whose values shapes may depend on
  kAttribute
};

/// The form of an attribute's value in the functions.
enum class AttributeForm : int32_t {
  kScalar,
  kText,   ///< kCHAR, in UTF-8
  kBytes,  ///< kCHAR
  kEnum,   ///< kCHAR, the name of a member
  kArray,  ///< an array of any rank
  kList,   ///< a list of scalars or texts
  kTuple
};

/// A member of an enum. Models may give its value in place of its name.
struct Enumerator {
  std::string name;
  std::optional<int64_t> number{};
  std::optional<std::string> text{};
  friend bool operator==(const Enumerator&, const Enumerator&) = default;
};

/// One parameter of a function plugin.
struct FunctionParameter {
  std::string name;
  ParameterKind kind = ParameterKind::kAttribute;
  // The following members are only for attributes.
  bool is_keyword_only = false;  ///< `register` takes it by keyword
  AttributeForm form = AttributeForm::kScalar;
  PluginFieldType type = PluginFieldType::kUNKNOWN;  ///< type of the elements; kCHAR for texts
  bool is_bool = false;                              ///< kINT8 elements are booleans
  int length = -1;                                   ///< length of a tuple; -1: any
  std::vector<Enumerator> enumerators{};             ///< members of an enum
  std::optional<FieldValue> default_value{};
  std::string written{};  ///< the type as its author wrote it, for messages; empty: unknown

  bool is_attribute() const { return kind == ParameterKind::kAttribute; }
};

/// Facts about the outputs from `register`, beside types and shapes. They are stored with the
/// plugin, so that `register` need not run where an engine is loaded.
struct FunctionOutputs {
  std::vector<int> aliased_inputs;  ///< per output: the input whose memory it shares, or -1
  std::vector<bool>
      data_dependent;  ///< per output: whether a size tensor of the plugin tells an extent
};

enum class FunctionMode : int32_t { kCallback, kCompiled };

/// A function plugin with register, impl, autotune and aot_impl, as its front end supplies it. One
/// definition serves all layers and engines. They name it by its id and have their own attributes,
/// which methods get as arguments. Apart from these attributes it is like a PluginModel. The checks
/// of an untrusted engine are not part of it: FunctionModel has them once for all languages. Calls
/// may come from any thread.
class FunctionPlugin {
 public:
  virtual ~FunctionPlugin() = default;
  virtual const std::string& name() const = 0;
  virtual const std::string& plugin_namespace() const = 0;
  /// Parameters: tensors first, then attributes.
  virtual const std::vector<FunctionParameter>& parameters() const = 0;
  virtual int num_outputs() const = 0;
  virtual bool has_impl(DeviceType device) const = 0;
  /// Whether plans can store a kernel of `aot_impl` or `pointwise_impl`.
  virtual bool has_aot_impl(DeviceType device) const = 0;
  virtual bool has_autotune() const = 0;
  /// Names of the attributes that `impl` takes. Engines store only these.
  virtual std::vector<std::string> impl_attributes() const = 0;

  virtual std::vector<OutputInfo> infer(InferContext& context,
                                        const FieldValues& attributes) const = 0;
  /// The expanded result of `autotune`; ports are inputs, then outputs. Only called if
  /// has_autotune().
  virtual std::vector<Candidate> autotune(const CandidateQuery& query,
                                          const FieldValues& attributes) const = 0;
  /// Whether `impl` exchanges data with other ranks.
  virtual bool communicates() const { return false; }
  /// Makes the kernel that calls `impl`, a CallbackKernel.
  virtual std::unique_ptr<Kernel> attach(const KernelArgs& args, const FieldValues& attributes,
                                         const FunctionOutputs& outputs) const = 0;
  /// Identifies the code of `impl` (or, for kCompiled, of `aot_impl`), for timings.
  virtual std::string fingerprint(FunctionMode) const { return {}; }
  /// The attributes of the Pointwise operator that `pointwise_impl` describes, with the plugin's
  /// inputs; empty if there is no such function. `layer` is for messages.
  virtual Attributes pointwise(std::string_view layer, const FieldValues& attributes) const {
    (void)layer, (void)attributes;
    return {};
  }
  /// A definition with the same parameters whose `impl` is correct. Builds compare candidates with
  /// it. Null: none.
  virtual std::shared_ptr<const FunctionPlugin> reference() const { return nullptr; }
  /// See PluginModel::is_repeatable().
  virtual bool is_repeatable() const { return true; }
  /// The result of `aot_impl` for the candidate in `args`.
  virtual KernelCode compile(const KernelArgs& args, const FieldValues& attributes) const = 0;
};

/// "namespace::name"
std::string id_of(const FunctionPlugin& definition);
/// The parameter of input `input` of the plugin's operator, or null. The inputs are the tensors in
/// order, null for absent ones, and any number for kTensors.
const FunctionParameter* parameter_of_input(const std::vector<FunctionParameter>& parameters,
                                            size_t input);
/// The number of the operator's inputs, counting absent ones, without those of the kind kTensors.
size_t num_fixed_inputs(const std::vector<FunctionParameter>& parameters);
/// Throws Error unless the plugin accepts these inputs as present or absent. The message begins
/// with `owner`.
void check_inputs(const std::vector<FunctionParameter>& parameters,
                  const std::vector<bool>& present, std::string_view owner);

/// Registers a definition by its id "namespace::name". Registering an id again replaces it. Thread
/// safe.
void register_function_plugin(std::shared_ptr<const FunctionPlugin> definition);
void deregister_function_plugin(const std::string& plugin_namespace, const std::string& name);
/// Finds a definition, or returns null. Definitions in `first` come before registered ones.
std::shared_ptr<const FunctionPlugin> find_function_plugin(
    const std::string& plugin_namespace, const std::string& name,
    std::span<const std::shared_ptr<const FunctionPlugin>> first = {});
std::vector<std::shared_ptr<const FunctionPlugin>> all_function_plugins();

/// Chooses the mode for a network: by `aot` if given (1 or 0, -1: not given), else the only mode
/// that exists, else by the network's flags. If nothing decides, throws Error that names both ways
/// out.
FunctionMode choose_mode(const FunctionPlugin& definition, int aot, bool prefer_aot,
                         bool prefer_jit);

}  // namespace opwright
