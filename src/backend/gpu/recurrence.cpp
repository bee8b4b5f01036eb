#include "operators/recurrence.h"

#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

enum RecurrentPort { kX, kW, kR, kB, kLengths, kInitialH, kInitialC, kP };

constexpr int kRecurrentThreads = 1024;
/// Of a block's states; longer ones lie in global memory.
constexpr int64_t kStateBytes = 40960;
/// Blocks that fill a GPU: then each takes several rows of the batch, for which it reads the
/// weights once.
constexpr int64_t kEnoughBlocks = 128;

constexpr std::string_view kMultiply = R"(
// What a lane has of the products of some rows of x with one row of each gate's weights.
template <int width, int gates, int rows, class W, class X>
__device__ inline void multiply(const W* weights, Index gate_stride, const X* const (&x)[rows],
                                Index length, int lane, float (&sums)[gates][rows]) {
#pragma unroll 2
  for (Index k = lane * width; k < length; k += 32 * width) {
    Pack<X, width> values[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r) values[r] = *(const Pack<X, width>*)(x[r] + k);
#pragma unroll
    for (int g = 0; g < gates; ++g) {
      const Pack<W, width> row = *(const Pack<W, width>*)(weights + g * gate_stride + k);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const float weight = load(row.at[i]);
#pragma unroll
        for (int r = 0; r < rows; ++r) sums[g][r] += weight * load(values[r].at[i]);
      }
    }
  }
}
// The sums over all lanes; lane r has those of row r.
template <int gates, int rows>
__device__ inline void collect(float (&sums)[gates][rows], int lane, float (&own)[gates]) {
#pragma unroll
  for (int g = 0; g < gates; ++g)
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      float sum = sums[g][r];
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      if (r == 0 || lane == r) own[g] = sum;
    }
}
)";

