#include "operators/normalization.h"

#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/pointwise_math.h"
#include "backend/gpu/rows.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

constexpr int kNormalizationThreads = 1024;
/// Elements that a thread keeps in registers.
constexpr int64_t kKeptElements = 32;
/// Rows that leave most of a GPU idle with a small block for each.
constexpr int64_t kFewGroups = 256;
/// Rows up to which each has a block of its own among the candidates.
constexpr int64_t kFewNormalizedRows = 1024;

/// An axis of x, or several that lie together.
struct NormalizedAxis {
  Expr extent;
  bool is_reduced;
  Expr strides[3];  ///< of x, scale and bias
};

Expr equals(const Expr& a, const Expr& b) { return Expr::make(ExprOp::kEqual, a, b); }

/// Where scale or bias repeats, its stride is 0.
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

/// The axes without those of one element, as few as there can be.
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

/// How many threads share what is normalized together, which lies along the innermost axis or not.
struct NormalizationLanes {
  int count = kWarp;
  bool is_inner = true;
  bool is_alone = false;  ///< in their block, so that a few rows are spread over the device
  int threads() const {
    return is_alone ? count : std::max(kThreads, count * (is_inner ? 1 : kWarp));
  }
  int teams() const { return threads() / count; }
  std::string name() const {
    return str(count, " threads per ", is_inner ? "row" : "column",
               is_alone ? ", a block each" : "");
  }
};

/// All of them can normalize any number of elements.
Ways<NormalizationLanes> lanes_of(const NormalizationParams& params, const Shape& typical,
                                  TensorFormat format) {
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
  } else {
    if (count < 16)
      counts = {1, 8}, others = {32};
    else
      counts = {8, 32}, others = {1};
  }
  Ways<NormalizationLanes> result;
  for (const int lanes : counts) result.add({lanes, is_inner}, true);
  for (const int lanes : others) result.add({lanes, is_inner}, false);
  // Then a row's time is that of its loads and reductions, which more threads shorten.
  if (is_inner)
    for (const int lanes : {kWarp, 4 * kWarp})
      result.add({lanes, is_inner, true},
                 rows <= kFewNormalizedRows && fits_warp && count > int64_t{2} * lanes);
  return result;
}

/// A team of lanes takes what is normalized together: mean, then the squares of what differs from
/// it, so that nothing cancels, then the outputs. It is read once where it fits the registers.
class NormalizationWriter {
 public:
  NormalizationWriter(const NormalizationParams& params, const KernelArgs& args)
      : params_(params),
        args_(args),
        source_("normalization", args),
        lanes_(lanes_of(params, args.inputs[0].opt, args.inputs[0].type.format)
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
    rows_ = numel(extents(kept_)), count_ = numel(extents(reduced_));
    int64_t most = 1;
    const Shape& max = args.inputs[0].max;
    for (int i = 0; i < max.rank(); ++i) {
      if (params.axes >> i & 1) most = checked_times(most, max[i]);
      if (i == 1 && params.num_groups > 1) most = checked_times(most, max[1] / params.num_groups);
    }
    most_ = most;
  }

  GeneratedKernel write() {
    source_.add_declarations(include("lane_reductions.cuh"));
    source_.add_declarations(include("normalization.cuh"));
    if (quantizes()) source_.add_declarations(include("quantization.cuh"));
    std::vector<std::string> conditions;
    const int size = element_size(args_.inputs[0].type.dtype);
    int width = 1;
    if (lanes_.is_inner && !reduced_.empty() && reduced_.back().strides[0] == Expr(1))
      width = vector_width(source_, size, std::span(&reduced_.back().extent, 1), conditions);
    std::string text = str("const Index rows = ", source_.value(rows_),
                           ", count = ", source_.value(count_), ";\n");
    // Constants are read before the kernel before is waited for.
    if (quantizes())
      text += str("const float quantum = load(in", QuantizedNormalization::kScale,
                  "[0]), zero_point = (float)load(in", QuantizedNormalization::kZeroPoint,
                  "[0]);\nconst float of_quantum = 1.0f / quantum;\n(void)zero_point;\n");
    const int teams = lanes_.teams();
    if (lanes_.is_inner)
      text += str("const int team = (int)threadIdx.x / ", lanes_.count,
                  ", lane = (int)threadIdx.x % ", lanes_.count, ";\n");
    else
      text += str("const int team = (int)threadIdx.x % ", teams, ", lane = (int)threadIdx.x / ",
                  teams, ";\n");
    if (width > 1) {
      std::string condition = alignment(0, width, "in0");
      for (size_t i = 0; i < args_.outputs.size(); ++i)
        condition += str(" && is_aligned<", storage_type(args_.outputs[i].type.dtype), ", ", width,
                         ">(out", i, ")");
      for (const std::string& each : conditions) condition += " && " + each;
      for (int i = 1; i < 3; ++i)
        if (takes_packs(i, width)) condition += " && " + alignment(i, width, str("in", i));
      text += str("if (", condition, ") {\n", loop(width), "return;\n}\n");
    }
    text += loop(1);
    return source_.finish(text, ceil_div(rows_, Expr(teams)), lanes_.threads());
  }

