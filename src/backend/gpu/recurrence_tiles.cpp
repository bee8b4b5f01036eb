#include <algorithm>
#include <bit>

#include "backend/candidates.h"
#include "backend/gpu/product.h"
#include "backend/gpu/recurrence.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// Registers of a thread for weights of the state at most.
constexpr int64_t kWeightRegisters = 128;
constexpr int kMostWarps = 8, kMostTiles = 4, kMostBlocks = 16;
/// A block's units at least, unless it has all.
constexpr int64_t kFewestUnits = 16;
/// In front of the rest of shared memory: two barriers, and behind 32 bytes the rows' lengths.
constexpr int64_t kHeadBytes = 256;
/// Fewer units leave most of a tile's work undone.
constexpr int64_t kFewestTiledUnits = 16;

/// How a block's shared memory is divided: head, two states, inputs of some steps, their sums, and
/// the input's weights where there is room.
struct TileMemory {
  int steps = 0;  ///< at once; 0: there is no room
  bool keeps_w = false;
  int64_t state = 0, inputs = 0, sums = 0, total = 0;

  TileMemory(const RecurrentPlan& plan, const KernelArgs& args, int architecture) {
    const int64_t size = element_size(args.inputs[kX].type.dtype);
    const int64_t input = args.inputs[kW].max[2];
    const auto parts = [&](int64_t length) { return (length * size + 63) / 64; };
    const int64_t units = int64_t{4} * plan.tiles * plan.warps;
    const int64_t row = parts(input) * 64 + (parts(input) % 2 == 0 ? 64 : 0);
    const int64_t threads = int64_t{32} * plan.warps;
    state = parts(units * plan.blocks) * plan.rows * 64;
    const int64_t kept = parts(input) * plan.tiles * threads * 32;
    constexpr int64_t kMostSteps = 8, kStepsWithWeights = 4;
    const int64_t typical = std::clamp<int64_t>(args.inputs[kX].opt[0], 1, kMostSteps);
    for (const bool keeps : {true, false})
      for (int64_t n = kMostSteps; n >= (keeps ? kStepsWithWeights : 1) && steps == 0; n /= 2) {
        if (n >= 2 * typical) continue;
        keeps_w = keeps;
        inputs = n * plan.rows * row;
        sums = n * plan.rows / 8 * plan.tiles * threads * 16;
        total = kHeadBytes + 2 * state + inputs + sums + (keeps ? kept : 0);
        if (total <= most_shared_memory(architecture)) steps = static_cast<int>(n);
      }
  }
};

/// A cluster, or a block alone, runs some rows of the batch through all steps of a direction. Each
/// block keeps the state's weights of some units in its registers, multiplies the whole state by
/// them on tensor cores, and sends the units' next state to all blocks. What the inputs add is
/// computed for several steps at once.
class RecurrentTileWriter {
 public:
  RecurrentTileWriter(const RecurrenceParams& params, const KernelArgs& args,
                      const RecurrentPlan& plan)
      : params_(params),
        args_(args),
        plan_(plan),
        source_("recurrence", args),
        type_(args.inputs[kX].type.dtype),
        hidden_(args.inputs[kR].max[2]),
        input_(args.inputs[kW].max[2]),
        gates_(gate_count(params.cell)),
        is_lstm_(params.cell == RecurrentCell::kLSTM),
        memory_(plan, args, target_architecture(args)) {}

