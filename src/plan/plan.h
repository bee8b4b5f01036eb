#pragma once

#include <string>
#include <vector>

#include "base/blob.h"
#include "network/attributes.h"
#include "network/model_metadata.h"
#include "network/operator.h"
#include "network/symbols.h"
#include "plan/refit.h"
#include "plan/streams.h"
#include "symbolic/expr_program.h"

namespace opwright {

/// A compiled network as plain structs: what the compiler makes, what the file holds and what the
/// runtime runs. Indices refer to the vectors of the same plan; dims are indices into
/// `expressions`.
struct PlanTensor {
  enum class Location : uint8_t { kArena, kInput, kOutput, kWeight, kValues };
  std::string name;
  PortType type;
  float scale = 0;  ///< what INT8 elements are multiples of; 0 where that is not known
  std::vector<int32_t> dims;
  Location location = Location::kArena;
  int32_t index = -1;   ///< kInput, kOutput: number of the network input or output
  uint64_t offset = 0;  ///< kArena: offset in the arena
  uint64_t size = 0;    ///< bytes; kArena: at the maximum shape
  Blob data;  ///< kWeight: the bytes; empty when all steps have it packed, or it is missing
  int32_t source = -1;  ///< kWeight: the value of Plan::refit that it is made of; -1: it stays
  std::vector<int32_t> values;  ///< kValues: an expression per element
};

/// What the tuner knows of a way to run a layer.
struct TimedCandidate {
  std::string types;  ///< "FP32:HWC, FP32 -> FP32:HWC"
  int64_t tactic = 0;
  std::string tactic_name;
  float time_ms = 0;      ///< 0: not timed
  float reformat_ms = 0;  ///< conversions of the layer's tensors, its neighbours as they are chosen
  std::string dropped;    ///< why it is left out; empty: it is not
};

struct PlanStep {
  std::string name, metadata;
  std::string kind;
  Attributes attributes;
  std::vector<int32_t> inputs, outputs;  ///< tensor indices, -1: absent
  Candidate candidate;
  std::vector<PackedInput> packed;
  std::vector<int32_t> code;  ///< the operator's code objects, as indices into Plan::code
  std::vector<int32_t>
      size_symbols;  ///< per output: symbol defined by its value, or -1; empty: none
  float time_ms = 0;
  std::vector<TimedCandidate> considered;
  std::string capture_obstacle;  ///< why no graph has the step; empty: one may
  int32_t stream = kAlone;       ///< of those that run beside each other (plan/streams.h)
};

struct ProfileInput {
  Shape min, opt, max;
  bool values = false;
};

/// A network output that no step writes because it is a network input, a weight, a values tensor or
/// another output: the runtime copies the tensor's bytes.
struct OutputCopy {
  int32_t tensor = -1;  ///< index into Schedule::tensors
  int32_t output = -1;  ///< number of the network output
};

/// A tensor that a run can show as soon as it is written: LINEAR, of the network's type.
struct DebugTensor {
  std::string name;        ///< in the network
  int32_t tensor = -1;     ///< index into Schedule::tensors
  bool is_marked = false;  ///< by itself, rather than as one of all that steps write
};

/// Every network output is written by exactly one step, through a tensor of location kOutput, or
/// listed in `copies`.
struct Schedule {
  std::vector<ProfileInput> inputs;
  std::vector<PlanTensor> tensors;
  std::vector<PlanStep> steps;
  std::vector<OutputCopy> copies;
  std::vector<DebugTensor> debug;  ///< with the same marked ones in all schedules
  uint64_t arena_size = 0;
  uint64_t workspace_size = 0;  ///< what place_workspaces() gives for the steps
};

struct PlanPort {
  std::string name;
  PortType type;
  std::vector<int32_t> dims;
  std::vector<std::string> dimension_names;
  int32_t aliased_input = -1;
  bool is_shape_input = false;
  uint32_t open_axes = 0;  ///< bits: the network leaves them open, though all profiles may fix them
};

struct Plan {
  std::string name, builder;
  DeviceType device_type = DeviceType::kCPU;
  std::string backend = "cpu";  ///< the name of the one that has the device
  std::string architecture, device_identity;
  std::vector<Symbol> symbols;  ///< opt and upper_bound are null expressions here; see size_bounds
  std::vector<std::pair<int32_t, int32_t>>
      size_bounds;  ///< per symbol: expressions of opt and upper bound, or -1
  std::vector<ExprInstruction> expressions;
  std::vector<PlanPort> inputs, outputs;
  std::vector<Schedule> schedules;  ///< per optimization profile
  std::vector<PluginRequirement> requirements;
  std::vector<CodeObject> code;
  /// What brings plugins along, as indices into `code`, each of them host code: shared libraries in
  /// the order of loading, and sources in a language that SourceLanguage knows by their target.
  std::vector<int32_t> plugin_libraries, plugin_sources;
  bool debug_plugins = false;     ///< whether every call of a plugin is checked
  bool graphs = true;             ///< whether contexts replay what they run on a GPU
  bool weight_streaming = false;  ///< whether weights may stay on the host (WeightFetch)
  RefitPlan refit;                ///< without weights: the engine cannot be refitted
  ModelMetadata metadata;         ///< of the model, for those who ask
};

/// How much of a file is verified before use. The plan and the code always are.
enum class WeightCheck { kVerify, kDeferred };

/// The bytes of the engine file in pieces (header, plan, code, weights, padding), so that weights
/// need not be copied together.
std::vector<Blob> serialize(const Plan& plan);
/// The plan section alone: all but the bytes of code and weights.
Blob serialize_structure(const Plan& plan);
/// Verifies everything (hashes, bounds, the FlatBuffers structure, graph consistency: each step's
/// inputs are written before, indices and offsets in range, expressions ordered) and gives the
/// plan. Weights stay references into `file`; plan and code are copied before they are checked.
/// Throws Error that says what is wrong at which byte or step; never crashes on any input.
Plan deserialize(const Blob& file, WeightCheck check = WeightCheck::kVerify);
/// The checks of `deserialize` on the structs alone; the compiler calls it on its own result.
void validate(const Plan& plan);

}  // namespace opwright
