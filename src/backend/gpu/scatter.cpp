#include "operators/scatter.h"

#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// Fewest and most lines along the axis for which each has a thread, or parts of the output have
/// blocks.
constexpr int64_t kFewLines = 32, kManyLines = 1 << 14;
/// Elements of the output for which one more block is worth going through all indices, and blocks
/// that are resident at once on the largest devices.
constexpr int64_t kPart = 64, kMostScatterBlocks = 1024;

/// An expression of what an element `a` and an update `b` give, both as they are computed with.
std::string combination(ScatterReduction reduction, DataType type) {
  const bool is_sum = reduction == ScatterReduction::kADD;
  if (reduction == ScatterReduction::kMIN || reduction == ScatterReduction::kMAX) {
    const std::string better =
        str("a ", reduction == ScatterReduction::kMIN ? "<" : ">", " b ? a : b");
    return is_floating(type) ? "a != a ? a : b != b ? b : " + better : better;
  }
  if (is_floating(type)) return is_sum ? "a + b" : "a * b";
  if (type == DataType::kBOOL) return is_sum ? "a || b" : "a && b";
  // Integers wrap around.
  const std::string_view wide = type == DataType::kINT64 ? "unsigned long long" : "unsigned";
  return str("(", register_type(type), ")((", wide, ")a ", is_sum ? "+" : "*", " (", wide, ")b)");
}

/// How a block finds what meets its part of the output.
struct PartsText {
  Expr total, count;        ///< elements of the output, and updates
  std::string length;       ///< elements of an update
  std::string first_value;  ///< what element `i` of the output is without updates
  std::string find;         ///< statements that give `place` of element or slice `update`
  int updates = 0;          ///< the input that has them
};

/// A block has a part of the output and picks the updates that meet it, which `put` puts there in
/// their order.
GeneratedKernel write_parts(KernelSource& source, const PartsText& parts) {
  const std::string &length = parts.length, updates = source.value(parts.count);
  constexpr int kWarps = kThreads / kWarp;
  std::string text =
      str("const Index total = ", source.value(parts.total),
          ", part = (total + (Index)gridDim.x - 1) / (Index)gridDim.x;\n"
          "const Index begin = (Index)blockIdx.x * part;\n"
          "const Index end = begin + part < total ? begin + part : total;\n"
          "const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;\n"
          "#pragma unroll 4\nfor (Index i = begin + thread; i < end; i += ",
          kThreads, ") out0[i] = ", parts.first_value, ";\n__shared__ Index places[", kThreads,
          "], numbers[", kThreads, "];\n__shared__ int counts[", kWarps, "];\n");
  text += str("for (Index first = 0; first < ", updates, "; first += ", kThreads,
              ") {\nconst Index update = first + thread;\nIndex place = -1;\nif (update < ",
              updates, ") {\n", parts.find, "if (place + ", length,
              " <= begin || place >= end) place = -1;\n}\n");
  // Those that meet the part, in their order.
  text +=
      str("if (__syncthreads_or(place >= 0) == 0) continue;\n"
          "const unsigned met = __ballot_sync(0xffffffffu, place >= 0);\n"
          "if (lane == 0) counts[warp] = __popc(met);\n__syncthreads();\n"
          "int at = 0, all = 0;\nfor (int i = 0; i < ",
          kWarps,
          "; ++i) {\nif (i == warp) at = all;\nall += counts[i];\n}\nif (place >= 0) {\n"
          "at += __popc(met & ((1u << lane) - 1u));\n"
          "places[at] = place;\nnumbers[at] = update;\n}\n__syncthreads();\n");
  // An element of the part is always the same thread's.
  text +=
      str("for (int k = 0; k < all; ++k) {\nconst Index start = places[k];\n"
          "const Index low = start > begin ? start : begin;\n"
          "const Index high = start + ",
          length, " < end ? start + ", length, " : end;\nconst int skew = (int)((low - begin) % ",
          kThreads, ");\nfor (Index i = low + (thread - skew + ", kThreads, ") % ", kThreads,
          "; i < high; i += ", kThreads, ") put(out0[i], in", parts.updates, "[numbers[k] * ",
          length, " + (i - start)]);\n}\n}\n");
  return source.finish(text, min(ceil_div(parts.total, Expr(kPart)), Expr(kMostScatterBlocks)),
                       kThreads);
}

/// Elements that take the place of what is there.
void declare_replacing(KernelSource& source, std::string_view element) {
  source.add_declarations(str("__device__ inline void put(", element, "& to, ", element,
                              " update) { to = update; }\n"));
}

