#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/blob.h"
#include "base/shape.h"
#include "base/types.h"
#include "network/attributes.h"
#include "network/kernel.h"
#include "network/symbols.h"
#include "opwright/allocator.h"
#include "opwright/logger.h"
#include "symbolic/rational.h"

namespace opwright {

enum class HardwareCompatibilityLevel : int32_t;

struct BodyWeight;
class Device;
class LastUse;
class Layer;
class Network;
class PluginModel;
class Tensor;

/// What is known of a tensor while the network is defined.
struct TensorInfo {
  DataType dtype = DataType::kFLOAT;
  SymShape dims;
  /// The elements of a small integer or boolean tensor (rank at most kMaxValuesRank, constant
  /// extents, at most kMaxValues elements) as expressions, row-major: what shape arithmetic is made
  /// of. Null when unknown. Constants that are small and integral have both `values` and
  /// `constant`.
  std::shared_ptr<const std::vector<Expr>> values;
  /// The elements of a small FP32 tensor that are computed from shapes. Null when unknown.
  RationalsPtr rationals;
  /// The elements of a constant, dense and row-major. Empty for everything else.
  Blob constant;

  static constexpr int64_t kMaxValues = 64;
  /// Shapes are vectors, but exporters order the pads of an ONNX Pad as a matrix.
  static constexpr int kMaxValuesRank = 2;
};

/// One output as an operator infers it.
struct OutputInfo : TensorInfo {
  /// The input whose memory this output is (an aliased, in-place output), or -1.
  int aliased_input = -1;
};

/// What Operator::infer is given.
struct InferContext {
  /// A null pointer is an optional input that is absent.
  std::span<const TensorInfo* const> inputs;
  /// The layer's name, for error messages.
  std::string_view layer;
  /// A new symbol for the value that output `output` (a scalar INT32 or INT64) will hold once the
  /// operator has run.
  virtual Expr declare_size_tensor(int output, const Expr& opt, const Expr& upper_bound) = 0;
  /// Whether the symbol is known to be never negative, as extents and size tensors are.
  virtual bool is_non_negative(int symbol) const {
    (void)symbol;
    return false;
  }
  /// What expressions are made of; null where nobody asks for more than is_non_negative().
  virtual const SymbolTable* symbols() const { return nullptr; }
  /// Throws Error unless between `least` and `most` inputs are there, the first `least` of them not
  /// absent.
  void require_inputs(std::string_view kind, int least, int most) const;

