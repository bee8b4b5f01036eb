#include "backend/gpu/recurrence.h"

#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/pointwise_math.h"
#include "backend/gpu/rows.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

constexpr int kRecurrentThreads = 1024;
/// Of a block's states; longer ones lie in global memory.
constexpr int64_t kStateBytes = 40960;
/// Blocks that fill a GPU: then each takes several rows of the batch, for which it reads the
/// weights once.
constexpr int64_t kEnoughBlocks = 128;
constexpr int kClusterBlocks = 8;
/// Clusters that fill a GPU of that architecture.
constexpr int64_t kEnoughClusters = 16;
/// Units from which on it pays to share them, and bytes of weights that a block may keep.
constexpr int64_t kSharedUnits = 64, kKeptBytes = 200 << 10;

/// An activation as an expression of x.
std::string recurrent_activation(int64_t kind, double alpha, double beta, bool is_quick) {
  const std::string a = float_literal(static_cast<float>(alpha));
  const std::string b = float_literal(static_cast<float>(beta));
  switch (static_cast<RecurrentActivation>(kind)) {
    case RecurrentActivation::kRELU:
      return "x < 0.0f ? 0.0f : x";
    case RecurrentActivation::kTANH:
      return is_quick ? "quick_tanh(x)" : "tanhf(x)";
    case RecurrentActivation::kSIGMOID:
      return is_quick ? "quick_sigmoid(x)" : "1.0f / (1.0f + expf(-x))";
    case RecurrentActivation::kAFFINE:
      return str(a, " * x + ", b);
    case RecurrentActivation::kLEAKY_RELU:
      return str("x < 0.0f ? ", a, " * x : x");
    case RecurrentActivation::kTHRESHOLDED_RELU:
      return str("x < ", a, " ? 0.0f : x");
    case RecurrentActivation::kSCALED_TANH:
      return str(a, is_quick ? " * quick_tanh(" : " * tanhf(", b, " * x)");
    case RecurrentActivation::kHARD_SIGMOID:
      return str("fminf(fmaxf(", a, " * x + ", b, ", 0.0f), 1.0f)");
    case RecurrentActivation::kELU:
      return str("x < 0.0f ? ", a, " * expm1f(x) : x");
    case RecurrentActivation::kSOFTSIGN:
      return "x / (1.0f + fabsf(x))";
    case RecurrentActivation::kSOFTPLUS:
      return "fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)))";
  }
  fail("unknown activation ", kind);
}

std::vector<std::string> recurrence_tactics() {
  std::vector<std::string> names = recurrent_tile_names();
  for (const int rows : {1, 2, 4}) names.push_back(RecurrentPlan{rows}.name());
  for (const int rows : {1, 2, 4, 8}) names.push_back(RecurrentPlan{rows, kClusterBlocks}.name());
  return names;
}

/// Whatever the GPU is.
Ways<RecurrentPlan> recurrent_plans(const RecurrenceParams& params, const KernelArgs& args) {
  const Shape& x = args.inputs[kX].opt;
  const int64_t hidden = args.inputs[kR].max[2];
  const int64_t tasks = params.directions() * x[1];
  std::vector<RecurrentPlan> plans = {{1}};
  if (x[1] > 1) {
    plans.push_back({2});
    if (tasks > kEnoughBlocks) plans[0].rows = 4;
  }
  if (!resets_first(params) && hidden >= kSharedUnits) {
    const int most = static_cast<int>(std::min<int64_t>(x[1], 8));
    int rows = 1;
    while (rows < most && tasks > rows * kEnoughClusters) rows *= 2;
    plans.push_back({rows, kClusterBlocks});
    if (rows < most) plans.push_back({2 * rows, kClusterBlocks});
  }
  const std::vector<RecurrentPlan> tiled = recurrent_tile_plans(params, args);
  plans.insert(plans.end(), tiled.begin(), tiled.end());
  Ways<RecurrentPlan> all(std::move(plans));
  for (const RecurrentPlan& plan :
       {RecurrentPlan{1}, RecurrentPlan{2}, RecurrentPlan{4}, RecurrentPlan{1, kClusterBlocks}})
    if (plan.rows <= x[1] && (plan.blocks == 1 || !resets_first(params)) && !all.contains(plan))
      all.add(plan, false);
  return all;
}

