#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/pointwise_math.h"
#include "backend/gpu/rows.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/fused_normalization.h"

namespace opwright::gpu {
namespace {

constexpr int kNormalizationThreads = 1024;
/// The most elements that a thread keeps in registers.
constexpr int64_t kKeptElements = 32;
/// With fewer rows, a small block for each row leaves most of a GPU idle.
constexpr int64_t kFewGroups = 256;
/// The most rows for which a block per row is among the candidates.
constexpr int64_t kFewNormalizedRows = 1024;
/// Blocks of a cluster that share a row, and the fewest elements for which this may pay: several
/// accesses of 16 bytes for each thread.
constexpr int kRowBlocks = 8;
constexpr int64_t kLongNormalizedRow = int64_t{4} * kRowBlocks * kNormalizationThreads;
/// Each cluster may normalize several rows.
constexpr int64_t kMostClusters = int64_t{1} << 20;

/// An axis of x, or several merged ones.
struct NormalizedAxis {
  Expr extent;
  bool is_reduced;
  Expr strides[3];  ///< in x, scale and bias
};

Expr equals(const Expr& a, const Expr& b) { return Expr::make(ExprOp::kEqual, a, b); }

/// Strides of scale or bias; 0 where it repeats.
SymShape affine_strides(const KernelSource& source, const KernelArgs& args, int input) {
  const SymShape& x = source.dims(0);
  SymShape strides(x.size(), Expr(0));
  if (static_cast<size_t>(input) >= args.inputs.size() || !args.inputs[input].present)
    return strides;
  const SymShape& own = source.dims(input);
  const SymShape steps = row_major_strides(own);
  const size_t missing = x.size() - own.size();
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i] == Expr(1)) continue;
    strides[missing + i] =
        own[i].is_constant() ? steps[i] : Expr::select(equals(own[i], Expr(1)), Expr(0), steps[i]);
  }
  return strides;
}

/// The axes, merged where possible and without axes of one element.
std::vector<NormalizedAxis> normalized_axes(const KernelSource& source, const KernelArgs& args,
                                            const NormalizationParams& params) {
  const SymShape& x = source.dims(0);
  const auto rank = static_cast<int>(x.size());
  const TensorFormat format = args.inputs[0].type.format;
  SymShape pitches(x.size(), Expr(1));
  Expr pitch(1);
  for (int place = rank; place-- > 0; pitch = pitch * x[axis_in_memory(format, rank, place)])
    pitches[axis_in_memory(format, rank, place)] = pitch;
  const SymShape strides[3] = {pitches, affine_strides(source, args, 1),
                               affine_strides(source, args, 2)};
  std::vector<NormalizedAxis> axes;
  const auto add = [&](const Expr& extent, bool is_reduced, size_t from, const Expr& pitch) {
    if (extent == Expr(1)) return;
    NormalizedAxis axis{extent, is_reduced, {}};
    for (int t = 0; t < 3; ++t) axis.strides[t] = strides[t][from] * pitch;
    if (!axes.empty() && axes.back().is_reduced == is_reduced) {
      NormalizedAxis& outer = axes.back();
      const bool is_one =
          std::equal(std::begin(axis.strides), std::end(axis.strides), std::begin(outer.strides),
                     [&](const Expr& in, const Expr& out) { return in * extent == out; });
      if (is_one) {
        axis.extent = outer.extent * extent;
        axes.pop_back();
      }
    }
    axes.push_back(axis);
  };
  for (int place = 0; place < rank; ++place) {
    const auto i = static_cast<size_t>(axis_in_memory(format, rank, place));
    if (i == 1 && params.num_groups > 1) {
      const Expr of_group = floor_div(x[1], Expr(params.num_groups));
      add(Expr(params.num_groups), false, 1, of_group);
      add(of_group, true, 1, Expr(1));
    } else {
      add(x[i], params.axes >> i & 1, i, Expr(1));
    }
  }
  return axes;
}

/// The threads that share one group of elements that are normalized together. The group lies along
/// the innermost axis or not.
struct NormalizationLanes {
  int count = kWarp;
  bool is_inner = true;
  bool is_alone = false;  ///< the only team in its block, so that a few rows are spread over the
                          ///< device
  int blocks = 1;         ///< that share the group, each with `count` threads: a cluster
  int threads() const {
    return is_alone ? count : std::max(kThreads, count * (is_inner ? 1 : kWarp));
  }
  int teams() const { return threads() / count; }
  /// Of a cluster's block: a number for each warp, and two for each block.
  int shared_bytes() const { return blocks == 1 ? 0 : 4 * (2 * blocks + count / kWarp); }
  std::string name() const {
    return str(blocks > 1 ? str(blocks, " blocks of ") : std::string(), count, " threads per ",
               is_inner ? "row" : "column", is_alone ? ", a block each" : "");
  }
};