 protected:
  ~InferContext() = default;
};

/// The type and format of a tensor at one port of a kernel.
struct PortType {
  DataType dtype = DataType::kFLOAT;
  TensorFormat format = TensorFormat::kLINEAR;
  friend bool operator==(const PortType&, const PortType&) = default;
};

/// One way to run an operator: types and formats of its ports and the algorithm.
struct Candidate {
  std::vector<PortType> inputs;
  std::vector<PortType> outputs;
  int64_t tactic = 0;
  std::string tactic_name;  ///< for logs and the inspector: "brgconv:avx512_core", "NUMBA"
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

/// "FP32" or "FP32:HWC".
std::string str(PortType type);
/// "FP32:HWC, FP32 -> FP32:HWC": types and formats as logs and inspectors show them.
std::string str(const Candidate& candidate);

/// A tensor at a port with its shape range over an optimization profile. Absent optional inputs
/// have `present` false.
struct PortDesc {
  PortType type;
  Shape min, opt, max;
  /// What INT8 elements are multiples of; 0 where that is not known.
  float scale = 0;
  Blob constant;  ///< its elements (in `type.dtype`, LINEAR) when it is a constant, else empty
  bool present = true;
  bool is_constant =
      false;  ///< stays true where the bytes themselves were dropped because the kernel packed them
  // Of outputs, during the build.
  int aliased_input = -1;          ///< the input whose memory it is, or -1
  bool is_data_dependent = false;  ///< whether an extent is known only when the kernel has run
};

/// A way to run an operator that its author lists and that cannot be.
struct DroppedCandidate {
  Candidate candidate;
  std::string reason;
};

/// What candidates may be made of.
struct CandidateQuery {
  std::string_view layer;
  /// Types as the network has them, formats LINEAR.
  std::span<const PortDesc> inputs;
  std::span<const PortDesc> outputs;
  const Device* device = nullptr;
  /// Lower precision than the network's that the builder config allows; all false for strongly
  /// typed networks.
  bool fp16 = false, bf16 = false, int8 = false, fp8 = false;
  /// Whether products of FP32 may round their operands to TF32, 10 bits of fraction, in any
  /// network.
  bool tf32 = false;
  /// Whether the network is strongly typed: operators keep the network's types.
  bool strongly_typed = false;
  /// What other GPUs the kernels must run on, too.
  HardwareCompatibilityLevel hardware_compatibility{};
  /// Bits 1 << TacticSource: libraries of others that may compute.
  uint32_t tactic_sources = 0;
  /// Whether every candidate that can compute the ports is asked for. Else those are enough that
  /// are worth timing for their sizes on the device.
  bool all_tactics = false;
  /// Where the operator says what it lists and cannot be; null: nobody asks.
  std::vector<DroppedCandidate>* dropped = nullptr;
};

/// Machine code or source that belongs to an operator and is stored with the plan.
struct CodeObject {
  std::string name;
  std::string target;  ///< "x86-64 avx2 fma", "sm_90", "python"
  Blob bytes;
  bool host = false;  ///< would run on the host: loading it needs permission
  friend bool operator==(const CodeObject&, const CodeObject&) = default;
};

/// A plugin definition that must be there before an engine can run.
struct PluginRequirement {
  std::string kind, name, version, plugin_namespace;
  friend bool operator==(const PluginRequirement&, const PluginRequirement&) = default;
};

/// What a context, or a build, offers to plugins. The recorder may change while kernels live.
struct PluginServices {
  IErrorRecorder* recorder = nullptr;        ///< null: none
  std::shared_ptr<IGpuAllocator> allocator;  ///< null: the device's memory
  std::shared_ptr<const LastUse> last_use;   ///< of what kernels have, by runs; null: not known
};

/// What a kernel is made from, during the build and again when an engine is loaded.
struct KernelArgs {
  std::string_view layer;
  const Candidate* candidate = nullptr;
  /// Ports with the candidate's types and formats. Constants are still in LINEAR layout.
  std::span<const PortDesc> inputs;
  std::span<const PortDesc> outputs;
  /// What packed() returned during the build; empty while building.
  std::span<const PackedInput> packed;
  const Device* device = nullptr;
  /// What other GPUs the code that plan() makes must run on, too.
  HardwareCompatibilityLevel hardware_compatibility{};
  /// Asked by compilers while they work: true ends that. Null: nobody ends it.
  const std::function<bool()>* gives_up = nullptr;
  /// Null: none. Outlives the kernel.
  const PluginServices* services = nullptr;
  /// For PlannedOperator::check(): what infer() gave for the ports; empty where it cannot be asked.
  std::span<const OutputInfo> inferred;
};

/// What an operator of a network and the same one in a plan have in common. Immutable, so networks,
/// graphs and engines share it.
class Operation {
 public:
  virtual ~Operation() = default;