 private:
  static int64_t checked_times(int64_t a, int64_t b) {
    int64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
  }
  static SymShape extents(const std::vector<NormalizedAxis>& axes) {
    SymShape result;
    for (const NormalizedAxis& axis : axes) result.push_back(axis.extent);
    return result;
  }
  static SymShape strides(const std::vector<NormalizedAxis>& axes, int tensor) {
    SymShape result;
    for (const NormalizedAxis& axis : axes) result.push_back(axis.strides[tensor]);
    return result;
  }
  static std::vector<std::string> variables(char prefix, size_t count) {
    std::vector<std::string> names;
    for (size_t i = 0; i < count; ++i) names.push_back(prefix + std::to_string(i));
    return names;
  }

  bool quantizes() const { return args_.inputs.size() > QuantizedNormalization::kZeroPoint; }
  bool has(int input) const {
    return static_cast<size_t>(input) < args_.inputs.size() && args_.inputs[input].present;
  }
  void check_broadcast(int input) {
    const SymShape &x = source_.dims(0), &own = source_.dims(input);
    for (size_t i = 0; i < own.size(); ++i)
      source_.check(max(equals(own[i], Expr(1)), equals(own[i], x[x.size() - own.size() + i])),
                    "scale and bias must broadcast to the input");
  }
  std::string alignment(int input, int width, const std::string& pointer) const {
    return str("is_aligned<", storage_type(args_.inputs[input].type.dtype), ", ", width, ">(",
               pointer, ")");
  }
  /// Whether neighbours of scale or bias are loaded together.
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
  /// Whether scale and bias are constants that are the same for all rows: threads read theirs once,
  /// before they wait for the kernel before.
  bool keeps_affine() const {
    for (int input = 1; input < 3; ++input) {
      if (!has(input)) continue;
      if (!args_.inputs[input].is_constant) return false;
      for (const NormalizedAxis& axis : kept_)
        if (axis.strides[input] != Expr(0)) return false;
    }
    return has(1) || has(2);
  }
  std::string sum_of(std::string_view value) const {
    if (lanes_.is_inner) return str("reduce<Sum, ", lanes_.count, ">(", value, ")");
    return str("column_sum<", lanes_.count, ", ", lanes_.teams(), ">(", value, ")");
  }

  /// What is stored is quantized: neighbours in `results`, which lie from `place` on.
  std::string quantize(int width, const std::string& all) const {
    const DataType type = args_.outputs.back().type.dtype;
    const std::string pack = str("Pack<", storage_type(type), ", ", width, ">");
    std::string value = "divide_by(load(results.at[q]), quantum, of_quantum)";
    if (type != DataType::kFP8) {
      const int low = type == DataType::kINT8 ? -128 : 0;
      value = str("round_to_byte<", register_type(type), ">(round_to_whole(fminf(fmaxf(", value,
                  ", ", float_literal(static_cast<float>(low)), " - zero_point), ",
                  float_literal(static_cast<float>(low + 255)), " - zero_point)) + zero_point)");
    }
    return str(pack, " quantized;\n", all, "quantized.at[q] = store<", storage_type(type), ">(",
               value, ");\n*(", pack, "*)(out", args_.outputs.size() - 1,
               " + place) = quantized;\n");
  }