  GeneratedKernel write() {
    const SymShape& x = source_.dims(kX);
    check_recurrent_shapes(source_, args_);
    declare();
    const Expr groups = ceil_div(x[1], Expr(plan_.rows));
    if (!args_.inputs[kR].is_constant) wait();
    text_ += str(
        "extern __shared__ uint4 memory[];\n",
        is_cluster() ? "const unsigned barriers = shared_address(memory);\n" : "",
        "Index* const lengths = (Index*)(memory + 2);\nchar* const state = (char*)memory + ",
        kHeadBytes, ";\nchar* const inputs = state + 2 * kStateBytes;\n",
        "float4* const sums = (float4*)(inputs + ", memory_.inputs, ");\n",
        memory_.keeps_w ? str("uint4* const kept_w = (uint4*)((char*)sums + ", memory_.sums, ");\n")
                        : std::string(),
        "const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;\n",
        "const Index steps = ", source_.value(x[0]), ", batch = ", source_.value(x[1]),
        ", groups = ", source_.value(groups), ";\n",
        "const int rank = (int)((Index)blockIdx.x % kBlocks);\n",
        "const Index task = (Index)blockIdx.x / kBlocks, direction = task / groups, "
        "first = task % groups * kRows;\n",
        "const bool is_reverse = ",
        params_.direction == RecurrentDirection::kREVERSE ? "true" : "direction == 1", ";\n",
        // Of the lane's sums, and its unit and row in each tile.
        "const int low = lane / 16, high = low + 2, own_unit = lane / 4 % 4, "
        "own_row = lane % 4 * 2 + lane / 16;\n",
        "const int first_unit = rank * kUnits + warp * kTiles * 4 + own_unit;\n");
    load_weights();
    wait();
    begin();
    text_ += "for (Index chunk = 0; chunk < most; chunk += kSteps) {\n";
    multiply_inputs();
    text_ +=
        "#pragma unroll 1\nfor (int s = 0; s < kSteps; ++s) {\nconst Index step = chunk + s;\n"
        "if (step >= most) break;\n"
        "float step_sums[kTiles][kColumns][4];\nload_sums(step_sums, sums, s);\n";
    if (resets_first(params_))
      step_in_two();
    else
      step();
    // What other blocks send must be there before the block ends.
    text_ +=
        str("}\n}\nwait_for_copies<0>();\n", receive(resets_first(params_) ? "(2 * most)" : "most"),
            is_cluster() ? "sync_cluster();\n" : "");
    end();
    GeneratedKernel kernel = source_.finish(text_, groups * params_.directions() * plan_.blocks,
                                            plan_.warps * kWarp, 1, plan_.blocks);
    kernel.launch.shared_memory = memory_.total;
    return kernel;
  }

 private:
  bool has(RecurrentPort port) const {
    return static_cast<size_t>(port) < args_.inputs.size() && args_.inputs[port].present;
  }
  bool is_cluster() const { return plan_.blocks > 1; }
  /// Behind it all inputs may be read; before, those that are constants.
  void wait() {
    if (!waits_) text_ += str(source_.wait(), KernelSource::kBeginNext);
    waits_ = true;
  }

  void declare() {
    const bool is_float = type_ == DataType::kFLOAT;
    const auto flag = [](bool is_on) { return is_on ? "true" : "false"; };
    source_.add_declarations(
        str("typedef ", storage_type(type_), " Element;\ntypedef float Sum;\n",
            "constexpr int kRows = ", plan_.rows, ", kTiles = ", plan_.tiles,
            ", kWarps = ", plan_.warps, ", kBlocks = ", plan_.blocks, ", kSteps = ", memory_.steps,
            ";\nconstexpr int kHidden = ", hidden_, ", kInput = ", input_,
            ";\nconstexpr bool kSplits = ", flag(is_float && !plan_.is_rounded), ", kRounds = ",
            flag(is_float && plan_.is_rounded), ";\n", include("recurrence_tiles.cuh")));
    if (is_cluster()) source_.add_declarations(include("recurrence_tile_cluster.cuh"));
    declare_recurrent_cell(source_, params_, has(kP), !is_float);
    // Of the slots, which gates are there; -1: none.
    const bool is_gru = params_.cell == RecurrentCell::kGRU;
    const std::string_view of_x = is_lstm_ ? "slot"
                                  : is_gru ? "slot < 3 ? slot : -1"
                                           : "slot == 0 ? 0 : -1";
    const std::string_view of_h =
        is_gru && params_.linear_before_reset ? "slot < 2 ? slot : slot == 3 ? 2 : -1" : of_x;
    source_.add_declarations(str("__device__ inline int gate_of_x(int slot) { return ", of_x,
                                 "; }\n__device__ inline int gate_of_h(int slot) { return ", of_h,
                                 "; }\n"));
  }

  std::string is_aligned(RecurrentPort port, int64_t length) const {
    const int64_t width = 16 / element_size(type_);
    if (length % width != 0) return "false";
    return str("is_aligned<Element, ", width, ">(in", static_cast<int>(port), ")");
  }
  /// The fragment of the lane's unit in `tile`, at a part.
  std::string fragment(RecurrentPort port, std::string_view tile, std::string_view part) const {
    const bool is_x = port == kW;
    const std::string_view name = is_x ? "x" : "h";
    return str("fetch_weights(weights_", name, ", gate_of_", name, "(low), gate_of_", name,
               "(high), first_unit + 4 * ", tile, ", ", part, ", ", is_x ? "kInput" : "kHidden",
               ", is_aligned_", name, ")");
  }