  /// The name of the operation, under which backends find its kernels and plans store it:
  /// "Convolution", "PluginV3".
  virtual std::string_view kind() const = 0;
  /// Output types and shapes. Throws Error naming the layer when the inputs cannot be right.
  virtual std::vector<OutputInfo> infer(InferContext& context) const = 0;
  /// Whether the only output may lie in the memory of input `input` of `count`, where nobody reads
  /// the input later and both have elements of the same size, format and shape.
  virtual bool may_overwrite(int input, int count) const {
    (void)input, (void)count;
    return false;
  }
  /// Inputs that the operation reads as shape tensors on the host.
  virtual bool is_shape_input(int input) const {
    (void)input;
    return false;
  }
};

/// An operation for types, formats, an algorithm and ranges of shapes that are chosen: what a plan
/// stores and an engine runs.
class PlannedOperator : public Operation {
 public:
  /// Whether infer() can be asked. Not of plugins that leave their build part out where engines are
  /// loaded, and kernels that took a plugin's place.
  virtual bool can_infer() const { return true; }
  /// Throws Error unless `args.candidate` can run on these ports: their number and presence, types,
  /// formats, what was packed, and parameters that the kernel relies on. Asked of what a plan
  /// stores, which comes from a file, before make_kernel(), and after infer() gave the ports'
  /// shapes at the minimum, the optimum and the maximum of the profile. What candidates() of the
  /// operator lists passes.
  virtual void check(const KernelArgs& args) const { (void)args; }
  /// A kernel for one context, which this outlives.
  virtual std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const = 0;
  /// What load_operator(kind(), ...) needs to make this again.
  virtual Attributes attributes() const = 0;
  /// Code that is stored with the plan and handed back in OperatorLoadContext::code, in this order.
  virtual std::vector<CodeObject> code() const { return {}; }
  /// Definitions that must be registered where the engine is loaded.
  virtual std::vector<PluginRequirement> requirements() const { return {}; }
  /// What the inspector shows beside the layer's own metadata.
  virtual std::string metadata() const { return {}; }
  /// Bits 1 << TacticSource: libraries of others that compute it, and must be there to load it.
  virtual uint32_t tactic_sources() const { return 0; }
};

using PlannedOperatorPtr = std::shared_ptr<const PlannedOperator>;

/// Whether an engine may be refitted with weights of the name.
using IsRefittable = std::function<bool(const std::string& name)>;

/// An operation of a network: a built-in layer or a plugin of any kind.
class Operator : public Operation {
 public:
  /// How many outputs there are, where that is known without the inputs: a layer of the operator is
  /// then inferred when somebody asks for the result, other layers when they are added or changed.
  virtual std::optional<int> num_outputs() const { return std::nullopt; }
  /// Every way to run the operator for these shapes, never empty; throws Error saying why when
  /// there is none.
  virtual std::vector<Candidate> candidates(const CandidateQuery& query) const = 0;
  /// The operator for the candidate and the ports in `args`, never null: to be timed, and to be
  /// stored where it is chosen. A plugin that is compiled ahead of time becomes its compiled kernel
  /// here, which has the same ports.
  virtual PlannedOperatorPtr plan(const KernelArgs& args) const = 0;
  /// What tells the operator from others of its kind. Of plugins nothing: they are not pure.
  virtual Attributes attributes() const { return {}; }
  /// Whatever beside the candidates, shapes and types decides how fast the operator runs. Operators
  /// that agree in it are timed once. An empty optional: time every instance.
  virtual std::optional<std::string> timing_key() const;
  /// Whether two runs on the same inputs give the same result and nothing else happens, so that the
  /// engine may fold, merge or drop the operator. Plugins are not pure unless they say so.
  virtual bool is_pure() const { return true; }
  /// The operator that has what shape inputs say as a parameter and takes the others alone: what
  /// the compiler puts in the place of one whose kernels know a parameter. Null where there is
  /// none. \param inputs as infer() has accepted them, null where absent
  virtual std::shared_ptr<const Operator> without_shape_inputs(
      std::span<const TensorInfo* const> inputs) const;
  /// Whether compose() says what the operator is on these inputs (null: absent). It has no kernels
  /// for them then.
  virtual bool is_composed(std::span<Tensor* const> inputs) const {
    (void)inputs;
    return false;
  }
  /// Adds the layers that the operator stands for to a network, whose tensors `inputs` are (null:
  /// absent). Returns its outputs. Throws Error naming the layer where the inputs cannot be right.
  virtual std::vector<Tensor*> compose(Network& network, std::span<Tensor* const> inputs,
                                       const std::string& layer) const;
  /// What computes the operator where it is a plugin; null for the engine's own.
  virtual const PluginModel* plugin() const { return nullptr; }
  /// The networks that it runs: the body of a loop, the branches of a conditional.
  virtual std::vector<const Network*> bodies() const { return {}; }
  /// The operator whose bodies have their weights as further inputs, behind those that it has, in
  /// the order of `weights`. Null, and no weights, where no body has any.
  virtual std::shared_ptr<const Operator> with_weights_as_inputs(
      const IsRefittable& is_refittable, std::vector<BodyWeight>& weights) const {
    (void)is_refittable, (void)weights;
    return nullptr;
  }
  /// Whether what the input is belongs to a later iteration of a loop: it may depend on the
  /// outputs, which do not follow from it.
  virtual bool is_fed_back(int input) const {
    (void)input;
    return false;
  }
  /// The layer that Network::add_layer() makes for it, of a class of its own where users of the
  /// network are to tell it from others.
  virtual std::unique_ptr<Layer> make_layer() const;
};

using OperatorPtr = std::shared_ptr<const Operator>;

}  // namespace opwright
