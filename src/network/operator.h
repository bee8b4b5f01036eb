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

/// Facts about a tensor while the network is defined.
struct TensorInfo {
  DataType dtype = DataType::kFLOAT;
  SymShape dims;
  /// The elements of a small integer or boolean tensor as expressions, row-major, for shape
  /// arithmetic. The rank is at most kMaxValuesRank, extents are constant, and there are at most
  /// kMaxValues elements. Null when unknown. Small integral constants have both `values` and
  /// `constant`.
  std::shared_ptr<const std::vector<Expr>> values;
  /// The elements of a small FP32 tensor that is computed from shapes. Null when unknown.
  RationalsPtr rationals;
  /// The elements of a constant, dense and row-major. Empty for all other tensors.
  Blob constant;

  static constexpr int64_t kMaxValues = 64;
  /// Shapes are vectors, but exporters order the pads of an ONNX Pad as a matrix.
  static constexpr int kMaxValuesRank = 2;
};

/// An output as an operator infers it.
struct OutputInfo : TensorInfo {
  /// The input whose memory this output shares (an aliased, in-place output), or -1.
  int aliased_input = -1;
};

/// The argument of Operator::infer.
struct InferContext {
  /// A null pointer is an absent optional input.
  std::span<const TensorInfo* const> inputs;
  /// The layer's name, for error messages.
  std::string_view layer;
  /// A new symbol for the value of output `output` (a scalar INT32 or INT64) after the operator has
  /// run.
  virtual Expr declare_size_tensor(int output, const Expr& opt, const Expr& upper_bound) = 0;
  /// Whether the symbol is known to be non-negative, as extents and size tensors are.
  virtual bool is_non_negative(int symbol) const {
    (void)symbol;
    return false;
  }
  /// The symbols of expressions; null if only is_non_negative() is needed.
  virtual const SymbolTable* symbols() const { return nullptr; }
  /// Throws Error unless there are `least` to `most` inputs, and the first `least` are present.
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

/// A way to run an operator: types and formats of its ports, and the algorithm.
struct Candidate {
  std::vector<PortType> inputs;
  std::vector<PortType> outputs;
  int64_t tactic = 0;
  std::string tactic_name;  ///< for logs and the inspector: "brgconv:avx512_core", "NUMBA"
  /// The time of a run that the backend expects, which compares the candidates of one layer; 0: not
  /// known. It is no part of what the candidate is.
  float estimated_ms = 0;
  friend bool operator==(const Candidate& a, const Candidate& b) {
    return a.inputs == b.inputs && a.outputs == b.outputs && a.tactic == b.tactic &&
           a.tactic_name == b.tactic_name;
  }
};

/// "FP32" or "FP32:HWC".
std::string str(PortType type);
/// "FP32:HWC, FP32 -> FP32:HWC": types and formats as logs and inspectors show them.
std::string str(const Candidate& candidate);

/// A tensor at a port with its range of shapes over an optimization profile. `present` is false for
/// absent optional inputs.
struct PortDesc {
  PortType type;
  Shape min, opt, max;
  /// The step of INT8 elements; 0: not known.
  float scale = 0;
  Blob constant;  ///< the elements of a constant (in `type.dtype`, LINEAR); empty for other tensors
  bool present = true;
  bool is_constant =
      false;  ///< stays true if the bytes were dropped because the kernel packed them
  // Only for outputs, during the build:
  int aliased_input = -1;          ///< the input whose memory the output shares, or -1
  bool is_data_dependent = false;  ///< whether an extent is known only after the kernel has run
};

/// A candidate that its author lists but that cannot run.
struct DroppedCandidate {
  Candidate candidate;
  std::string reason;
};

/// Conditions for candidates.
struct CandidateQuery {
  std::string_view layer;
  /// Ports with the network's types; all formats are LINEAR.
  std::span<const PortDesc> inputs;
  std::span<const PortDesc> outputs;
  const Device* device = nullptr;
  /// Lower precisions than the network's that the builder config allows. All are false for strongly
  /// typed networks.
  bool fp16 = false, bf16 = false, int8 = false, fp8 = false;
  /// Whether products of FP32 may round their operands to TF32, 10 bits of fraction, in any
  /// network.
  bool tf32 = false;
  /// Whether the network is strongly typed, so that operators keep its types.
  bool strongly_typed = false;
  /// Other GPUs that the kernels must also run on.
  HardwareCompatibilityLevel hardware_compatibility{};
  /// Bits 1 << TacticSource: external libraries that may compute.
  uint32_t tactic_sources = 0;
  /// Whether to return every candidate that can compute the ports. Otherwise only those that are
  /// worth timing for these sizes on the device.
  bool all_tactics = false;
  /// Receives the candidates that the operator lists but that cannot run; null: not needed.
  std::vector<DroppedCandidate>* dropped = nullptr;
};

/// Machine code or source of an operator, stored with the plan.
struct CodeObject {
  std::string name;
  std::string target;  ///< "x86-64 avx2 fma", "sm_90", "python"
  Blob bytes;
  bool host = false;  ///< whether it runs on the host, which needs permission
  friend bool operator==(const CodeObject&, const CodeObject&) = default;
};

/// A plugin definition that must exist before an engine can run.
struct PluginRequirement {
  std::string kind, name, version, plugin_namespace;
  friend bool operator==(const PluginRequirement&, const PluginRequirement&) = default;
};

/// The services that a context, or a build, offers to kernels. The recorder and the communicator
/// may change while kernels live.
struct PluginServices {
  IErrorRecorder* recorder = nullptr;         ///< null: none
  std::shared_ptr<IGpuAllocator> allocator;   ///< null: the device's memory
  std::shared_ptr<const LastUse> last_use;    ///< of the kernels' memory, by runs; null: not known
  void* communicator = nullptr;               ///< what set_communicator() was given; null: none
  const PluginServices* enclosing = nullptr;  ///< of a body: those of the context that runs it