  /// Weights of the state to registers, and those of the input to shared memory.
  void load_weights() {
    const auto matrix = [&](RecurrentPort port, std::string_view name, int64_t length) {
      return str("const Element* const weights_", name, " = in", static_cast<int>(port),
                 " + direction * ", gates_ * hidden_, " * ", length, ";\nconst bool is_aligned_",
                 name, " = ", is_aligned(port, length), ";\n");
    };
    text_ += str(matrix(kR, "h", hidden_),
                 "Fragment fragments[kTiles][kPartsH];\n#pragma unroll\n"
                 "for (int t = 0; t < kTiles; ++t)\n#pragma unroll\n"
                 "for (int p = 0; p < kPartsH; ++p) fragments[t][p] = ",
                 fragment(kR, "t", "p"), ";\n");
    if (!args_.inputs[kW].is_constant) wait();
    text_ += matrix(kW, "x", input_);
    if (!memory_.keeps_w) return;
    text_ +=
        str("for (int t = 0; t < kTiles; ++t)\nfor (int p = 0; p < kPartsX; ++p) {\n"
            "const Fragment one = ",
            fragment(kW, "t", "p"),
            ";\nuint4* const to = kept_w + ((t * kPartsX + p) * kWarps + warp) * 64 + lane;\n"
            "to[0] = one.low, to[32] = one.high;\n}\n");
  }

  /// What is there before the first step.
  void begin() {
    if (is_cluster())
      text_ +=
          "if (threadIdx.x == 0) {\ninit_barrier(barriers, 1);\ninit_barrier(barriers + 8, "
          "1);\nend_barriers_init();\nexpect(barriers, kSentBytes);\n"
          "expect(barriers + 8, kSentBytes);\n}\n";
    text_ += str(
        "for (int i = (int)threadIdx.x; i < 2 * kStateBytes / 16; i += kThreads)\n"
        "((uint4*)state)[i] = make_uint4(0, 0, 0, 0);\n"
        "if (threadIdx.x < kRows) {\nconst Index row = first + (Index)threadIdx.x;\n"
        "(void)row;\n",
        has(kLengths) ? "const int given = in4[row < batch ? row : batch - 1];\n"
                        "lengths[threadIdx.x] = given < 0 ? 0 : given < steps ? given : steps;\n"
                      : "lengths[threadIdx.x] = steps;\n",
        "}\n__syncthreads();\nIndex most = 0;\nfor (int r = 0; r < kRows; ++r) most = "
        "lengths[r] > most ? lengths[r] : most;\n");
    if (has(kInitialH))
      text_ +=
          "for (int i = (int)threadIdx.x; i < kRows * kHidden; i += kThreads) {\n"
          "const int r = i / kHidden, unit = i % kHidden;\nif (first + r < batch)\n"
          "*place_in_state(state, r, unit) = in5[(direction * batch + first + r) * kHidden + "
          "unit];\n}\n";
    text_ +=
        str("float own[kTiles][kColumns] = {};\n",
            is_lstm_ ? "float cells[kTiles][kColumns] = {};\n" : "",
            "float biases[kTiles][2] = {};\n", has(kP) ? "float peepholes[kTiles][3] = {};\n" : "");
    std::string of_unit;
    if (has(kB))
      of_unit += str("const Element* const bias = in3 + direction * ", 2 * gates_ * hidden_,
                     " + unit;\n#pragma unroll\nfor (int i = 0; i < 2; ++i) {\n"
                     "const int x = gate_of_x(low + 2 * i), h = gate_of_h(low + 2 * i);\n"
                     "if (x >= 0) biases[t][i] += load(bias[x * kHidden]);\n"
                     "if (h >= 0) biases[t][i] += load(bias[(",
                     gates_, " + h) * kHidden]);\n}\n");
    if (has(kP))
      of_unit +=
          str("for (int i = 0; i < 3; ++i) peepholes[t][i] = load(in7[(direction * 3 + i) * "
              "kHidden + unit]);\n");
    std::string of_row;
    if (has(kInitialH)) of_row += "own[t][c] = load(in5[outer]);\n";
    if (is_lstm_ && has(kInitialC)) of_row += "cells[t][c] = load(in6[outer]);\n";
    if (!of_row.empty())
      of_row =
          str("#pragma unroll\nfor (int c = 0; c < kColumns; ++c) {\n"
              "const Index n = first + c * 8 + own_row;\nif (n >= batch) continue;\n"
              "const Index outer = (direction * batch + n) * kHidden + unit;\n",
              of_row, "}\n");
    if (!of_unit.empty() || !of_row.empty())
      text_ +=
          str("#pragma unroll\nfor (int t = 0; t < kTiles; ++t) {\n"
              "const int unit = first_unit + 4 * t;\nif (unit >= kHidden) continue;\n",
              of_unit, of_row, "}\n");
    text_ +=
        str("const bool is_aligned_input = ", is_aligned(kX, input_),
            ";\nconst auto copy_steps = [&](Index from) {\nif (from >= most) return;\n"
            "for (int i = (int)threadIdx.x; i < kSteps * kRows * kPartsX * 4; i += kThreads) {\n"
            "const int row = i / (kPartsX * 4), piece = i % (kPartsX * 4), r = row % kRows;\n"
            "const Index step = from + row / kRows, length = lengths[r];\n"
            "const Index n = first + r < batch ? first + r : batch - 1;\n"
            "const Index at = step < length ? is_reverse ? length - 1 - step : step : 0;\n"
            "copy_inputs(inputs + row * kInputBytes + piece * 16, in0 + (at * batch + n) * ",
            input_, ", piece * kOf16, is_aligned_input);\n}\nend_copies();\n};\ncopy_steps(0);\n",
            is_cluster() ? "sync_cluster();\n" : "");
  }