/// A block, or a cluster of blocks, runs some rows of the batch through all steps of a direction,
/// with their states beside it. A warp makes one hidden unit at a time, all of whose gates it sums
/// over its lanes. The blocks of a cluster have some units each, whose weights they keep in shared
/// memory where there is room, and wait for each other once a step.
class RecurrenceWriter {
 public:
  RecurrenceWriter(const RecurrenceParams& params, const KernelArgs& args,
                   const RecurrentPlan& plan)
      : params_(params),
        args_(args),
        source_("recurrence", args),
        hidden_(args.inputs[kR].max[2]),
        input_(args.inputs[kW].max[2]),
        gates_(gate_count(params.cell)),
        plan_(plan),
        rows_(plan_.rows),
        is_lstm_(params.cell == RecurrentCell::kLSTM),
        resets_first_(resets_first(params)),
        stored_(storage_type(args.inputs[kX].type.dtype)) {
    units_ = (hidden_ + plan_.blocks - 1) / plan_.blocks;
    warps_ = static_cast<int>(
        std::clamp<int64_t>(units_, 1, (rows_ > 2 ? 512 : kRecurrentThreads) / kWarp));
    const int64_t width = 16 / element_size(args.inputs[kX].type.dtype);
    input_width_ = input_ % width == 0 ? width : 1;
    state_width_ = hidden_ % width == 0 ? width : 1;
    // h before and behind the step, c; or z and what is reset.
    row_ = (hidden_ + 3) / 4 * 4;
    state_ = checked_product("the states of a recurrent layer", {is_lstm_        ? 3
                                                                 : resets_first_ ? 4
                                                                                 : 2,
                                                                 rows_, row_});
    is_shared_ = state_ * static_cast<int64_t>(sizeof(float)) <= kStateBytes;
    const int64_t room = kKeptBytes / element_size(args.inputs[kX].type.dtype);
    keeps_r_ = is_cluster() && kept_r() <= room;
    keeps_w_ = keeps_r_ && kept_r() + gates_ * units_ * input_ <= room;
  }

  GeneratedKernel write() {
    const SymShape& x = source_.dims(kX);
    check_recurrent_shapes(source_, args_);
    source_.add_declarations(include("recurrence.cuh"));
    if (is_cluster()) source_.add_declarations(include("recurrence_cluster.cuh"));
    declare_recurrent_cell(source_, params_, has(kP), false);
    const Expr groups = ceil_div(x[1], Expr(rows_));
    const Expr tasks = groups * params_.directions();
    if (!is_shared_) {
      const int64_t most = (args_.inputs[kX].max[1] + rows_ - 1) / rows_;
      source_.add_scratch("float", checked_product("the states of a recurrent layer",
                                                   {most, params_.directions(), state_,
                                                    static_cast<int64_t>(sizeof(float))}));
      source_.check(Expr(1) - Expr::make(ExprOp::kLess, args_.inputs[kX].max[1], x[1]),
                    "the batch must be within the optimization profile");
    }
    text_ =
        str("const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;\n", memory(),
            "const Index steps = ", source_.value(x[0]), ", batch = ", source_.value(x[1]),
            ", groups = ", source_.value(groups), ";\n",
            "const Index first_unit = (Index)blockIdx.x % ", plan_.blocks, " * ", units_,
            ";\nconst Index unit_begin = first_unit < ", hidden_, " ? first_unit : ", hidden_,
            ", unit_end = first_unit + ", units_, " < ", hidden_, " ? first_unit + ", units_, " : ",
            hidden_, ";\n", "for (Index task = (Index)blockIdx.x / ", plan_.blocks, "; task < ",
            source_.value(tasks), "; task += (Index)gridDim.x / ", plan_.blocks, ") {\n",
            "const Index direction = task / groups, first = task % groups * ", rows_, ";\n");
    text_ += str("const bool is_reverse = ",
                 params_.direction == RecurrentDirection::kREVERSE ? "true" : "direction == 1",
                 ";\nconst Index own = first + lane < batch ? first + lane : batch - 1;\n",
                 "const bool has_row = lane < ", rows_, " && first + lane < batch;\n");
    lengths();
    load_states();
    if (is_cluster()) keep_weights();
    text_ += str("for (Index step = 0; step < most; ++step) {\n",
                 "const float* const h = state + step % 2 * ", rows_ * row_,
                 ";\nfloat* const h_next = state + (step + 1) % 2 * ", rows_ * row_, ";\n",
                 "const Index at = step < length ? is_reverse ? length - 1 - step : step : 0;\n");
    sources("x_rows", stored_, [&](const std::string& r) {
      return str("in0 + ((step < lengths[", r, "] ? is_reverse ? lengths[", r,
                 "] - 1 - step : step : 0) * batch + numbers[", r, "]) * ", input_);
    });
    sources("h_rows", "float", [&](const std::string& r) { return str("h + ", r, " * ", row_); });
    if (resets_first_) {
      gru_in_two();
    } else if (is_cluster()) {
      step_of_cluster();
    } else {
      begin_units();
      products(0, gates_);
      unit();
      end_units();
    }
    text_ += is_cluster() ? "}\nwait_for_cluster();\n" : "}\n";
    store_states();
    text_ += "}\n";
    GeneratedKernel kernel = source_.finish(text_, tasks * plan_.blocks, warps_ * kWarp,
                                            is_cluster() ? 1 : 0, plan_.blocks);
    if (is_cluster()) {
      const int64_t kept = (keeps_r_ ? kept_r() : 0) + (keeps_w_ ? gates_ * units_ * input_ : 0);
      kernel.launch.shared_memory = state_ * static_cast<int64_t>(sizeof(float)) +
                                    kept * element_size(args_.inputs[kX].type.dtype);
    }
    return kernel;
  }