/// All ways can normalize any number of elements.
Ways<NormalizationLanes> lanes_of(const NormalizationParams& params, const Shape& typical,
                                  TensorFormat format, int architecture) {
  int64_t count = 1;
  bool is_inner = true;
  for (int place = 0; place < typical.rank(); ++place) {
    const int i = axis_in_memory(format, typical.rank(), place);
    const bool is_reduced = params.axes >> i & 1;
    const bool is_split = i == 1 && params.num_groups > 1;
    if (is_reduced) count *= typical[i];
    if (is_split) count *= typical[i] / params.num_groups;
    if (typical[i] > 1) is_inner = is_reduced || is_split;
  }
  const int64_t rows = typical.numel() / std::max<int64_t>(1, count);
  const bool fits_warp = is_inner && count <= kWarp * kKeptElements;
  std::vector<int> counts, others;
  if (is_inner) {
    if (fits_warp)
      counts = {kWarp}, others = {kThreads, kNormalizationThreads};
    else if (count <= kThreads * kKeptElements && rows >= kFewGroups)
      counts = {kThreads, kNormalizationThreads}, others = {kWarp};
    else
      counts = {kNormalizationThreads, kThreads}, others = {kWarp};
    // A thread reads 16 bytes at once, so a short row leaves most threads of a warp without any.
    for (const int lanes : {4, 8, 16}) {
      const int64_t most = lanes * kKeptElements;
      const bool is_short = rows > kFewNormalizedRows && count <= most && 4 * count > most;
      std::vector<int>& all = is_short ? counts : others;
      all.insert(is_short ? all.begin() : all.end(), lanes);
    }
  } else {
    if (count < 16)
      counts = {1, 8}, others = {32};
    else
      counts = {8, 32}, others = {1};
  }
  Ways<NormalizationLanes> result;
  // With fewer rows than multiprocessors, several of these share a long row.
  if (is_inner && architecture >= kClusterArchitecture)
    result.add({kNormalizationThreads, is_inner, false, kRowBlocks},
               rows <= kFewGroups / 2 && count >= kLongNormalizedRow);
  for (const int lanes : counts) result.add({lanes, is_inner}, true);
  for (const int lanes : others) result.add({lanes, is_inner}, false);
  // With few rows, a row's time is that of its loads and reductions, and more threads shorten it.
  if (is_inner)
    for (const int lanes : {kWarp, 4 * kWarp})
      result.add({lanes, is_inner, true},
                 rows <= kFewNormalizedRows && fits_warp && count > int64_t{2} * lanes);
  return result;
}

