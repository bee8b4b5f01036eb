#include "operators/scatter.h"

#include <algorithm>
#include <initializer_list>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// The fewest lines along the axis for which a thread per line pays, and the number of lines from
/// which on a block per part of the output does not.
constexpr int64_t kFewLines = 32, kManyLines = 1 << 14;
/// Each block goes through all indices. With more blocks than this, each has a larger part of the
/// output, up to so many packs for each thread.
constexpr int64_t kManyScatterBlocks = kFewBlocks, kMostPacks = 8;
constexpr int kPartThreads = 512;

std::string_view name_of(ScatterReduction reduction) {
  switch (reduction) {
    case ScatterReduction::kNONE:
      return "Scattering::kReplace";
    case ScatterReduction::kADD:
      return "Scattering::kSum";
    case ScatterReduction::kMUL:
      return "Scattering::kProduct";
    case ScatterReduction::kMIN:
      return "Scattering::kLeast";
    case ScatterReduction::kMAX:
      return "Scattering::kGreatest";
  }
  return {};
}

/// Truth values: a sum is OR and a product is AND.
ScatterReduction reduction_on(DataType type, ScatterReduction reduction) {
  if (type != DataType::kBOOL) return reduction;
  return reduction == ScatterReduction::kADD   ? ScatterReduction::kMAX
         : reduction == ScatterReduction::kMUL ? ScatterReduction::kMIN
                                               : reduction;
}

/// The type in memory. Elements that are replaced are moved as they are.
std::string_view type_in_memory(ScatterReduction reduction, DataType type) {
  return reduction == ScatterReduction::kNONE ? carrier_type(element_size(type))
                                              : storage_type(type);
}

/// Adds Config.
void declare(KernelSource& source, ScatterReduction reduction, DataType type,
             std::initializer_list<int> inputs, bool has_data, int64_t part = 0) {
  const std::string_view element = type_in_memory(reduction, type);
  for (const int input : inputs) source.set_input_type(input, element);
  source.set_output_type(0, element);
  ConfigWriter config;
  config.type("Element", element), config.number("kThreads", kPartThreads);
  config.number("kPartElements", part);
  config.value("Scattering", "kScattering", name_of(reduction_on(type, reduction)));
  config.flag("kHasData", has_data);
  source.add_declarations(include("scatter.cuh") + config.write());
}

/// The definition of ScatterArguments.
std::string write_arguments(KernelSource& source, std::string_view data, std::string_view updates,
                            const Expr& total, const Expr& count, const Expr& length) {
  return str("const ScatterArguments<Config> all = {", data, ", ", updates, ", out0, ",
             source.value(total), ", ", source.value(count), ", ", source.value(length), "};\n");
}

/// A kernel whose blocks each have a part of the output.
class PartsWriter {
 public:
  /// `inputs` are those that have elements, and `length` is that of an update.
  PartsWriter(KernelSource& source, const PortDesc& output, ScatterReduction reduction,
              std::initializer_list<int> inputs, bool has_data, const Expr& length)
      : source_(source) {
    const DataType type = output.type.dtype;
    const Expr multiples[] = {length};
    width_ = vector_width(source, static_cast<int>(element_size(type)), multiples, conditions_);
    if (width_ > 1) {
      const std::string_view element = type_in_memory(reduction, type);
      for (const int input : inputs)
        conditions_.push_back(str("is_aligned<", element, ", ", width_, ">(in", input, ")"));
      conditions_.push_back(str("is_aligned<", element, ", ", width_, ">(out0)"));
    }
    part_ = kPartThreads * width_;
    for (int packs = 1; packs < kMostPacks; packs *= 2)
      if (output.opt.numel() > kManyScatterBlocks * part_) part_ *= 2;
    declare(source, reduction, type, inputs, has_data, part_);
  }

  /// `find` are statements that give `place` of update `update`.
  GeneratedKernel write(const std::string& arguments, const Expr& total, std::string_view find) {
    std::string condition = "true";
    for (const std::string& each : conditions_) condition += " && " + each;
    return source_.finish(
        str(arguments, "scatter_parts<", width_, ">(all, ", condition,
            ", [&](Index update) {\nIndex place = -1;\n", find, "return place;\n});\n"),
        ceil_div(total, Expr(part_)), kPartThreads);
  }