/// Copies the data and puts the updates onto it in their order. Whatever way the work is shared, an
/// element is written by one thread only, so that no run differs from another.
class ScatterWriter {
 public:
  ScatterWriter(const ScatterParams& params, const KernelArgs& args)
      : params_(params),
        type_(args.outputs[0].type.dtype),
        source_("scatter", args),
        data_(source_.dims(0)),
        indices_(source_.dims(1)),
        updates_(source_.dims(2)),
        strides_(row_major_strides(data_)),
        total_(numel(data_)) {
    source_.add_declarations(include("indexing.cuh"));
    if (params.reduction == ScatterReduction::kNONE) {
      const std::string_view element = carrier_type(element_size(type_));
      source_.set_input_type(0, element);
      source_.set_input_type(2, element);
      source_.set_output_type(0, element);
      declare_replacing(source_, element);
    } else {
      const std::string_view element = storage_type(type_), value = register_type(type_);
      source_.add_declarations(str("__device__ inline void put(", element, "& to, ", element,
                                   " update) {\nconst ", value,
                                   " a = load(to), b = load(update);\nto = store<", element, ">((",
                                   value, ")(", combination(params.reduction, type_), "));\n}\n"));
    }
  }

  /// A thread has a line along the axis.
  GeneratedKernel lines() {
    check_elements();
    const auto axis = static_cast<size_t>(params_.axis);
    SymShape outer, to, from;
    std::vector<std::string> names;
    std::string inside = "true";
    const SymShape index_strides = row_major_strides(indices_);
    for (size_t i = 0; i < data_.size(); ++i) {
      if (i == axis) continue;
      names.push_back(str("c", i));
      outer.push_back(data_[i]), to.push_back(strides_[i]), from.push_back(index_strides[i]);
      if (data_[i] != indices_[i]) inside += str(" && c", i, " < ", source_.value(indices_[i]));
    }
    const Expr count = numel(outer);
    const std::string extent = source_.value(data_[axis]), step = source_.value(strides_[axis]);
    return source_.finish(
        str("for (Index line = first_index(); line < ", source_.value(count),
            "; line += index_step()) {\n", source_.decompose("line", names, outer),
            "const Index to = ", source_.offset(names, to), ";\nfor (Index k = 0; k < ", extent,
            "; ++k) out0[to + k * ", step, "] = in0[to + k * ", step, "];\nif (!(", inside,
            ")) continue;\nconst Index from = ", source_.offset(names, from),
            ";\nfor (Index k = 0; k < ", source_.value(indices_[axis]),
            "; ++k) {\nconst Index at = from + k * ", source_.value(index_strides[axis]),
            ";\nconst Index found = find(in1[at], ", extent,
            ");\nif (found >= 0) put(out0[to + found * ", step, "], in2[at]);\n}\n}\n"),
        blocks_for(count, kThreads), kThreads);
  }

  GeneratedKernel parts() {
    const bool is_elements = params_.mode == ScatterMode::kELEMENT;
    if (is_elements)
      check_elements();
    else
      check_tuples();
    const auto depth = is_elements ? Expr(0) : indices_.back();
    const Expr slice =
        is_elements
            ? Expr(1)
            : numel(std::span<const Expr>(data_).subspan(static_cast<size_t>(depth.constant())));
    PartsText text;
    text.total = total_;
    text.count = is_elements ? numel(indices_)
                             : numel(std::span<const Expr>(indices_).first(indices_.size() - 1));
    text.length = source_.value(slice);
    text.first_value = "in0[i]";
    text.find = is_elements ? find_element() : find_tuple(text.length);
    text.updates = 2;
    return write_parts(source_, text);
  }

 private:
  void check_elements() {
    for (size_t i = 0; i < data_.size(); ++i) {
      source_.check_equal(indices_[i], updates_[i],
                          str("indices and updates must agree in axis ", i));
      if (static_cast<int64_t>(i) != params_.axis)
        source_.check(Expr(1) - Expr::make(ExprOp::kLess, data_[i], indices_[i]),
                      str("the indices reach beyond the data in axis ", i));
    }
  }

  void check_tuples() {
    const size_t outer = indices_.size() - 1;
    const auto depth = static_cast<size_t>(indices_.back().constant());
    for (size_t i = 0; i < updates_.size(); ++i)
      source_.check_equal(updates_[i], i < outer ? indices_[i] : data_[i - outer + depth],
                          str("updates do not fit indices and data in axis ", i));
  }