  /// The rows with accesses of `width` neighbours.
  std::string loop(int width) {
    const int64_t units = (most_ + width - 1) / width;
    const int64_t kept = (units + lanes_.count - 1) / lanes_.count;
    const bool keeps = kept * width <= kKeptElements;
    const std::string_view x = storage_type(args_.inputs[0].type.dtype);
    // What is quantized is rounded to the type of x first.
    const std::string_view y = quantizes() ? x : storage_type(args_.outputs[0].type.dtype);
    const std::vector<std::string> k = variables('k', kept_.size());
    const std::vector<std::string> r = variables('r', reduced_.size());
    SymShape inner = extents(reduced_);
    if (!inner.empty()) inner.back() = floor_div(inner.back(), Expr(width));
    // Offsets of an access; the innermost axis is counted in accesses.
    const auto offset = [&](int tensor) {
      SymShape steps = strides(reduced_, tensor);
      if (!steps.empty()) steps.back() = steps.back() * Expr(width);
      return str("base", tensor, " + ", source_.offset(r, steps));
    };
    const std::string all = str("#pragma unroll\nfor (int q = 0; q < ", width, "; ++q) ");
    // Loads scale or bias of an access into `pack1` or `pack2`.
    const auto load_affine = [&](int t) {
      const std::string_view type = storage_type(args_.inputs[t].type.dtype);
      const Expr step = reduced_.empty() ? Expr(0) : reduced_.back().strides[t];
      std::string load =
          str("const ", type, "* const from", t, " = in", t, " + (", offset(t), ");\n");
      if (takes_packs(t, width))
        load += str("pack", t, " = *(const Pack<", type, ", ", width, ">*)from", t, ";\n");
      else
        load += str(all, "pack", t, ".at[q] = from", t, "[q * ", source_.value(step), "];\n");
      return load;
    };
    const auto affine_type = [&](int t) {
      return str("Pack<", storage_type(args_.inputs[t].type.dtype), ", ", width, ">");
    };
    const bool preloads = keeps && keeps_affine();
    std::string text = str("const Index units = count / ", width, ";\n");
    if (preloads) {
      for (int t = 1; t < 3; ++t)
        if (has(t))
          text += str(affine_type(t), " kept", t, "[", std::max<int64_t>(1, kept), "];\n");
      text += str("#pragma unroll\nfor (int j = 0; j < ", kept,
                  "; ++j) {\nconst Index unit = lane + j * ", lanes_.count,
                  ";\nif (unit >= units) continue;\n", source_.decompose("unit", r, inner));
      for (int t = 1; t < 3; ++t)
        if (has(t))
          text += str("const Index base", t, " = 0;\n", affine_type(t), "& pack", t, " = kept", t,
                      "[j];\n", load_affine(t));
      text += "}\n";
    }
    text += str(
        source_.wait(), KernelSource::kBeginNext,
        // The same rounds for all threads, which wait for each other.
        "for (Index first = (Index)blockIdx.x * ", lanes_.teams(),
        "; first < rows; first += (Index)gridDim.x * ", lanes_.teams(),
        ") {\nconst bool is_row = first + team < rows;\nconst Index row = is_row ? first + team "
        ": 0;\n(void)row;\n",
        source_.decompose("row", k, extents(kept_)));
    for (int t = 0; t < 3; ++t)
      if (t == 0 || (has(t) && !preloads))
        text += str("const Index base", t, " = ", source_.offset(k, strides(kept_, t)), ";\n");
    if (keeps) text += str("float values[", std::max<int64_t>(1, kept), "][", width, "];\n");
    // Runs over the lane's accesses; `v` are the elements.
    const auto each = [&](bool loads, std::string_view statements, bool has_offsets) {
      const std::string positions = source_.decompose("unit", r, inner);
      const std::string load = str("const Index from = ", offset(0), ";\nconst Pack<", x, ", ",
                                   width, "> pack = *(const Pack<", x, ", ", width,
                                   ">*)(in0 + from);\n#pragma unroll\nfor (int q = 0; q < ", width,
                                   "; ++q) v[q] = load(pack.at[q]);\n");
      if (keeps) {
        text += str("#pragma unroll\nfor (int j = 0; j < ", kept,
                    "; ++j) {\nconst Index unit = lane + j * ", lanes_.count,
                    ";\nif (is_row && unit < units) {\nfloat (&v)[", width, "] = values[j];\n",
                    loads || has_offsets ? positions : std::string(), loads ? load : std::string(),
                    statements, "}\n}\n");
      } else {
        text +=
            str("#pragma unroll 4\nfor (Index unit = lane; is_row && unit < units; unit += ",
                lanes_.count, ") {\nfloat v[", width, "];\n", positions, load, statements, "}\n");
      }
    };
    if (params_.rms) {
      text += "float squares = 0.0f;\n";
      each(true, all + "squares += v[q] * v[q];\n", false);
    } else {
      text += "float sum = 0.0f, squares = 0.0f;\n";
      each(true, all + "sum += v[q];\n", false);
      text += str("const float mean = ", sum_of("sum"), " / (float)count;\n");
      each(false, all + "squares += (v[q] - mean) * (v[q] - mean);\n", false);
    }
    text += str("const float factor = 1.0f / sqrtf(", sum_of("squares"), " / (float)count + ",
                float_literal(params_.epsilon), ");\n");
    std::string write;
    for (int t = 1; t < 3; ++t) {
      if (!has(t)) continue;
      if (preloads)
        write += str("const ", affine_type(t), "& pack", t, " = kept", t, "[j];\n");
      else
        write += str(affine_type(t), " pack", t, ";\n", load_affine(t));
    }
    std::string result = params_.rms ? "v[q] * factor" : "(v[q] - mean) * factor";
    if (has(1)) result += " * load(pack1.at[q])";
    if (has(2)) result += " + load(pack2.at[q])";
    write += str("const Index place = ", offset(0), ";\nPack<", y, ", ", width, "> results;\n", all,
                 "results.at[q] = store<", y, ">(", result, ");\n");
    if (!quantizes() || args_.outputs.size() > 1)
      write += str("*(Pack<", y, ", ", width, ">*)(out0 + place) = results;\n");
    if (quantizes()) write += quantize(width, all);
    each(false, write, true);
    return text + "}\n";
  }

