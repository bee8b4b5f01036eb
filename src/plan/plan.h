#pragma once

#include <string>
#include <vector>

#include "base/blob.h"
#include "network/attributes.h"
#include "network/model_metadata.h"
#include "network/operator.h"
#include "network/symbols.h"
#include "plan/refit.h"
#include "plan/stream_groups.h"
#include "symbolic/expr_program.h"

namespace opwright {

/// A compiled network as plain structs. The compiler makes it, the file stores it, the runtime runs
/// it. Indices refer to the vectors of the same plan; dims are indices into `expressions`.
struct PlanTensor {
  enum class Location : uint8_t { kArena, kInput, kOutput, kWeight, kValues };
  std::string name;
  PortType type;
  float scale = 0;  ///< the step of INT8 elements; 0: not known
  std::vector<int32_t> dims;
  Location location = Location::kArena;
  int32_t index = -1;   ///< kInput, kOutput: number of the network input or output
  uint64_t offset = 0;  ///< kArena: offset in the arena
  uint64_t size = 0;    ///< bytes; kArena: at the maximum shape
  Blob data;  ///< kWeight: the bytes; empty if all steps have packed them, or if they are missing
  int32_t source = -1;          ///< kWeight: the value of Plan::refit that makes it; -1: it stays
  std::vector<int32_t> values;  ///< kValues: an expression per element
};

/// The tuner's record of a candidate of a layer.
struct TimedCandidate {
  std::string types;  ///< "FP32:HWC, FP32 -> FP32:HWC"
  int64_t tactic = 0;
  std::string tactic_name;
  float time_ms = 0;      ///< 0: not timed
  float reformat_ms = 0;  ///< conversions between the layer and its chosen neighbours
  std::string dropped;    ///< why it was dropped; empty: it was not
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
  std::string capture_obstacle;  ///< why no graph may have the step; empty: one may
  int32_t stream = kAlone;       ///< the stream in its group (plan/stream_groups.h)
};

struct ProfileInput {
  Shape min, opt, max;
  bool values = false;
};

/// A network output that no step writes. It is a network input, a weight, a values tensor or
/// another output, and the runtime copies the tensor's bytes.
struct OutputCopy {
  int32_t tensor = -1;  ///< index into Schedule::tensors
  int32_t output = -1;  ///< number of the network output
};

/// A tensor that a run can show once it is written: LINEAR, of the network's type.
struct DebugTensor {
  std::string name;        ///< the tensor's name in the network
  int32_t tensor = -1;     ///< index into Schedule::tensors
  bool is_marked = false;  ///< whether the network marked it; otherwise it is one of all tensors
                           ///< that steps write
};

/// The steps of a profile. A step writes each network output, through a tensor of location kOutput,
/// or `copies` lists the output. Tensors of location kInput or kOutput may be views of that port:
/// the same bytes in another shape or format.
struct Schedule {
  std::vector<ProfileInput> inputs;
  std::vector<PlanTensor> tensors;
  std::vector<PlanStep> steps;
  std::vector<OutputCopy> copies;
  std::vector<DebugTensor> debug;  ///< all schedules have the same marked tensors
  uint64_t arena_size = 0;
  uint64_t workspace_size = 0;  ///< result of place_workspaces() for the steps
};

struct PlanPort {
  std::string name;
  PortType type;
  std::vector<int32_t> dims;
  std::vector<std::string> dimension_names;
  int32_t aliased_input = -1;
  bool is_shape_input = false;
  uint32_t open_axes = 0;  ///< bits: the network leaves the axes open; profiles may fix them
};

struct Plan {
  std::string name, builder;
  DeviceType device_type = DeviceType::kCPU;
  std::string backend = "cpu";  ///< name of the backend that has the device
  std::string architecture, device_identity;
  std::vector<Symbol> symbols;  ///< opt and upper_bound are null expressions here; see size_bounds
  std::vector<std::pair<int32_t, int32_t>>
      size_bounds;  ///< per symbol: expressions of opt and upper bound, or -1
  std::vector<ExprInstruction> expressions;
  std::vector<PlanPort> inputs, outputs;
  std::vector<Schedule> schedules;  ///< per optimization profile
  std::vector<PluginRequirement> requirements;
  std::vector<CodeObject> code;
  /// Code for the host that defines plugins, as indices into `code`: shared libraries in the order
  /// of loading, and sources, whose target names a SourceLanguage.
  std::vector<int32_t> plugin_libraries, plugin_sources;
  bool debug_plugins = false;     ///< whether every call of a plugin is checked
  bool graphs = true;             ///< whether contexts replay graphs on a GPU
  bool weight_streaming = false;  ///< whether weights may stay on the host (WeightFetch)
  RefitPlan refit;                ///< how the engine is refitted
  ModelMetadata metadata;         ///< the model's, for information only
};

/// How much of a file is verified before use. Plan and code are always verified.
enum class WeightCheck { kVerify, kDeferred };

/// The bytes of the engine file in pieces (header, plan, code, weights, padding), so that weights
/// are not copied.
std::vector<Blob> serialize(const Plan& plan);
/// Only the plan section: everything except the bytes of code and weights.
Blob serialize_structure(const Plan& plan);
/// Verifies everything and returns the plan: hashes, bounds, the FlatBuffers structure, and the
/// graph's consistency (each step's inputs are written before, indices and offsets are in range,
/// expressions are ordered). Weights stay references into `file`; plan and code are copied before
/// they are checked. Throws Error that says what is wrong at which byte or step; never crashes on
/// any input.
Plan deserialize(const Blob& file, WeightCheck check = WeightCheck::kVerify);
/// Only the checks of `deserialize` on the structs. The compiler checks its result with them.
void validate(const Plan& plan);

}  // namespace opwright