 private:
  KernelSource& source_;
  int width_ = 1;
  int64_t part_ = 0;
  std::vector<std::string> conditions_;
};

class ScatterWriter {
 public:
  ScatterWriter(const ScatterParams& params, const KernelArgs& args)
      : params_(params),
        source_("scatter", args),
        data_(source_.dims(0)),
        indices_(source_.dims(1)),
        updates_(source_.dims(2)),
        output_(args.outputs[0]),
        strides_(row_major_strides(data_)) {}

  /// Writes a kernel with one thread per line along the axis.
  GeneratedKernel lines() {
    declare(source_, params_.reduction, output_.type.dtype, {0, 2}, true);
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
    std::string text = write_arguments(source_, "in0", "in2", count, 0, 1);
    text += "const ScatterAxis axis = {";
    for (const Expr& number : {data_[axis], strides_[axis], indices_[axis], index_strides[axis]})
      text += str(text.back() == '{' ? "" : ", ", source_.value(number));
    return source_.finish(str(text, "};\nscatter_lines(all, in1, axis, [&](Index line) {\n",
                              source_.decompose("line", names, outer), "return ScatterLine{",
                              source_.offset(names, to), ", ", source_.offset(names, from), ", ",
                              inside, "};\n});\n"),
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
    const Expr count = is_elements
                           ? numel(indices_)
                           : numel(std::span<const Expr>(indices_).first(indices_.size() - 1));
    const Expr total = numel(data_);
    PartsWriter writer(source_, output_, params_.reduction, {0, 2}, true, slice);
    return writer.write(write_arguments(source_, "in0", "in2", total, count, slice), total,
                        is_elements ? find_element() : find_tuple());
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

  /// Statements that define `place` for element `update` of the updates.
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

  /// Statements that define `place` for slice `update` of the updates.
  std::string find_tuple() {
    const auto depth = static_cast<size_t>(indices_.back().constant());
    std::string text = "Index slice = 0;\nbool is_found = true;\n";
    for (size_t k = 0; k < depth; ++k) {
      const std::string extent = source_.value(data_[k]);
      text += str("{\nconst Index index = find(in1[update * ", depth, " + ", k, "], ", extent,
                  ");\nis_found = is_found && index >= 0;\nslice = slice * ", extent,
                  " + (is_found ? index : 0);\n}\n");
    }
    return text + "if (is_found) place = slice * all.length;\n";
  }

  const ScatterParams& params_;
  KernelSource source_;
  const SymShape &data_, &indices_, &updates_;
  const PortDesc& output_;
  const SymShape strides_;
};

constexpr std::string_view kScatterLines = "a thread per line", kParts = "a block per part";

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
  for (const std::string_view name :
       {are_few ? kParts : kScatterLines, are_few ? kScatterLines : kParts})
    names.add(std::string(name), name == kScatterLines ? lines >= kFewLines : lines < kManyLines);
  return names;
}

std::vector<Candidate> scatter_candidates(const Operator& op, const CandidateQuery& query) {
  return moving_candidates(query, [&](const KernelArgs& args) { return ways(op, args); });
}

std::optional<GeneratedKernel> generate_scatter(const Operator& op, const KernelArgs& args) {
  ScatterWriter writer(static_cast<const Scatter&>(op).params(), args);
  return ways(op, args).at(args.candidate->tactic) == kScatterLines ? writer.lines()
                                                                    : writer.parts();
}

const RegisteredKernels<Scatter> kScatterKernels(
    {.candidates = scatter_candidates,
     .generate = generate_scatter,
     .make = nullptr,
     .tactics = [] {
       return std::vector<std::string>{std::string(kScatterLines), std::string(kParts)};
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
  const Expr total = numel(source.shape_values(2));
  PartsWriter writer(source, args.outputs[0], ScatterReduction::kNONE, {0}, false, 1);
  return writer.write(write_arguments(source, "nullptr", "in0", total, numel(maxima), 1), total,
                      "place = find(in1[update], all.total);\n");
}

const RegisteredKernels<MaxUnpool> kMaxUnpoolKernels({max_unpool_candidates, generate_max_unpool,
                                                      nullptr});

}  // namespace
}  // namespace opwright::gpu