 private:
  bool has(RecurrentPort port) const {
    return static_cast<size_t>(port) < args_.inputs.size() && args_.inputs[port].present;
  }

  bool is_cluster() const { return plan_.blocks > 1; }
  /// Elements of a block's part of R, behind which 16 bytes may be read at once.
  int64_t kept_r() const { return (gates_ * units_ * hidden_ + 7) / 8 * 8; }

  /// Where the states are, and the weights that a block keeps.
  std::string memory() const {
    if (is_cluster()) {
      const auto kept = [&](bool keeps, std::string_view name, int64_t place) {
        return keeps ? str(stored_, "* const ", name, " = (", stored_, "*)(state + ", state_,
                           ") + ", place, ";\n")
                     : std::string();
      };
      return str("extern __shared__ uint4 memory[];\nfloat* const state = (float*)memory;\n",
                 kept(keeps_r_, "kept_r", 0), kept(keeps_w_, "kept_w", kept_r()),
                 keeps_r_ ? "Index kept_direction = -1;\n" : "");
    }
    if (!is_shared_)
      return str("float* const state = scratch + (Index)blockIdx.x * ", state_, ";\n");
    return str("__shared__ Pack<float, 4> memory[", std::max<int64_t>(1, state_ / 4),
               "];\nfloat* const state = (float*)memory;\n");
  }

  /// How long each row's sequence is, which is `length` for the lane's own row.
  void lengths() {
    text_ += str(
        "Index lengths[", rows_, "], numbers[", rows_,
        "], length = 0, most = 0;\n#pragma unroll\nfor (int r = 0; r < ", rows_,
        "; ++r) {\nnumbers[r] = first + r < batch ? first + r : batch - 1;\nlengths[r] = steps;\n",
        has(kLengths) ? "const int given = in4[numbers[r]];\nlengths[r] = given < 0 ? 0 : "
                        "given < steps ? given : steps;\n"
                      : "",
        "if (lengths[r] > most) most = lengths[r];\nif (lane == r) length = lengths[r];\n}\n");
  }