int64_t checked_times(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/// Writes the Config and the call of a kernel of normalization.cuh.
class NormalizationWriter {
 public:
  /// `program` is null where what is normalized is the result.
  NormalizationWriter(const NormalizationParams& params, const FusedProgram* program,
                      bool quantizes, const KernelArgs& args)
      : params_(params),
        program_(program),
        quantizes_(quantizes),
        args_(args),
        source_("normalization", args),
        lanes_(lanes_of(params, args.inputs[0].opt, args.inputs[0].type.format,
                        target_architecture(args))
                   .at(args.candidate->tactic)) {
    for (const NormalizedAxis& axis : normalized_axes(source_, args, params))
      (axis.is_reduced ? reduced_ : kept_).push_back(axis);
    const Expr groups(params.num_groups);
    if (params.num_groups > 1) {
      const Expr& channels = source_.dims(0)[1];
      source_.check(equals(floor_div(channels, groups) * groups, channels),
                    str(params.num_groups, " groups must share the channels evenly"));
    }
    for (int input = 1; input < 3; ++input)
      if (has(input)) check_broadcast(input);
  }

  GeneratedKernel write() {
    source_.leave_waiting();
    std::vector<std::string> conditions;
    int width = 1;
    if (lanes_.is_inner && !reduced_.empty() && reduced_.back().strides[0] == Expr(1))
      width = vector_width(source_, element_size(args_.inputs[0].type.dtype),
                           std::span(&reduced_.back().extent, 1), conditions);
    source_.add_declarations(include("normalization.cuh") + write_config(width));
    if (program_ != nullptr) source_.add_declarations(pointwise_functions() + program_inputs());
    const auto input = [&](int i) { return has(i) ? str("in", i) : std::string("nullptr"); };
    const bool stores_result = !quantizes() || args_.outputs.size() > 1;
    std::string text = "const NormalizationArguments<Config> all = {in0";
    for (const int i : {1, 2}) text += ", " + input(i);
    text += str(", ", stores_result ? "out0" : "nullptr", ", ",
                quantizes() ? str("out", args_.outputs.size() - 1) : std::string("nullptr"));
    const Expr rows = numel(extents(kept_));
    for (const Expr& number : {rows, numel(extents(reduced_)), step(1), step(2)})
      text += ", " + source_.value(number);
    // Constants are read before the kernel waits for the previous one.
    if (quantizes()) {
      const std::string quantum = str("load(in", QuantizedNormalization::kScale, "[0])");
      text += str(", ", quantum, ", 1.0f / ", quantum, ", (float)load(in",
                  QuantizedNormalization::kZeroPoint, "[0])");
    }
    text += str("};\n", write_program(), "const auto row_place = ", place(kept_, 1), ";\n");
    if (width > 1) {
      conditions.push_back(alignment(0, width));
      for (size_t i = 0; i < args_.outputs.size(); ++i)
        conditions.push_back(alignment(args_.outputs[i], width, str("out", i)));
      for (int i = 1; i < 3; ++i)
        if (takes_packs(i, width)) conditions.push_back(alignment(i, width));
      for (const int i : element_inputs()) conditions.push_back(alignment(i, width));
      std::string condition;
      for (const std::string& each : conditions)
        condition += (condition.empty() ? "" : " && ") + each;
      text += str("if (", condition, ") {\nnormalize<", width, ">(all, row_place, ",
                  place(reduced_, width), ", program);\nreturn;\n}\n");
    }
    text += str("normalize<1>(all, row_place, ", place(reduced_, 1), ", program);\n");
    if (lanes_.blocks == 1)
      return source_.finish(text, ceil_div(rows, Expr(lanes_.teams())), lanes_.threads());
    const Expr clusters = min(rows, Expr(kMostClusters));
    GeneratedKernel kernel =
        source_.finish(text, clusters * Expr(lanes_.blocks), lanes_.threads(), 0, lanes_.blocks);
    kernel.launch.shared_memory = lanes_.shared_bytes();
    return kernel;
  }

 private:
  static SymShape extents(const std::vector<NormalizedAxis>& axes) {
    SymShape result;
    for (const NormalizedAxis& axis : axes) result.push_back(axis.extent);
    return result;
  }
  /// The code of a function from the number of a row, or of an access of `width` elements, to its
  /// NormalizationPlace.
  std::string place(const std::vector<NormalizedAxis>& axes, int width) {
    SymShape counts = extents(axes);
    if (width > 1) counts.back() = floor_div(counts.back(), Expr(width));
    std::vector<std::string> names;
    for (size_t i = 0; i < axes.size(); ++i) names.push_back(str("c", i));
    std::string offsets;
    for (int tensor = 0; tensor < 3; ++tensor) {
      SymShape steps;
      for (const NormalizedAxis& axis : axes) steps.push_back(axis.strides[tensor]);
      if (width > 1) steps.back() = steps.back() * Expr(width);
      offsets += str(tensor > 0 ? ", " : "", source_.offset(names, steps));
    }
    return str("[&](Index at) {\n", source_.decompose("at", names, counts),
               "return NormalizationPlace{", offsets, "};\n}");
  }
  Expr step(int tensor) const {
    return reduced_.empty() ? Expr(0) : reduced_.back().strides[tensor];
  }

  /// The program's inputs that have the output's shape.
  std::vector<int> element_inputs() const {
    std::vector<int> found;
    if (program_ == nullptr) return found;
    for (int i = 0; i < program_->inputs(); ++i)
      if (static_cast<FusedPlace>(program_->places[i]) == FusedPlace::kElement)
        found.push_back(first_program_input(args_, *program_) + i);
    return found;
  }
  /// Declares the neighbours of the inputs that have the output's shape.
  std::string program_inputs() const {
    std::string members;
    for (const int input : element_inputs())
      members +=
          str("Pack<", storage_type(args_.inputs[input].type.dtype), ", width> of", input, ";\n");
    return str("template <int width>\nstruct ProgramInputs {\n", members, "};\n");
  }
  /// Defines the NormalizationProgram `program`.
  std::string write_program() const {
    if (program_ == nullptr)
      return "const NormalizationProgram program{[] {}, [](auto, Index) { return 0; }, [](int, "
             "int, "
             "float x) { return x; }};\n";
    const int first = first_program_input(args_, *program_);
    std::string wait, read, make;
    for (int i = first; i < std::ssize(args_.inputs); ++i)
      if (!args_.inputs[i].is_constant) wait += str("in", i, " = read_anew(in", i, ");\n");
    for (const int input : element_inputs())
      read += str("inputs.of", input, " = *(const decltype(inputs.of", input, ")*)(in", input,
                  " + at);\n");
    for (int i = 0; i < program_->inputs(); ++i) {
      const bool is_element = static_cast<FusedPlace>(program_->places[i]) == FusedPlace::kElement;
      make += str("const auto x", i + 1, " = load(",
                  is_element ? str("inputs.of", first + i, ".at[i]") : str("in", first + i, "[0]"),
                  ");\n");
    }
    return str("const NormalizationProgram program{[&] {\n", wait,
               "}, [&](auto width, Index at) {\nProgramInputs<decltype(width)::kValue> inputs;\n",
               read, "(void)at;\nreturn inputs;\n}, [&](const auto& inputs, int i, float y) {\n",
               make, fused_program(*program_, args_.outputs[0].type.dtype),
               "(void)inputs, (void)i;\nreturn z;\n}};\n");
  }

  std::string write_config(int width) const {
    const auto storage = [&](int input) {
      return has(input) ? storage_type(args_.inputs[input].type.dtype) : "float";
    };
    int64_t most = 1;
    const Shape& max = args_.inputs[0].max;
    for (int i = 0; i < max.rank(); ++i) {
      if (params_.axes >> i & 1) most = checked_times(most, max[i]);
      if (i == 1 && params_.num_groups > 1) most = checked_times(most, max[1] / params_.num_groups);
    }
    const DataType quantized = args_.outputs.back().type.dtype;
    ConfigWriter config;
    config.type("Element", storage(0)), config.type("Scale", storage(1));
    config.type("Bias", storage(2));
    // Before it is quantized, a result is rounded to the type of x.
    config.type("Output", quantizes() ? storage(0) : storage_type(quantized));
    config.type("Quantized", quantizes() ? storage(QuantizedNormalization::kZeroPoint) : "float");
    config.number("kLanes", lanes_.count), config.number("kTeams", lanes_.teams());
    config.number("kBlocks", lanes_.blocks), config.number("kSharedBytes", lanes_.shared_bytes());
    config.flag("kIsInner", lanes_.is_inner);
    config.value("long long", "kMost", std::min(most, int64_t{1} << 40));
    config.number("kMostKept", kKeptElements);
    config.flag("kIsRms", params_.rms), config.number("kEpsilon", params_.epsilon);
    config.flag("kHasScale", has(1)), config.flag("kHasBias", has(2));
    config.flag("kKeepsAffine", keeps_affine());
    config.flag("kPacksScale", takes_packs(1, width));
    config.flag("kPacksBias", takes_packs(2, width));
    config.flag("kStoresResult", !quantizes() || args_.outputs.size() > 1);
    config.flag("kQuantizes", quantizes()), config.flag("kIsByte", quantized != DataType::kFP8);
    config.number("kLowest", quantized == DataType::kINT8 ? -128 : 0);
    config.number("kWritten", written_inputs(args_));
    return config.write();
  }

  bool quantizes() const { return quantizes_; }
  bool has(int input) const {
    return static_cast<size_t>(input) < args_.inputs.size() && args_.inputs[input].present;
  }
  void check_broadcast(int input) {
    const SymShape &x = source_.dims(0), &own = source_.dims(input);
    for (size_t i = 0; i < own.size(); ++i)
      source_.check(max(equals(own[i], Expr(1)), equals(own[i], x[x.size() - own.size() + i])),
                    "scale and bias must broadcast to the input");
  }
  static std::string alignment(const PortDesc& port, int width, const std::string& pointer) {
    return str("is_aligned<", storage_type(port.type.dtype), ", ", width, ">(", pointer, ")");
  }
  std::string alignment(int input, int width) const {
    return alignment(args_.inputs[input], width, str("in", input));
  }
  /// Whether one access loads neighbours of scale or bias.
  bool takes_packs(int input, int width) const {
    if (width == 1 || !has(input) || reduced_.back().strides[input] != Expr(1)) return false;
    const auto is_multiple = [&](const Expr& stride) {
      return stride.is_constant() && stride.constant() % width == 0;
    };
    for (const NormalizedAxis& axis : kept_)
      if (!is_multiple(axis.strides[input])) return false;
    for (size_t i = 0; i + 1 < reduced_.size(); ++i)
      if (!is_multiple(reduced_[i].strides[input])) return false;
    return true;
  }
  /// Whether scale and bias are constants that all rows share. Threads then read theirs once,
  /// before they wait for the previous kernel.
  bool keeps_affine() const {
    for (int input = 1; input < 3; ++input) {
      if (!has(input)) continue;
      if (!args_.inputs[input].is_constant) return false;
      for (const NormalizedAxis& axis : kept_)
        if (axis.strides[input] != Expr(0)) return false;
    }
    return has(1) || has(2);
  }

  const NormalizationParams& params_;
  const FusedProgram* const program_;
  const bool quantizes_;
  const KernelArgs& args_;
  KernelSource source_;
  const NormalizationLanes lanes_;
  std::vector<NormalizedAxis> kept_, reduced_;
};

template <class Op>
std::vector<Candidate> normalization_candidates(const Operator& op, const CandidateQuery& query) {
  const PortDesc& x = query.inputs[0];
  if (!is_floating(x.type.dtype)) return {};
  const auto& params = static_cast<const Op&>(op).params();
  constexpr bool kQuantizes = std::is_same_v<Op, QuantizedNormalization>;
  for (size_t i = QuantizedNormalization::kScale; kQuantizes && i < query.inputs.size(); ++i)
    if (!query.inputs[i].is_constant) return {};
  std::vector<Candidate> types = {linear_candidate(query, {})}, result;
  add_lower_precisions(query, x, types);
  for (const Candidate& type : types)
    for (const TensorFormat format : formats_of(query, x.opt.rank())) {
      int64_t tactic = 0;
      const Ways<NormalizationLanes> all =
          lanes_of(params, x.opt, format, target_architecture(query));
      for (const NormalizationLanes& lanes : all.listed(query.all_tactics)) {
        Candidate& candidate = result.emplace_back(type);
        candidate.inputs[0].format = format;
        for (PortType& output : candidate.outputs) output.format = format;
        if constexpr (std::is_same_v<Op, FusedNormalization>) {
          const FusedProgram& program = params.fused;
          for (int i = 0; i < program.inputs(); ++i)
            if (static_cast<FusedPlace>(program.places[i]) == FusedPlace::kElement)
              candidate.inputs[query.inputs.size() - program.inputs() + i].format = format;
        }
        candidate.tactic = tactic++;
        candidate.tactic_name = lanes.name();
      }
    }
  return result;
}

template <class Op>
std::optional<GeneratedKernel> generate_normalization(const Operator& op, const KernelArgs& args) {
  const auto& params = static_cast<const Op&>(op).params();
  const FusedProgram* program = nullptr;
  if constexpr (std::is_same_v<Op, FusedNormalization>) program = &params.fused;
  return NormalizationWriter(params, program, std::is_same_v<Op, QuantizedNormalization>, args)
      .write();
}

std::vector<std::string> normalization_tactics() {
  std::vector<std::string> names;
  for (const int lanes : {4, 8, 16, kWarp, kThreads, kNormalizationThreads})
    names.push_back(NormalizationLanes{lanes, true}.name());
  for (const int lanes : {1, 8, 32}) names.push_back(NormalizationLanes{lanes, false}.name());
  for (const int lanes : {kWarp, 4 * kWarp})
    names.push_back(NormalizationLanes{lanes, true, true}.name());
  names.push_back(NormalizationLanes{kNormalizationThreads, true, false, kRowBlocks}.name());
  return names;
}

const RegisteredKernels<Normalization> kNormalizationKernels(
    {.candidates = normalization_candidates<Normalization>,
     .generate = generate_normalization<Normalization>,
     .make = nullptr,
     .tactics = normalization_tactics});
const RegisteredKernels<FusedNormalization> kFusedNormalizationKernels(
    {.candidates = normalization_candidates<FusedNormalization>,
     .generate = generate_normalization<FusedNormalization>,
     .make = nullptr,
     .tactics = normalization_tactics});
const RegisteredKernels<QuantizedNormalization> kQuantizedNormalizationKernels(
    {.candidates = normalization_candidates<QuantizedNormalization>,
     .generate = generate_normalization<QuantizedNormalization>,
     .make = nullptr,
     .tactics = normalization_tactics});

}  // namespace
}  // namespace opwright::gpu
