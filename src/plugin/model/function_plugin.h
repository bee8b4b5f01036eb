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

/// What a parameter of a function plugin stands for.
enum class ParameterKind : int32_t {
  kTensor,
  kOptionalTensor,  ///< a tensor that may be absent
  kTensors,         ///< any number of tensors, the last of the tensors
  kShapeInput,      ///< a tensor whose values shapes may depend on
  kAttribute
};

/// What an attribute's value looks like to the functions.
enum class AttributeForm : int32_t {
  kScalar,
  kText,   ///< kCHAR, in UTF-8
  kBytes,  ///< kCHAR
  kEnum,   ///< kCHAR, the name of one of its members
  kArray,  ///< of any rank
  kList,   ///< of scalars or texts
  kTuple
};

/// A member of an enum; models may name it by its value.
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
  // What follows is about attributes.
  bool is_keyword_only = false;  ///< `register` takes it by keyword
  AttributeForm form = AttributeForm::kScalar;
  PluginFieldType type = PluginFieldType::kUNKNOWN;  ///< of the elements; kCHAR for texts
  bool is_bool = false;                              ///< kINT8 that stands for booleans
  int length = -1;                                   ///< of a tuple; -1: any
  std::vector<Enumerator> enumerators{};             ///< of an enum
  std::optional<FieldValue> default_value{};
  std::string written{};  ///< the type as its author wrote it, for messages; empty: not known

  bool is_attribute() const { return kind == ParameterKind::kAttribute; }
};

/// What `register` says of the outputs beside types and shapes. It is stored with the plugin, so
/// that `register` need not run where an engine is loaded.
struct FunctionOutputs {
  std::vector<int> aliased_inputs;  ///< per output: the input whose memory it is, or -1
  std::vector<bool>
      data_dependent;  ///< per output: whether a size tensor of the plugin tells an extent
};

enum class FunctionMode : int32_t { kCallback, kCompiled };

/// A function plugin, of register, impl, autotune and aot_impl, as its front end supplies
/// it. One definition serves all layers and engines, which name it by its id and have attributes of
/// their own: so it is a PluginModel but for those, which its methods are given, and what an engine
/// does not believe, which is checked once for all languages. All calls may come from any thread.
class FunctionPlugin {
 public:
  virtual ~FunctionPlugin() = default;
  virtual const std::string& name() const = 0;
  virtual const std::string& plugin_namespace() const = 0;
  /// Tensors first, then attributes.
  virtual const std::vector<FunctionParameter>& parameters() const = 0;
  virtual int num_outputs() const = 0;
  virtual bool has_impl(DeviceType device) const = 0;
  /// Whether plans have a kernel of it: of `aot_impl` or `pointwise_impl`.
  virtual bool has_aot_impl(DeviceType device) const = 0;
  virtual bool has_autotune() const = 0;
  /// Names of the attributes that `impl` takes: only these are stored in engines.
  virtual std::vector<std::string> impl_attributes() const = 0;

  virtual std::vector<OutputInfo> infer(InferContext& context,
                                        const FieldValues& attributes) const = 0;
  /// What `autotune` returns, expanded; ports in the order inputs, outputs. Not called without
  /// has_autotune().
  virtual std::vector<Candidate> autotune(const CandidateQuery& query,
                                          const FieldValues& attributes) const = 0;
  /// The kernel that calls `impl`, a CallbackKernel.
  virtual std::unique_ptr<Kernel> attach(const KernelArgs& args, const FieldValues& attributes,
                                         const FunctionOutputs& outputs) const = 0;
  /// Tells the code of `impl` (or, for kCompiled, of `aot_impl`) from other code, for timings.
  virtual std::string fingerprint(FunctionMode) const { return {}; }
  /// The attributes of the Pointwise operator that `pointwise_impl` describes, whose inputs are the
  /// plugin's; none where there is no such function. `layer` is for messages.
  virtual Attributes pointwise(std::string_view layer, const FieldValues& attributes) const {
    (void)layer, (void)attributes;
    return {};
  }
  /// A definition with the same parameters whose `impl` says what is right, for builds to compare
  /// candidates with; null: there is none.
  virtual std::shared_ptr<const FunctionPlugin> reference() const { return nullptr; }
  /// As PluginModel::is_repeatable().
  virtual bool is_repeatable() const { return true; }
  /// What `aot_impl` returns for the candidate in `args`.
  virtual KernelCode compile(const KernelArgs& args, const FieldValues& attributes) const = 0;
};

/// "namespace::name"
std::string id_of(const FunctionPlugin& definition);
/// The parameter that input `input` of the plugin's operator stands for, or null: the inputs are
/// the tensors in order, null for those that are absent, any number of the kind kTensors.
const FunctionParameter* parameter_of_input(const std::vector<FunctionParameter>& parameters,
                                            size_t input);
/// How many inputs the plugin's operator has, absent ones included, beside those of the kind
/// kTensors.
size_t num_fixed_inputs(const std::vector<FunctionParameter>& parameters);
/// Throws Error that begins with `owner` unless a plugin can have inputs of which these are
/// present.
void check_inputs(const std::vector<FunctionParameter>& parameters,
                  const std::vector<bool>& present, std::string_view owner);

/// Definitions by id "namespace::name"; registering an id again replaces it. Thread safe.
void register_function_plugin(std::shared_ptr<const FunctionPlugin> definition);
void deregister_function_plugin(const std::string& plugin_namespace, const std::string& name);
/// Null when there is none. Those in `first` come before those that are registered.
std::shared_ptr<const FunctionPlugin> find_function_plugin(
    const std::string& plugin_namespace, const std::string& name,
    std::span<const std::shared_ptr<const FunctionPlugin>> first = {});
std::vector<std::shared_ptr<const FunctionPlugin>> all_function_plugins();

/// Which of the two a network gets: `aot` where given (1 or 0, -1: not given), else the only one
/// that exists, else by the network's flags; throws Error that names both ways out where nothing
/// decides.
FunctionMode choose_mode(const FunctionPlugin& definition, int aot, bool prefer_aot,
                         bool prefer_jit);

}  // namespace opwright