  /// Runs over the block's states, with unit j of row r, number n of the batch.
  std::string each_state(std::string_view statements) const {
    return str(
        "for (Index i = (Index)threadIdx.x; i < ", rows_ * hidden_, "; i += ", warps_ * kWarp,
        ") {\nconst Index r = i / ", std::max<int64_t>(1, hidden_), ", j = i % ",
        std::max<int64_t>(1, hidden_),
        ";\nconst bool is_there = first + r < batch;\nconst Index n = is_there ? first + r : "
        "batch - 1;\nconst Index outer = (direction * batch + n) * ",
        hidden_, " + j;\n", statements, "}\n");
  }
  void load_states() {
    text_ += "__syncthreads();\n";
    text_ += each_state(
        str("(void)is_there, (void)outer;\nstate[r * ", row_,
            " + j] = ", has(kInitialH) ? "load(in5[outer])" : "0.0f", ";\n",
            is_lstm_ ? str("state[", int64_t{2} * rows_ * row_, " + r * ", row_,
                           " + j] = ", has(kInitialC) ? "load(in6[outer])" : "0.0f", ";\n")
                     : std::string()));
    if (!is_cluster()) text_ += "__syncthreads();\n";
  }
  void store_states() {
    text_ += each_state(str(
        "if (!is_there || j < unit_begin || j >= unit_end) continue;\nout1[outer] = store<",
        stored_, ">(state[most % 2 * ", rows_ * row_, " + r * ", row_, " + j]);\n",
        is_lstm_ ? str("out2[outer] = store<", stored_, ">(state[", int64_t{2} * rows_ * row_,
                       " + r * ", row_, " + j]);\n")
                 : std::string(),
        has(kLengths)
            ? str("const int given = in4[n];\n"
                  "for (Index step = given < 0 ? 0 : given; step < steps; ++step) out0[((step * ",
                  params_.directions(), " + direction) * batch + n) * ", hidden_, " + j] = store<",
                  stored_, ">(0.0f);\n")
            : std::string()));
  }

  void sources(std::string_view name, std::string_view type,
               const std::function<std::string(const std::string&)>& of) {
    text_ += str("const ", type, "* const ", name, "[", rows_, "] = {");
    for (int r = 0; r < rows_; ++r) text_ += str(r > 0 ? ", " : "", of(std::to_string(r)));
    text_ += "};\n";
  }

  void begin_units() {
    text_ += str("for (Index unit = warp; unit < unit_end; unit += ", warps_, ") {\n");
  }
  void end_units() { text_ += "}\n__syncthreads();\n"; }

  /// Copies the weights of the block's units, unless it has those of the direction, and lets the
  /// cluster's other blocks know that its states may be written.
  void keep_weights() {
    const auto keep = [&](RecurrentPort port, std::string_view kept, int64_t length,
                          int64_t width) {
      const auto call = [&](int64_t w) {
        return str("keep<", w, ">(", kept, ", ", weights(port, 0, "unit_begin", length), ", ",
                   gates_, ", ", hidden_ * length, ", unit_end - unit_begin, ", units_ * length,
                   ", ", length, ");\n");
      };
      if (width == 1) return call(1);
      return str("if (", is_aligned(port, width), ") ", call(width), "else ", call(1));
    };
    if (keeps_r_)
      text_ +=
          str("if (direction != kept_direction) {\n", keep(kR, "kept_r", hidden_, state_width_),
              keeps_w_ ? keep(kW, "kept_w", input_, input_width_) : std::string(),
              "kept_direction = direction;\n}\n");
    text_ += "__syncthreads();\narrive_in_cluster();\n";
  }

  /// The weights in global memory of a unit's gate, which is followed by the next units'.
  std::string weights(RecurrentPort port, int gate, std::string_view unit, int64_t length) const {
    return str("in", static_cast<int>(port), " + ((direction * ", gates_, " + ", gate, ") * ",
               hidden_, " + ", unit, ") * ", length);
  }
  std::string is_aligned(RecurrentPort port, int64_t width) const {
    return str("is_aligned<", stored_, ", ", width, ">(in", static_cast<int>(port), ")");
  }