  void multiply_inputs() {
    text_ +=
        str("wait_for_copies<0>();\n__syncthreads();\n"
            "multiply_inputs(sums, inputs, [&](int t, int p) -> Fragment {\n",
            memory_.keeps_w
                ? std::string("const uint4* const from = kept_w + ((t * kPartsX + p) * kWarps "
                              "+ warp) * 64 + lane;\nreturn {from[0], from[32]};\n")
                : str("return ", fragment(kW, "t", "p"), ";\n"),
            "}, biases);\n__syncthreads();\ncopy_steps(chunk + kSteps);\n");
  }

  /// Before a state is read: number `number` of those that were exchanged, of which 0 was there.
  std::string receive(std::string_view number) const {
    if (!is_cluster()) return {};
    return str("if (", number, " > 0) {\nconst unsigned barrier = barriers + (unsigned)(", number,
               " % 2) * 8;\nwait(barrier, (unsigned)((", number, " - 1) / 2 % 2));\n",
               "if (threadIdx.x == 0) expect(barrier, kSentBytes);\n}\n");
  }
  /// Behind what the block has written of it.
  std::string send(std::string_view number) const {
    if (!is_cluster()) return "__syncthreads();\n";
    return str("__syncthreads();\nsend_state(state + ", number, " % 2 * kStateBytes, rank, ",
               "barriers + (unsigned)(", number, " % 2) * 8);\n");
  }
  static std::string place(std::string_view number) {
    return str("state + ", number, " % 2 * kStateBytes");
  }

  /// Runs for each of the lane's units and rows, with what the gates are made of in `slots`.
  std::string each_unit(std::string_view statements, bool has_slots = true) const {
    return str(
        "#pragma unroll\nfor (int t = 0; t < kTiles; ++t)\n#pragma unroll\n"
        "for (int c = 0; c < kColumns; ++c) {\n",
        has_slots ? "float slots[4];\nexchange_slots(step_sums[t][c], slots);\n" : "",
        "const int unit = first_unit + 4 * t, row = c * 8 + own_row;\n"
        "const Index n = first + row;\nconst bool is_there = unit < kHidden && n < batch;\n"
        "(void)is_there;\n",
        statements, "}\n");
  }
  /// `value`, the unit's state behind the step, unless the sequence has ended.
  std::string finish_unit(std::string_view next) const {
    return str("const Index length = lengths[row];\nif (step < length) {\nown[t][c] = value;\n",
               is_lstm_ ? "cells[t][c] = cell;\n" : "",
               "const Index at = is_reverse ? length - 1 - step : step;\n"
               "if (is_there) out0[((at * ",
               params_.directions(),
               " + direction) * batch + n) * kHidden + unit] = store<Element>(value);\n}\n",
               // Others multiply it by zeros, of which an infinity made NaN.
               "*place_in_state(", place(next),
               ", row, unit) = store<Element>(unit < kHidden ? own[t][c] : 0.0f);\n");
  }

  void step() {
    std::string value;
    if (is_lstm_)
      value = str("float cell = cells[t][c];\nconst float value = next_state(slots, ",
                  has(kP) ? "peepholes[t], " : "", "cell, direction);\n");
    else if (params_.cell == RecurrentCell::kGRU)
      value = "const float value = next_state(slots, own[t][c], direction);\n";
    else
      value = "const float value = gate0(slots[0], direction);\n";
    text_ +=
        str(receive("step"), "multiply_state<true, true>(step_sums, ", place("step"),
            ", fragments);\n", each_unit(value + finish_unit("(step + 1)")), send("(step + 1)"));
  }