/// An activation as an expression of x.
std::string recurrent_activation(int64_t kind, double alpha, double beta) {
  const std::string a = float_literal(static_cast<float>(alpha));
  const std::string b = float_literal(static_cast<float>(beta));
  switch (static_cast<RecurrentActivation>(kind)) {
    case RecurrentActivation::kRELU:
      return "x < 0.0f ? 0.0f : x";
    case RecurrentActivation::kTANH:
      return "tanhf(x)";
    case RecurrentActivation::kSIGMOID:
      return "1.0f / (1.0f + expf(-x))";
    case RecurrentActivation::kAFFINE:
      return str(a, " * x + ", b);
    case RecurrentActivation::kLEAKY_RELU:
      return str("x < 0.0f ? ", a, " * x : x");
    case RecurrentActivation::kTHRESHOLDED_RELU:
      return str("x < ", a, " ? 0.0f : x");
    case RecurrentActivation::kSCALED_TANH:
      return str(a, " * tanhf(", b, " * x)");
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

/// Rows of the batch for a block that are worth trying, the best guess first.
std::vector<int> recurrent_rows(const RecurrenceParams& params, const Shape& x) {
  const int64_t tasks = params.directions() * x[1];
  if (x[1] <= 1) return {1};
  if (tasks <= kEnoughBlocks) return {1, 2};
  return {4, 2};
}

/// A block runs some rows of the batch through all steps of a direction, with their states beside
/// it: no blocks wait for each other. A warp makes one hidden unit at a time, all of whose gates it
/// sums over its lanes.
class RecurrenceWriter {
 public:
  RecurrenceWriter(const RecurrenceParams& params, const KernelArgs& args)
      : params_(params),
        args_(args),
        source_("recurrence", args),
        hidden_(args.inputs[kR].max[2]),
        input_(args.inputs[kW].max[2]),
        gates_(gate_count(params.cell)),
        rows_(recurrent_rows(params, args.inputs[kX].opt).at(args.candidate->tactic)),
        is_lstm_(params.cell == RecurrentCell::kLSTM),
        resets_first_(params.cell == RecurrentCell::kGRU && !params.linear_before_reset),
        stored_(storage_type(args.inputs[kX].type.dtype)) {
    warps_ = static_cast<int>(
        std::clamp<int64_t>(hidden_, 1, (rows_ > 2 ? 512 : kRecurrentThreads) / kWarp));
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
  }

  GeneratedKernel write() {
    const SymShape& x = source_.dims(kX);
    check_shapes();
    source_.add_declarations(kMultiply);
    declare_activations();
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
        str("const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;\n",
            is_shared_ ? str("__shared__ Pack<float, 4> memory[", std::max<int64_t>(1, state_ / 4),
                             "];\nfloat* const state = (float*)memory;\n")
                       : str("float* const state = scratch + (Index)blockIdx.x * ", state_, ";\n"),
            "const Index steps = ", source_.value(x[0]), ", batch = ", source_.value(x[1]),
            ", groups = ", source_.value(groups), ";\nfor (Index task = (Index)blockIdx.x; task < ",
            source_.value(tasks), "; task += (Index)gridDim.x) {\n",
            "const Index direction = task / groups, first = task % groups * ", rows_, ";\n");
    text_ += str("const bool is_reverse = ",
                 params_.direction == RecurrentDirection::kREVERSE ? "true" : "direction == 1",
                 ";\nconst Index own = first + lane < batch ? first + lane : batch - 1;\n",
                 "const bool has_row = lane < ", rows_, " && first + lane < batch;\n");
    lengths();
    load_states();
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
    } else {
      begin_units();
      products(0, gates_);
      text_ += is_lstm_ ? lstm() : params_.cell == RecurrentCell::kGRU ? gru() : rnn();
      end_units();
    }
    text_ += "}\n";
    store_states();
    text_ += "}\n";
    return source_.finish(text_, tasks, warps_ * kWarp);
  }

 private:
  bool has(RecurrentPort port) const {
    return static_cast<size_t>(port) < args_.inputs.size() && args_.inputs[port].present;
  }

  void check_shapes() {
    const SymShape& x = source_.dims(kX);
    const auto require_extent = [&](RecurrentPort port, int axis, const Expr& extent) {
      if (has(port))
        source_.check(
            Expr::make(ExprOp::kEqual, source_.dims(port)[axis], extent),
            str("input ", static_cast<int>(port), " must fit the sequences on axis ", axis));
    };
    require_extent(kX, 2, Expr(input_));
    require_extent(kLengths, 0, x[1]);
    require_extent(kInitialH, 1, x[1]);
    require_extent(kInitialC, 1, x[1]);
  }

  void declare_activations() {
    const int count = activation_count(params_.cell);
    for (int i = 0; i < count; ++i) {
      std::string of[2];
      for (int d = 0; d < params_.directions(); ++d) {
        const size_t at = static_cast<size_t>(d * count + i);
        of[d] =
            recurrent_activation(params_.activations[at], params_.alphas[at], params_.betas[at]);
      }
      const bool is_one = params_.directions() == 1 || of[0] == of[1];
      source_.add_declarations(
          str("__device__ inline float activation", i, "(float x, Index direction) {\nreturn ",
              is_one ? of[0] : str("direction == 0 ? (", of[0], ") : (", of[1], ")"), ";\n}\n"));
    }
    const std::string limit = float_literal(static_cast<float>(params_.clip));
    source_.add_declarations(str("__device__ inline float clipped(float x) {\nreturn ",
                                 params_.clip > 0 ? str("x > ", limit, " ? ", limit, " : x < -",
                                                        limit, " ? -", limit, " : x")
                                                  : std::string("x"),
                                 ";\n}\n"));
  }
  static std::string gate(int function, std::string_view sum) {
    return str("activation", function, "(clipped(", sum, "), direction)");
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
    text_ += each_state(str("(void)is_there, (void)outer;\nstate[r * ", row_,
                            " + j] = ", has(kInitialH) ? "load(in5[outer])" : "0.0f", ";\n",
                            is_lstm_ ? str("state[", 2 * rows_ * row_, " + r * ", row_, " + j] = ",
                                           has(kInitialC) ? "load(in6[outer])" : "0.0f", ";\n")
                                     : std::string()));
    text_ += "__syncthreads();\n";
  }
  void store_states() {
    text_ += each_state(str(
        "if (!is_there) continue;\nout1[outer] = store<", stored_, ">(state[most % 2 * ",
        rows_ * row_, " + r * ", row_, " + j]);\n",
        is_lstm_ ? str("out2[outer] = store<", stored_, ">(state[", 2 * rows_ * row_, " + r * ",
                       row_, " + j]);\n")
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
    text_ += str("for (Index unit = warp; unit < ", hidden_, "; unit += ", warps_, ") {\n");
  }
  void end_units() { text_ += "}\n__syncthreads();\n"; }

  /// `sums`, to which the weights at `from` of the gates [gate, end) are added times the rows.
  void add_product(std::string_view sums, int gate, int end, RecurrentPort port, int64_t length,
                   std::string_view rows, int64_t width) {
    const std::string weights = str("in", static_cast<int>(port), " + ((direction * ", gates_,
                                    " + ", gate, ") * ", hidden_, " + unit) * ", length);
    const auto call = [&](int64_t w) {
      return str("multiply<", w, ", ", end - gate, ", ", rows_, ">(", weights, ", ",
                 hidden_ * length, ", ", rows, ", ", length, ", lane, ", sums, ");\n");
    };
    if (width == 1) {
      text_ += call(1);
      return;
    }
    const auto aligned = [&](std::string_view pointer) {
      return str("is_aligned<", stored_, ", ", width, ">(", pointer, ")");
    };
    text_ += str("if (", aligned(str("in", static_cast<int>(port))),
                 port == kW ? str(" && ", aligned("in0")) : std::string(), ") ", call(width),
                 "else ", call(1));
  }

  /// Defines `from_x` and `from_h`, what input and state add to the gates [gate, end) of the unit
  /// in the lane's row, without biases.
  void products(int gate, int end, std::string_view h_rows = "h_rows") {
    text_ += str("float x_sums[", end - gate, "][", rows_, "] = {}, h_sums[", end - gate, "][",
                 rows_, "] = {};\n");
    add_product("x_sums", gate, end, kW, input_, "x_rows", input_width_);
    add_product("h_sums", gate, end, kR, hidden_, h_rows, state_width_);
    text_ += str("float from_x[", end - gate, "], from_h[", end - gate,
                 "];\ncollect(x_sums, lane, from_x);\ncollect(h_sums, lane, from_h);\n",
                 "if (!has_row) continue;\nconst Index place = lane * ", row_,
                 " + unit;\nconst float h_before = h[place];\n(void)h_before;\n");
    if (has(kB))
      text_ += str("const ", stored_, "* const bias = in3 + (direction * ", 2 * gates_ * hidden_,
                   " + unit);\n");
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

  /// Stores `value`, the unit's state behind the step, unless the sequence has ended.
  std::string finish_unit() const {
    return str("if (step < length) out0[((at * ", params_.directions(),
               " + direction) * batch + own) * ", hidden_, " + unit] = store<", stored_,
               ">(value);\nh_next[place] = step < length ? value : h_before;\n");
  }

  std::string rnn() const {
    return str("const float value = ", gate(0, sum(0, 0)), ";\n", finish_unit());
  }

  std::string lstm() const {
    const auto peephole = [&](int which, std::string_view cell) {
      return has(kP) ? str(" + load(in7[direction * ", 3 * hidden_, " + ", which * hidden_,
                           " + unit]) * ", cell)
                     : std::string();
    };
    return str("float* const c = state + ", 2 * rows_ * row_,
               " + place;\nconst float before = *c;\n",
               "const float in = ", gate(0, sum(0, 0) + peephole(0, "before")), ";\n",
               "const float forget = ",
               params_.input_forget ? std::string("1.0f - in")
                                    : gate(0, sum(2, 2) + peephole(2, "before")),
               ";\nconst float candidate = ", gate(1, sum(3, 3)),
               ";\nconst float cell = forget * before + in * candidate;\nconst float out = ",
               gate(0, sum(1, 1) + peephole(1, "cell")),
               // The cell is no sum of a gate: ONNX Runtime does not clip it.
               ";\nconst float value = out * activation2(cell, direction);\n",
               "if (step < length) *c = cell;\n", finish_unit());
  }

  std::string gru() const {
    return str(
        "const float z = ", gate(0, sum(0, 0)), ", r = ", gate(0, sum(1, 1)),
        ";\nconst float candidate = ",
        gate(1, str("from_x[2] + ", bias(2, false), " + r * (from_h[2] + ", bias(2, true), ")")),
        ";\nconst float value = candidate + z * (h_before - candidate);\n", finish_unit());
  }

  /// The candidate's product needs the reset gates of all units.
  void gru_in_two() {
    text_ += str("float* const z = state + ", 2 * rows_ * row_, ";\nfloat* const reset = state + ",
                 3 * rows_ * row_, ";\n");
    sources("reset_rows", "float",
            [&](const std::string& r) { return str("reset + ", r, " * ", row_); });
    begin_units();
    products(0, 2);
    text_ += str("z[place] = ", gate(0, sum(0, 0)), ";\nreset[place] = h_before * ",
                 gate(0, sum(1, 1)), ";\n");
    end_units();
    begin_units();
    products(2, 3, "reset_rows");
    text_ += str("const float candidate = ", gate(1, sum(2, 0)),
                 ";\nconst float value = candidate + z[place] * (h_before - candidate);\n",
                 finish_unit());
    end_units();
  }

  const RecurrenceParams& params_;
  const KernelArgs& args_;
  KernelSource source_;
  const int64_t hidden_, input_;
  const int gates_, rows_;
  const bool is_lstm_, resets_first_;
  const std::string_view stored_;
  int warps_ = 1;
  int64_t input_width_ = 1, state_width_ = 1;
  int64_t row_ = 0, state_ = 0;  ///< floats of a row's state, and of all that a block has
  bool is_shared_ = true;
  std::string text_;
};

std::vector<Candidate> recurrence_candidates(const Operator& op, const CandidateQuery& query) {
  for (const int i : {kW, kR})
    if (query.inputs[i].min != query.inputs[i].max) return {};
  return moving_candidates(query, [&](const KernelArgs& args) {
    std::vector<std::string> names;
    for (const int rows :
         recurrent_rows(static_cast<const Recurrence&>(op).params(), args.inputs[kX].opt))
      names.push_back(str(rows, rows == 1 ? " row per block" : " rows per block"));
    return names;
  });
}

std::optional<GeneratedKernel> generate_recurrence(const Operator& op, const KernelArgs& args) {
  return RecurrenceWriter(static_cast<const Recurrence&>(op).params(), args).write();
}

}  // namespace

KernelEntry recurrence_kernels() { return {recurrence_candidates, generate_recurrence, nullptr}; }

}  // namespace opwright::gpu