  /// `sums`, to which the weights at `from` of the gates [gate, end) are added times the rows.
  void add_product(std::string_view sums, int gate, int end, RecurrentPort port, int64_t length,
                   std::string_view rows, int64_t width) {
    const bool is_kept = port == kR ? keeps_r_ : keeps_w_;
    const std::string from = is_kept ? str(port == kR ? "kept_r" : "kept_w", " + (", gate * units_,
                                           " + unit - unit_begin) * ", length)
                                     : weights(port, gate, "unit", length);
    const auto call = [&](int64_t w) {
      return str("multiply<", w, ", ", end - gate, ", ", rows_, ">(", from, ", ",
                 (is_kept ? units_ : hidden_) * length, ", ", rows, ", ", length, ", lane, ", sums,
                 ");\n");
    };
    std::string condition = is_kept ? "" : is_aligned(port, width);
    if (port == kW) condition += str(is_kept ? "" : " && ", is_aligned(kX, width));
    if (width == 1 || condition.empty())
      text_ += call(width);
    else
      text_ += str("if (", condition, ") ", call(width), "else ", call(1));
  }

  /// Defines `from_x` and `from_h`, what input and state add to the gates [gate, end) of the unit
  /// in the lane's row, without biases.
  void products(int gate, int end, std::string_view h_rows = "h_rows") {
    text_ += str("float x_sums[", end - gate, "][", rows_, "] = {}, h_sums[", end - gate, "][",
                 rows_, "] = {};\n");
    add_product("x_sums", gate, end, kW, input_, "x_rows", input_width_);
    add_product("h_sums", gate, end, kR, hidden_, h_rows, state_width_);
    collect(end - gate, "x_sums");
  }
  void collect(int gates, std::string_view x_sums) {
    text_ += str("float from_x[", gates, "], from_h[", gates, "];\ncollect(", x_sums,
                 ", lane, from_x);\ncollect(h_sums, lane, from_h);\n",
                 "if (!has_row) continue;\nconst Index place = lane * ", row_,
                 " + unit;\nconst float h_before = h[place];\n(void)h_before;\n");
    if (has(kB))
      text_ += str("const ", stored_, "* const bias = in3 + (direction * ",
                   int64_t{2} * gates_ * hidden_, " + unit);\n");
  }
  std::string bias(int gate, bool is_recurrent) const {
    if (!has(kB)) return "0.0f";
    return str("load(bias[", (gate + (is_recurrent ? gates_ : 0)) * hidden_, "])");
  }
  /// The sum of a gate, which is number `at` of those computed.
  std::string sum(int gate, int at) const {
    return str(
        "from_x[", at, "] + from_h[", at, "]",
        has(kB) ? str(" + (", bias(gate, false), " + ", bias(gate, true), ")") : std::string());
  }

  /// What the input adds does not wait for the other blocks' states.
  void step_of_cluster() {
    const int64_t turns = (units_ + warps_ - 1) / warps_;
    const std::string each_unit = str("#pragma unroll\nfor (int turn = 0; turn < ", turns,
                                      "; ++turn) {\nconst Index unit = unit_begin + warp + turn * ",
                                      warps_, ";\nif (unit >= unit_end) continue;\n");
    text_ += str("float x_sums[", turns, "][", gates_, "][", rows_, "] = {};\n", each_unit);
    add_product("x_sums[turn]", 0, gates_, kW, input_, "x_rows", input_width_);
    text_ += str("}\nwait_for_cluster();\n", each_unit, "float h_sums[", gates_, "][", rows_,
                 "] = {};\n");
    add_product("h_sums", 0, gates_, kR, hidden_, "h_rows", state_width_);
    collect(gates_, "x_sums[turn]");
    unit();
    text_ += "}\narrive_in_cluster();\n";
  }

  void unit() { text_ += is_lstm_ ? lstm() : params_.cell == RecurrentCell::kGRU ? gru() : rnn(); }

  /// Stores `value`, the unit's state behind the step, unless the sequence has ended.
  std::string finish_unit() const {
    return str("if (step < length) out0[((at * ", params_.directions(),
               " + direction) * batch + own) * ", hidden_, " + unit] = store<", stored_,
               ">(value);\n",
               is_cluster() ? str("store_in_cluster<", plan_.blocks, ">(h_next + place, ")
                            : std::string("h_next[place] = ("),
               "step < length ? value : h_before);\n");
  }