  /// The candidate's product needs the reset gates of all units.
  void step_in_two() {
    text_ +=
        str("float updates[kTiles][kColumns];\n", receive("(2 * step)"),
            "multiply_state<true, false>(step_sums, ", place("(2 * step)"), ", fragments);\n",
            each_unit(str("(void)n;\nupdates[t][c] = gate0(slots[0], direction);\n"
                          "const float reset = own[t][c] * gate0(slots[1], direction);\n"
                          "*place_in_state(",
                          place("(2 * step + 1)"),
                          ", row, unit) = store<Element>(unit < kHidden ? reset : 0.0f);\n")),
            send("(2 * step + 1)"), receive("(2 * step + 1)"),
            "multiply_state<false, true>(step_sums, ", place("(2 * step + 1)"), ", fragments);\n",
            each_unit("const float value = mix_states(updates[t][c], slots[2], own[t][c], "
                      "direction);\n" +
                      finish_unit("(2 * step + 2)")),
            send("(2 * step + 2)"));
  }

  void end() {
    text_ += each_unit(
        str("if (!is_there) continue;\nconst Index outer = (direction * batch + n) * kHidden + "
            "unit;\nout1[outer] = store<Element>(own[t][c]);\n",
            is_lstm_ ? "out2[outer] = store<Element>(cells[t][c]);\n" : "",
            has(kLengths)
                ? str("for (Index step = lengths[row]; step < steps; ++step)\nout0[((step * ",
                      params_.directions(),
                      " + direction) * batch + n) * kHidden + unit] = store<Element>(0.0f);\n")
                : std::string()),
        false);
  }

  const RecurrenceParams& params_;
  const KernelArgs& args_;
  const RecurrentPlan plan_;
  KernelSource source_;
  const DataType type_;
  const int64_t hidden_, input_;
  const int gates_;
  const bool is_lstm_;
  const TileMemory memory_;
  bool waits_ = false;
  std::string text_;
};

}  // namespace

std::vector<RecurrentPlan> recurrent_tile_plans(const RecurrenceParams& params,
                                                const KernelArgs& args) {
  const DataType type = args.inputs[kX].type.dtype;
  const int64_t hidden = args.inputs[kR].max[2], batch = args.inputs[kX].opt[1];
  if (hidden < kFewestTiledUnits) return {};
  const int64_t parts = (hidden * element_size(type) + 63) / 64;
  std::vector<RecurrentPlan> plans;
  for (int blocks = kMostBlocks; blocks >= 1; blocks /= 2) {
    const int64_t tiles = ((hidden + 3) / 4 + blocks - 1) / blocks;
    if (tiles > kMostTiles * kMostWarps || (blocks > 1 && 4 * tiles < kFewestUnits)) continue;
    RecurrentPlan plan;
    plan.rows = 8, plan.blocks = blocks;
    plan.tiles = static_cast<int>(std::bit_ceil<uint64_t>((tiles + kMostWarps - 1) / kMostWarps));
    plan.warps = static_cast<int>((tiles + plan.tiles - 1) / plan.tiles);
    if (plan.tiles * plan.warps % 2 != 0) ++plan.warps;  // pieces of 16 bytes
    if (8 * parts * plan.tiles > kWeightRegisters) continue;
    for (const bool is_rounded : {false, true}) {
      if (is_rounded && type != DataType::kFLOAT) continue;
      plan.is_rounded = is_rounded, plan.rows = 8;
      plans.push_back(plan);
      plan.rows = 16;
      if (batch > 8 && (batch + 7) / 8 * params.directions() * blocks > kFewBlocks)
        plans.push_back(plan);
    }
  }
  return plans;
}

std::vector<std::string> recurrent_tile_names() {
  std::vector<std::string> names;
  for (int blocks = kMostBlocks; blocks >= 1; blocks /= 2)
    for (const int rows : {8, 16})
      for (const bool is_rounded : {false, true})
        names.push_back(RecurrentPlan{rows, blocks, 1, 1, is_rounded}.name());
  return names;
}

bool fits_tiles(const RecurrentPlan& plan, const KernelArgs& args, int architecture) {
  const int first = plan.blocks > 1 ? kClusterArchitecture : kTensorArchitecture;
  return architecture >= first && TileMemory(plan, args, architecture).steps > 0;
}

GeneratedKernel generate_recurrent_tiles(const RecurrenceParams& params, const KernelArgs& args,
                                         const RecurrentPlan& plan) {
  return RecurrentTileWriter(params, args, plan).write();
}

}  // namespace opwright::gpu