  const NormalizationParams& params_;
  const KernelArgs& args_;
  KernelSource source_;
  const NormalizationLanes lanes_;
  std::vector<NormalizedAxis> kept_, reduced_;
  Expr rows_ = 1, count_ = 1;
  int64_t most_ = 1;  ///< elements that are normalized together
};

template <class Op>
std::vector<Candidate> normalization_candidates(const Operator& op, const CandidateQuery& query) {
  const PortDesc& x = query.inputs[0];
  if (!is_floating(x.type.dtype)) return {};
  for (size_t i = QuantizedNormalization::kScale; i < query.inputs.size(); ++i)
    if (!query.inputs[i].is_constant) return {};
  std::vector<Candidate> types = {linear_candidate(query, {})}, result;
  add_lower_precisions(query, x, types);
  for (const Candidate& type : types)
    for (const TensorFormat format : formats_of(query, x.opt.rank())) {
      int64_t tactic = 0;
      const Ways<NormalizationLanes> all =
          lanes_of(static_cast<const Op&>(op).params(), x.opt, format);
      for (const NormalizationLanes& lanes : all.listed(query.all_tactics)) {
        Candidate& candidate = result.emplace_back(type);
        candidate.inputs[0].format = format;
        for (PortType& output : candidate.outputs) output.format = format;
        candidate.tactic = tactic++;
        candidate.tactic_name = lanes.name();
      }
    }
  return result;
}

template <class Op>
std::optional<GeneratedKernel> generate_normalization(const Operator& op, const KernelArgs& args) {
  return NormalizationWriter(static_cast<const Op&>(op).params(), args).write();
}

std::vector<std::string> normalization_tactics() {
  std::vector<std::string> names;
  for (const int lanes : {kWarp, kThreads, kNormalizationThreads})
    names.push_back(NormalizationLanes{lanes, true}.name());
  for (const int lanes : {1, 8, 32}) names.push_back(NormalizationLanes{lanes, false}.name());
  for (const int lanes : {kWarp, 4 * kWarp})
    names.push_back(NormalizationLanes{lanes, true, true}.name());
  return names;
}

const RegisteredKernels<Normalization> kNormalizationKernels(
    {.candidates = normalization_candidates<Normalization>,
     .generate = generate_normalization<Normalization>,
     .make = nullptr,
     .tactics = normalization_tactics});
const RegisteredKernels<QuantizedNormalization> kQuantizedNormalizationKernels(
    {.candidates = normalization_candidates<QuantizedNormalization>,
     .generate = generate_normalization<QuantizedNormalization>,
     .make = nullptr,
     .tactics = normalization_tactics});

}  // namespace
}  // namespace opwright::gpu