  std::string rnn() const {
    return str("const float value = gate0(", sum(0, 0), ", direction);\n", finish_unit());
  }

  std::string lstm() const {
    const auto peephole = [&](int which) {
      return str(which > 0 ? ", " : "", "load(in7[direction * ", 3 * hidden_, " + ",
                 which * hidden_, " + unit])");
    };
    const std::string peepholes =
        has(kP) ? str("{", peephole(0), peephole(1), peephole(2), "}, ") : std::string();
    return str("float* const c = state + ", int64_t{2} * rows_ * row_,
               " + place;\nfloat cell = *c;\n", "const float value = next_state({", sum(0, 0), ", ",
               sum(1, 1), ", ", sum(2, 2), ", ", sum(3, 3), "}, ", peepholes,
               "cell, direction);\nif (step < length) *c = cell;\n", finish_unit());
  }

  std::string gru() const {
    return str("const float value = next_state({", sum(0, 0), ", ", sum(1, 1), ", from_x[2] + ",
               bias(2, false), ", from_h[2] + ", bias(2, true), "}, h_before, direction);\n",
               finish_unit());
  }

  /// The candidate's product needs the reset gates of all units.
  void gru_in_two() {
    text_ += str("float* const z = state + ", int64_t{2} * rows_ * row_,
                 ";\nfloat* const reset = state + ", int64_t{3} * rows_ * row_, ";\n");
    sources("reset_rows", "float",
            [&](const std::string& r) { return str("reset + ", r, " * ", row_); });
    begin_units();
    products(0, 2);
    text_ += str("z[place] = gate0(", sum(0, 0), ", direction);\nreset[place] = h_before * gate0(",
                 sum(1, 1), ", direction);\n");
    end_units();
    begin_units();
    products(2, 3, "reset_rows");
    text_ += str("const float value = mix_states(z[place], ", sum(2, 0),
                 ", h_before, direction);\n", finish_unit());
    end_units();
  }

  const RecurrenceParams& params_;
  const KernelArgs& args_;
  KernelSource source_;
  const int64_t hidden_, input_;
  const int gates_;
  const RecurrentPlan plan_;
  const int rows_;
  const bool is_lstm_, resets_first_;
  const std::string_view stored_;
  int warps_ = 1;
  int64_t input_width_ = 1, state_width_ = 1;
  int64_t row_ = 0, state_ = 0;  ///< floats of a row's state, and of all that a block has
  bool is_shared_ = true;
  int64_t units_ = 0;  ///< of a block
  bool keeps_r_ = false, keeps_w_ = false;
  std::string text_;
};