  /// Statements that give `place` of element `update` of the updates.
  std::string find_element() {
    const auto axis = static_cast<size_t>(params_.axis);
    std::vector<std::string> names;
    SymShape kept = strides_;
    kept[axis] = Expr(0);
    for (size_t i = 0; i < data_.size(); ++i) names.push_back(str("c", i));
    return str(source_.decompose("update", names, indices_), "(void)c", axis,
               ";\nconst Index found = find(in1[update], ", source_.value(data_[axis]),
               ");\nif (found >= 0) place = ", source_.offset(names, kept), " + found * ",
               source_.value(strides_[axis]), ";\n");
  }

  /// The same of a slice.
  std::string find_tuple(const std::string& length) {
    const auto depth = static_cast<size_t>(indices_.back().constant());
    std::string text = "Index slice = 0;\nbool is_found = true;\n";
    for (size_t k = 0; k < depth; ++k) {
      const std::string extent = source_.value(data_[k]);
      text += str("{\nconst Index index = find(in1[update * ", depth, " + ", k, "], ", extent,
                  ");\nis_found = is_found && index >= 0;\nslice = slice * ", extent,
                  " + (is_found ? index : 0);\n}\n");
    }
    return text + str("if (is_found) place = slice * ", length, ";\n");
  }

  const ScatterParams& params_;
  const DataType type_;
  KernelSource source_;
  const SymShape &data_, &indices_, &updates_;
  const SymShape strides_;
  const Expr total_;
};

constexpr std::string_view kLines = "a thread per line", kParts = "a block per part";

Ways<std::string> ways(const Operator& op, const KernelArgs& args) {
  const ScatterParams& params = static_cast<const Scatter&>(op).params();
  Ways<std::string> names;
  if (params.mode != ScatterMode::kELEMENT) {
    names.add(std::string(kParts), true);
    return names;
  }
  const Shape& data = args.inputs[0].opt;
  const int64_t extent = std::max<int64_t>(1, data[static_cast<int>(params.axis)]);
  const int64_t lines = data.numel() / extent;
  const bool are_few = lines < kFewLines * kWarp;
  for (const std::string_view name : {are_few ? kParts : kLines, are_few ? kLines : kParts})
    names.add(std::string(name), name == kLines ? lines >= kFewLines : lines < kManyLines);
  return names;
}

std::vector<Candidate> scatter_candidates(const Operator& op, const CandidateQuery& query) {
  return moving_candidates(query, [&](const KernelArgs& args) { return ways(op, args); });
}

std::optional<GeneratedKernel> generate_scatter(const Operator& op, const KernelArgs& args) {
  ScatterWriter writer(static_cast<const Scatter&>(op).params(), args);
  return ways(op, args).at(args.candidate->tactic) == kLines ? writer.lines() : writer.parts();
}

const RegisteredKernels<Scatter> kScatterKernels(
    {.candidates = scatter_candidates,
     .generate = generate_scatter,
     .make = nullptr,
     .tactics = [] {
       return std::vector<std::string>{std::string(kLines), std::string(kParts)};
     }});

std::vector<Candidate> max_unpool_candidates(const Operator&, const CandidateQuery& query) {
  return moving_candidates(
      query, [](const KernelArgs&) { return std::vector<std::string>{std::string(kParts)}; });
}

std::optional<GeneratedKernel> generate_max_unpool(const Operator&, const KernelArgs& args) {
  KernelSource source("max_unpool", args);
  const SymShape &maxima = source.dims(0), &indices = source.dims(1);
  for (size_t i = 0; i < maxima.size(); ++i)
    source.check_equal(indices[i], maxima[i], str("indices and maxima must agree in axis ", i));
  const std::string_view element = carrier_type(element_size(args.outputs[0].type.dtype));
  source.set_input_type(0, element), source.set_output_type(0, element);
  source.add_declarations(include("indexing.cuh"));
  declare_replacing(source, element);
  PartsText text;
  text.total = numel(source.shape_values(2)), text.count = numel(maxima);
  text.length = "1", text.first_value = "0";
  text.find = "place = find(in1[update], total);\n";
  return write_parts(source, text);
}

const RegisteredKernels<MaxUnpool> kMaxUnpoolKernels({max_unpool_candidates, generate_max_unpool,
                                                      nullptr});

}  // namespace
}  // namespace opwright::gpu
