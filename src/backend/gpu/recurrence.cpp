#include "backend/gpu/recurrence.h"

#include <algorithm>
#include <cmath>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// Number of blocks that fill a GPU. With more tasks, a block takes several rows of the batch and
/// reads the weights once for them.
constexpr int64_t kEnoughBlocks = 128;
constexpr int kClusterBlocks = 8;
/// Number of clusters that fill a GPU.
constexpr int64_t kEnoughClusters = 16;
/// The fewest units that are worth sharing among the blocks of a cluster.
constexpr int64_t kSharedUnits = 64;

/// The device functions of an activation: by default, and the quick one for types of 16 bits, in
/// which an error of some 1e-7 does not show. They take x, and the first `parameters` of alpha and
/// beta.
struct ActivationFunction {
  const char *name, *quick;
  int parameters;
};
/// Indexed by RecurrentActivation.
constexpr ActivationFunction kActivationFunctions[kRecurrentActivations] = {
    {"relu", "relu", 0},
    {"tanhf", "quick_tanh", 0},
    {"sigmoid", "quick_sigmoid", 0},
    {"affine", "affine", 2},
    {"leaky_relu", "leaky_relu", 1},
    {"thresholded_relu", "thresholded_relu", 1},
    {"scaled_tanh", "quick_scaled_tanh", 2},
    {"hard_sigmoid", "hard_sigmoid", 2},
    {"elu", "elu", 1},
    {"softsign", "softsign", 0},
    {"softplus", "softplus", 0},
};

bool has(const KernelArgs& args, int port) {
  return static_cast<size_t>(port) < args.inputs.size() && args.inputs[port].present;
}

/// The call of a direction's activation `which` with the argument `x`.
std::string activation_call(const RecurrenceParams& params, int direction, int which,
                            bool is_quick) {
  const auto at = static_cast<size_t>(int64_t{direction} * activation_count(params.cell) + which);
  const ActivationFunction& function =
      kActivationFunctions[static_cast<size_t>(params.activations[at])];
  std::string call = str(is_quick ? function.quick : function.name, "(x");
  if (function.parameters > 0)
    call += str(", ", float_literal(static_cast<float>(params.alphas[at])));
  if (function.parameters > 1)
    call += str(", ", float_literal(static_cast<float>(params.betas[at])));
  return call + ")";
}

/// Adds Config::f, g and h.
void add_activations(ConfigWriter& config, const RecurrenceParams& params, bool is_quick) {
  for (int i = 0; i < activation_count(params.cell); ++i) {
    std::string call = activation_call(params, 0, i, is_quick);
    if (params.directions() == 2) {
      const std::string other = activation_call(params, 1, i, is_quick);
      if (other != call) call = str("direction == 0 ? ", call, " : ", other);
    }
    config.function(str("float ", "fgh"[i], "(float x, Index direction)"),
                    str("return ", call, ";\n"));
  }
}

void check_recurrent_shapes(KernelSource& source, const KernelArgs& args) {
  const SymShape& x = source.dims(kX);
  const auto require_extent = [&](RecurrentPort port, int axis, const Expr& extent) {
    if (has(args, port))
      source.check_equal(
          source.dims(port)[axis], extent,
          str("input ", static_cast<int>(port), " must fit the sequences on axis ", axis));
  };
  require_extent(kX, 2, Expr(args.inputs[kW].max[2]));
  require_extent(kLengths, 0, x[1]);
  require_extent(kInitialH, 1, x[1]);
  require_extent(kInitialC, 1, x[1]);
}

std::vector<std::string> recurrence_tactics() {
  std::vector<std::string> names = recurrent_tile_names();
  for (const int rows : {1, 2, 4}) names.push_back(RecurrentPlan{.rows = rows}.name());
  for (const int rows : {1, 2, 4, 8})
    names.push_back(RecurrentPlan{.rows = rows, .blocks = kClusterBlocks}.name());
  return names;
}

/// The plans for all GPUs.
Ways<RecurrentPlan> recurrent_plans(const RecurrenceParams& params, const KernelArgs& args) {
  const Shape& x = args.inputs[kX].opt;
  const int64_t hidden = args.inputs[kR].max[2];
  const int64_t tasks = params.directions() * x[1];
  std::vector<RecurrentPlan> plans = {{.rows = 1}};
  if (x[1] > 1) {
    plans.push_back({.rows = 2});
    if (tasks > kEnoughBlocks) plans[0].rows = 4;
  }
  if (!resets_first(params) && hidden >= kSharedUnits) {
    const int most = static_cast<int>(std::min<int64_t>(x[1], 8));
    int rows = 1;
    while (rows < most && tasks > rows * kEnoughClusters) rows *= 2;
    plans.push_back({.rows = rows, .blocks = kClusterBlocks});
    if (rows < most) plans.push_back({.rows = 2 * rows, .blocks = kClusterBlocks});
  }
  const std::vector<RecurrentPlan> tiled = recurrent_tile_plans(params, args);
  plans.insert(plans.end(), tiled.begin(), tiled.end());
  Ways<RecurrentPlan> all(std::move(plans));
  const auto add = [&](const RecurrentPlan& plan) {
    if (!all.contains(plan)) all.add(plan, false);
  };
  for (const int rows : {1, 2, 4, 8}) {
    if (rows > x[1]) break;
    if (rows <= 4) add({.rows = rows});
    if (!resets_first(params)) add({.rows = rows, .blocks = kClusterBlocks});
  }
  for (RecurrentPlan plan : tiled) {
    plan.rows = 16;
    add(plan);
  }
  return all;
}