std::vector<Candidate> recurrence_candidates(const Operator& op, const CandidateQuery& query) {
  for (const int i : {kW, kR})
    if (query.inputs[i].min != query.inputs[i].max) return {};
  const RecurrenceParams& params = static_cast<const Recurrence&>(op).params();
  const int architecture = target_architecture(query);
  // What is likely the fastest comes first, and what is not for this GPU is left out.
  enum Rank { kTiles, kCluster, kOther, kNone };
  std::vector<Rank> ranks;
  const std::vector<Candidate> all = moving_candidates(query, [&](const KernelArgs& args) {
    const bool is_float = args.inputs[kX].type.dtype == DataType::kFLOAT;
    const Ways<RecurrentPlan> plans = recurrent_plans(params, args);
    for (const RecurrentPlan& plan : plans.listed(query.all_tactics)) {
      const bool is_tiled = plan.tiles > 0, is_cluster = plan.blocks > 1;
      const bool fits = is_tiled ? fits_tiles(plan, args, architecture)
                                 : !is_cluster || architecture >= kClusterArchitecture;
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
  if (plan.tiles > 0) return generate_recurrent_tiles(params, args, plan);
  return RecurrenceWriter(params, args, plan).write();
}

const RegisteredKernels<Recurrence> kRecurrenceKernels({.candidates = recurrence_candidates,
                                                        .generate = generate_recurrence,
                                                        .make = nullptr,
                                                        .tactics = recurrence_tactics});

}  // namespace

std::string RecurrentPlan::name() const {
  const std::string text =
      str(is_rounded ? "TF32 " : "", rows, rows == 1 ? " row per " : " rows per ",
          blocks == 1 ? std::string("block") : str("cluster of ", blocks));
  return text + (tiles > 0 ? ", tensor cores" : "");
}

void check_recurrent_shapes(KernelSource& source, const KernelArgs& args) {
  const SymShape& x = source.dims(kX);
  const auto require_extent = [&](RecurrentPort port, int axis, const Expr& extent) {
    if (static_cast<size_t>(port) < args.inputs.size() && args.inputs[port].present)
      source.check(Expr::make(ExprOp::kEqual, source.dims(port)[axis], extent),
                   str("input ", static_cast<int>(port), " must fit the sequences on axis ", axis));
  };
  require_extent(kX, 2, Expr(args.inputs[kW].max[2]));
  require_extent(kLengths, 0, x[1]);
  require_extent(kInitialH, 1, x[1]);
  require_extent(kInitialC, 1, x[1]);
}

void declare_recurrent_cell(KernelSource& source, const RecurrenceParams& params,
                            bool has_peepholes, bool is_quick) {
  std::string text = is_quick ? include("quick_activations.cuh") : std::string();
  const int count = activation_count(params.cell);
  for (int i = 0; i < count; ++i) {
    std::string of[2];
    for (int d = 0; d < params.directions(); ++d) {
      const auto at = static_cast<size_t>(int64_t{d} * count + i);
      of[d] = recurrent_activation(params.activations[at], params.alphas[at], params.betas[at],
                                   is_quick);
    }
    const bool is_one = params.directions() == 1 || of[0] == of[1];
    text += str("__device__ inline float activation", i, "(float x, Index direction) {\nreturn ",
                is_one ? of[0] : str("direction == 0 ? (", of[0], ") : (", of[1], ")"), ";\n}\n");
  }
  const std::string limit = float_literal(static_cast<float>(params.clip));
  text += str("__device__ inline float clipped(float x) {\nreturn ",
              params.clip > 0
                  ? str("x > ", limit, " ? ", limit, " : x < -", limit, " ? -", limit, " : x")
                  : std::string("x"),
              ";\n}\n");
  for (int i = 0; i < std::min(count, 2); ++i)
    text +=
        str("__device__ inline float gate", i, "(float sum, Index direction) {\nreturn activation",
            i, "(clipped(sum), direction);\n}\n");
  if (params.cell == RecurrentCell::kLSTM) {
    const auto peephole = [&](int which, std::string_view of) {
      return has_peepholes ? str(" + peepholes[", which, "] * ", of) : std::string();
    };
    text += str("__device__ inline float next_state(const float (&sums)[4], ",
                has_peepholes ? "const float (&peepholes)[3], " : "",
                "float& cell, Index direction) {\nconst float in = gate0(sums[0]",
                peephole(0, "cell"), ", direction);\nconst float forget = ",
                params.input_forget ? std::string("1.0f - in")
                                    : str("gate0(sums[2]", peephole(2, "cell"), ", direction)"),
                ";\ncell = forget * cell + in * gate1(sums[3], direction);\n",
                "const float out = gate0(sums[1]", peephole(1, "cell"), ", direction);\n",
                // The cell is no sum of a gate: ONNX Runtime does not clip it.
                "return out * activation2(cell, direction);\n}\n");
  } else if (params.cell == RecurrentCell::kGRU) {
    text +=
        "__device__ inline float mix_states(float z, float sum, float before, Index direction) "
        "{\nconst float candidate = gate1(sum, direction);\n"
        "return candidate + z * (before - candidate);\n}\n"
        "__device__ inline float next_state(const float (&sums)[4], float before, Index "
        "direction) {\nconst float z = gate0(sums[0], direction), r = gate0(sums[1], "
        "direction);\nreturn mix_states(z, sums[2] + r * sums[3], before, direction);\n}\n";
  }
  source.add_declarations(text);
}

}  // namespace opwright::gpu