  /// The communicator of the context that the user runs; null: none.
  void* find_communicator() const {
    return enclosing == nullptr ? communicator : enclosing->find_communicator();
  }
};

/// The ingredients of a kernel, during the build and again when an engine is loaded.
struct KernelArgs {
  std::string_view layer;
  const Candidate* candidate = nullptr;
  /// Ports with the candidate's types and formats. Constants are still in LINEAR layout.
  std::span<const PortDesc> inputs;
  std::span<const PortDesc> outputs;
  /// The result of packed() during the build; empty while building.
  std::span<const PackedInput> packed;
  const Device* device = nullptr;
  /// Other GPUs that the code of plan() must also run on.
  HardwareCompatibilityLevel hardware_compatibility{};
  /// Asked by compilers while they work: true stops them. Null: nothing stops them.
  const std::function<bool()>* gives_up = nullptr;
  /// Outlives the kernel; null: none.
  const PluginServices* services = nullptr;
  /// For PlannedOperator::check(): the result of infer() for the ports; empty if it cannot be
  /// asked.
  std::span<const OutputInfo> inferred;
};

/// Common base of a network's operator and its form in a plan. Immutable, so that networks, graphs
/// and engines share it.
class Operation {
 public:
  virtual ~Operation() = default;

  /// The name of the operation: "Convolution", "PluginV3". Backends find its kernels by it, and
  /// plans store it.
  virtual std::string_view kind() const = 0;
  /// Output types and shapes. Throws Error naming the layer when the inputs are wrong.
  virtual std::vector<OutputInfo> infer(InferContext& context) const = 0;
  /// Whether the only output may lie in the memory of input `input` of `count`. No later step reads
  /// the input, and both have elements of the same size, format and shape.
  virtual bool may_overwrite(int input, int count) const {
    (void)input, (void)count;
    return false;
  }
  /// Whether the operation reads this input as a shape tensor on the host.
  virtual bool is_shape_input(int input) const {
    (void)input;
    return false;
  }
  /// Whether a run exchanges data with other processes, so that a build cannot run the operation,
  /// and every process must run such operations in the same order.
  virtual bool communicates() const { return false; }
};

/// An operation with chosen types, formats, algorithm and ranges of shapes. A plan stores it and an
/// engine runs it.
class PlannedOperator : public Operation {
 public:
  /// Whether infer() can be called. False for plugins that leave out their build part where engines
  /// are loaded, and for kernels that replace a plugin.
  virtual bool can_infer() const { return true; }
  /// Throws Error unless `args.candidate` can run on these ports: their number and presence, types,
  /// formats, packed inputs, and parameters that the kernel relies on. Plans come from files, so
  /// this is called before make_kernel(). infer() has confirmed the ports' shapes at the minimum,
  /// the optimum and the maximum of the profile. Everything that the operator's candidates() lists
  /// passes.
  virtual void check(const KernelArgs& args) const { (void)args; }
  /// Makes a kernel for one context. The planned operator outlives the kernel.
  virtual std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const = 0;
  /// The attributes from which load_operator(kind(), ...) makes the planned operator again.
  virtual Attributes attributes() const = 0;
  /// Code that is stored with the plan. OperatorLoadContext::code returns it in this order.
  virtual std::vector<CodeObject> code() const { return {}; }
  /// Definitions that must be registered where the engine is loaded.
  virtual std::vector<PluginRequirement> requirements() const { return {}; }
  /// Text that the inspector shows beside the layer's own metadata.
  virtual std::string metadata() const { return {}; }
  /// Bits 1 << TacticSource: external libraries that compute it, and that loading it needs.
  virtual uint32_t tactic_sources() const { return 0; }
};

using PlannedOperatorPtr = std::shared_ptr<const PlannedOperator>;

/// Whether an engine may be refitted with weights of this name.
using IsRefittable = std::function<bool(const std::string& name)>;

/// An operation of a network: a built-in layer or a plugin of any kind.
class Operator : public Operation {
 public:
  /// The number of outputs, if it is known without the inputs. A layer of such an operator is
  /// inferred on demand; other layers are inferred when they are added or changed.
  virtual std::optional<int> num_outputs() const { return std::nullopt; }
  /// All ways to run the operator for these shapes, never empty. Throws Error saying why if there
  /// is none.
  virtual std::vector<Candidate> candidates(const CandidateQuery& query) const = 0;
  /// The operator for the candidate and the ports in `args`, never null. It is timed, and stored if
  /// it is chosen. A plugin that is compiled ahead of time becomes its compiled kernel here, with
  /// the same ports.
  virtual PlannedOperatorPtr plan(const KernelArgs& args) const = 0;
  /// Attributes that tell the operator from others of its kind. Plugins give none: they are not
  /// pure.
  virtual Attributes attributes() const { return {}; }
  /// Everything except candidates, shapes and types that decides how fast the operator runs.
  /// Operators with the same key are timed once. Empty optional: each instance is timed.
  virtual std::optional<std::string> timing_key() const;
  /// Whether two runs on the same inputs give the same result and have no other effects, so that
  /// the engine may fold, merge or drop the operator. Plugins are not pure unless they say so.
  virtual bool is_pure() const { return true; }
  /// The operator with the values of its shape inputs as parameters, which takes only the other
  /// inputs. The compiler uses it if the kernels know a parameter instead. Null if there is none.
  /// \param inputs as infer() has accepted them, null where absent
  virtual std::shared_ptr<const Operator> without_shape_inputs(
      std::span<const TensorInfo* const> inputs) const;
  /// Whether compose() defines the operator on these inputs (null: absent). Then it has no kernels
  /// for them.
  virtual bool is_composed(std::span<Tensor* const> inputs) const {
    (void)inputs;
    return false;
  }
  /// Adds the layers that the operator stands for to the network of the tensors `inputs` (null:
  /// absent), and returns its outputs. Throws Error naming the layer when the inputs are wrong.
  virtual std::vector<Tensor*> compose(Network& network, std::span<Tensor* const> inputs,
                                       const std::string& layer) const;
  /// The number below which an input's indices lie where the shapes are optimal; 0: the input has
  /// no indices. Made-up inputs of timed and of verified runs have such indices.
  virtual int64_t index_limit(int input, std::span<const PortDesc> inputs,
                              std::span<const PortDesc> outputs) const {
    (void)input, (void)inputs, (void)outputs;
    return 0;
  }
  /// The implementation of a plugin; null for built-in operators.
  virtual const PluginModel* plugin() const { return nullptr; }
  /// The networks that the operator runs: the body of a loop, the branches of a conditional.
  virtual std::vector<const Network*> bodies() const { return {}; }
  /// The operator whose bodies take their weights as further inputs, after its own inputs, in the
  /// order of `weights`. Null, and no weights, if no body has weights.
  virtual std::shared_ptr<const Operator> with_weights_as_inputs(
      const IsRefittable& is_refittable, std::vector<BodyWeight>& weights) const {
    (void)is_refittable, (void)weights;
    return nullptr;
  }
  /// Whether the input belongs to a later iteration of a loop. It may depend on the outputs, but
  /// the outputs do not depend on it.
  virtual bool is_fed_back(int input) const {
    (void)input;
    return false;
  }
  /// Makes the layer for Network::add_layer(). It has a class of its own if users of the network
  /// need to tell it from other layers.
  virtual std::unique_ptr<Layer> make_layer() const;
};

using OperatorPtr = std::shared_ptr<const Operator>;

}  // namespace opwright