std::vector<Candidate> recurrence_candidates(const Operator& op, const CandidateQuery& query) {
  for (const int i : {kW, kR})
    if (query.inputs[i].min != query.inputs[i].max) return {};
  const RecurrenceParams& params = static_cast<const Recurrence&>(op).params();
  const int architecture = target_architecture(query);
  // The plan that is likely the fastest comes first. Plans that the GPU cannot run are left out.
  enum Rank { kTiles, kCluster, kOther, kNone };
  std::vector<Rank> ranks;
  const std::vector<Candidate> all = moving_candidates(query, [&](const KernelArgs& args) {
    const bool is_float = args.inputs[kX].type.dtype == DataType::kFLOAT;
    const Ways<RecurrentPlan> plans = recurrent_plans(params, args);
    for (const RecurrentPlan& plan : plans.listed(query.all_tactics)) {
      const bool is_tiled = plan.is_tiled(), is_cluster = plan.is_cluster();
      const bool fits = is_tiled ? fits_tiles(plan, args, architecture)
                                 : fits_lanes(params, args, plan, architecture);
      ranks.push_back(!fits || (plan.is_rounded && !query.tf32)                  ? kNone
                      : is_cluster && is_tiled && (!is_float || plan.is_rounded) ? kTiles
                      : is_cluster && !is_tiled                                  ? kCluster
                                                                                 : kOther);
    }
    return plans.names();
  });
  std::vector<Candidate> candidates;
  for (const Rank rank : {kTiles, kCluster, kOther})
    for (size_t i = 0; i < all.size(); ++i)
      if (ranks[i] == rank) candidates.push_back(all[i]);
  return candidates;
}

std::optional<GeneratedKernel> generate_recurrence(const Operator& op, const KernelArgs& args) {
  const RecurrenceParams& params = static_cast<const Recurrence&>(op).params();
  const RecurrentPlan plan = recurrent_plans(params, args).at(args.candidate->tactic);
  return plan.is_tiled() ? generate_recurrent_tiles(params, args, plan)
                         : generate_recurrent_lanes(params, args, plan);
}

const RegisteredKernels<Recurrence> kRecurrenceKernels({.candidates = recurrence_candidates,
                                                        .generate = generate_recurrence,
                                                        .make = nullptr,
                                                        .tactics = recurrence_tactics});

}  // namespace

std::string RecurrentPlan::name() const {
  const std::string text =
      str(is_rounded ? "TF32 " : "", rows, rows == 1 ? " row per " : " rows per ",
          is_cluster() ? str("cluster of ", blocks) : std::string("block"));
  return text + (is_tiled() ? ", tensor cores" : "");
}

ConfigWriter recurrent_config(const RecurrenceParams& params, const KernelArgs& args,
                              const RecurrentPlan& plan, int warps) {
  ConfigWriter config;
  const DataType type = args.inputs[kX].type.dtype;
  config.type("Element", storage_type(type));
  config.value("RecurrentCell", "kCell",
               params.cell == RecurrentCell::kLSTM  ? "RecurrentCell::kLstm"
               : params.cell == RecurrentCell::kGRU ? "RecurrentCell::kGru"
                                                    : "RecurrentCell::kRnn");
  config.value("Index", "kHidden", args.inputs[kR].max[2]);
  config.value("Index", "kInput", args.inputs[kW].max[2]);
  config.number("kDirections", params.directions());
  config.flag("kIsReverse", params.direction == RecurrentDirection::kREVERSE);
  config.number("kRows", plan.rows), config.number("kBlocks", plan.blocks);
  config.number("kWarps", warps);
  config.flag("kHasBias", has(args, kB)), config.flag("kHasLengths", has(args, kLengths));
  config.flag("kHasInitialH", has(args, kInitialH));
  config.flag("kHasInitialC", has(args, kInitialC));
  config.flag("kHasPeepholes", has(args, kP));
  const auto limit = static_cast<float>(params.clip);
  config.flag("kIsClipped", params.clip > 0 && std::isfinite(limit));
  config.number("kClip", std::isfinite(limit) ? limit : 0.0F);
  config.flag("kForgetsRest", params.input_forget);
  config.flag("kResetsProduct", params.linear_before_reset);
  config.number("kWritten", written_inputs(args));
  add_activations(config, params, plan.is_tiled() && type != DataType::kFLOAT);
  return config;
}

std::string recurrent_arguments(KernelSource& source, const RecurrenceParams& params,
                                const KernelArgs& args, const RecurrentPlan& plan) {
  check_recurrent_shapes(source, args);
  const SymShape& x = source.dims(kX);
  std::string text = "const RecurrentArguments<Config> all = {\n";
  for (int port = kX; port <= kP; ++port)
    text += has(args, port) ? str("in", port, ", ") : std::string("nullptr, ");
  text += str("out0, out1, ", args.outputs.size() > 2 ? "out2" : "nullptr", ",\n");
  for (const Expr& number : {x[0], x[1], ceil_div(x[1], Expr(plan.rows))})
    text += source.value(number) + ", ";
  return str(text, source.value(recurrent_tasks(source, params, plan)), "};\n");
}

Expr recurrent_tasks(const KernelSource& source, const RecurrenceParams& params,
                     const RecurrentPlan& plan) {
  return ceil_div(source.dims(kX)[1], Expr(plan.rows)) * Expr(params.directions());
}

}  // namespace opwright::gpu
