#include "backend/gpu/elementwise.h"

#include <algorithm>
#include <set>

#include "backend/candidates.h"
#include "backend/gpu/broadcast.h"
#include "backend/gpu/config_writer.h"
#include "base/error.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

enum Tactic : int64_t {
  kElements = 0,     ///< a thread takes one element at a time
  kVectors = 1,      ///< several neighbours, loaded and stored in one access where aligned
  kManyVectors = 2,  ///< two such accesses at a time
  kRows = 3,         ///< threads stay in a row, so that only rows are divided by extents
};
/// Tactics in the order in which they are tried; the best guess comes first.
constexpr Tactic kTactics[] = {kVectors, kElements, kManyVectors, kRows};

std::string name_of(Tactic tactic, int width) {
  switch (tactic) {
    case kElements:
      return "elements";
    case kVectors:
      return str("vectors of ", width);
    case kManyVectors:
      return str("two vectors of ", width);
    case kRows:
      return "rows";
  }
  return {};
}

/// Bytes of an access, and of the narrowest and widest type that sets an access's elements.
constexpr int kAccessBytes = 16, kNarrowest = 2, kWidest = 8;
/// Elements from which on more than one tactic is worth timing.
constexpr int64_t kManyElementwise = 1 << 16, kVeryManyElements = 1 << 20;
constexpr int64_t kLongRow = 64;

/// Elements of one access: 16 bytes of the widest type, within limits. An input that repeats has
/// fewer elements, which the caches hold: several accesses may take its neighbours.
int vector_width(std::span<const PortDesc> inputs, std::span<const PortDesc> outputs,
                 const Broadcast::Axes& axes) {
  int widest = kNarrowest;
  for (size_t i = 0; i < inputs.size(); ++i) {
    bool repeats = false;
    for (size_t axis = 0; axis < axes.extents.size(); ++axis)
      repeats |= axes.is_repeated(static_cast<int>(i), static_cast<int>(axis));
    if (!repeats) widest = std::max(widest, bits(inputs[i].type.dtype) / 8);
  }
  for (const PortDesc& port : outputs) widest = std::max(widest, bits(port.type.dtype) / 8);
  return kAccessBytes / widest;
}

/// Whether one access can take neighbours along the innermost axis, for some shape.
bool has_vectors(const Broadcast::Axes& axes, int width) {
  const Expr& inner = axes.extents.back();
  return axes.extents.size() == 1 || !inner.is_constant() || inner.constant() % width == 0;
}

/// Whether the tactic can share out the elements.
bool can_share(int64_t tactic, const Broadcast::Axes& axes, int width) {
  switch (tactic) {
    case kElements:
      return true;
    case kVectors:
    case kManyVectors:
      return has_vectors(axes, width);
    case kRows:
      return axes.extents.size() > 1;
    default:
      return false;
  }
}

/// The number of neighbours in one access of a thread. A row whose length is known and not a
/// multiple of the vector is taken one element at a time.
int group_width(int64_t tactic, int width, const Broadcast::Axes& axes) {
  return tactic == kRows && !has_vectors(axes, width) ? 1 : width;
}

/// Whether a tactic that can share out the elements may be the fastest.
bool is_worth_timing(int64_t tactic, const Broadcast::Axes& axes, int width, int64_t count,
                     int64_t row) {
  switch (tactic) {
    case kElements:
      return count >= kManyElementwise || !has_vectors(axes, width);
    case kManyVectors:
      return count >= kVeryManyElements;
    case kRows:
      return count >= kManyElementwise && row >= kLongRow;
    default:
      return true;
  }
}

/// Writes the body of the kernel.
class ElementwiseWriter {
 public:
  ElementwiseWriter(KernelSource& source, const KernelArgs& args, const ElementwiseBody& body,
                    const Broadcast& broadcast)
      : source_(source),
        args_(args),
        reads_(body.reads),
        broadcast_(broadcast),
        axes_(broadcast.presumed),
        width_(group_width(args.candidate->tactic, vector_width(args.inputs, args.outputs, axes_),
                           axes_)),
        rank_(static_cast<int>(axes_.extents.size())) {
    std::string parameters;
    for (const int input : reads_)
      parameters += str("const ", register_of(args.inputs[input]), " x", input, ", ");
    for (size_t i = 0; i < args.outputs.size(); ++i)
      parameters += str(i ? ", " : "", register_of(args.outputs[i]), "& y", i);
    source.add_declarations(str(body.declarations, "__device__ inline void compute(", parameters,
                                ") {\n", body.statements, "}\n\n"));
  }

  GeneratedKernel write(int64_t tactic) {
    text_ = str("const Index count = ", source_.value(broadcast_.count), ";\n");
    if (broadcast_.presumption != Expr(1)) {
      text_ += str("if (!", source_.value(broadcast_.presumption), ") {\n");
      each_element(broadcast_.general, false);
      text_ += "return;\n}\n";
    }
    for (const int input : reads_)
      if (is_scalar(input))
        text_ += str("const ", register_of(args_.inputs[input]), " s", input, " = load(in", input,
                     "[0]);\n");
    // Config has only what the loop uses. Layers that differ in typical extents then share a
    // kernel.
    ConfigWriter config;
    Expr threads = broadcast_.count;
    if (tactic == kElements) {
      each_element(axes_, true);
    } else if (tactic == kRows) {
      int64_t lanes = kWarp;
      while (lanes < kThreads && lanes * width_ < source_.typical(axes_.extents.back())) lanes *= 2;
      config.number("kWidth", width_);
      config.number("kLanes", lanes), config.number("kThreads", kThreads);
      threads = rows() * Expr(lanes);
    } else {
      const int at_once = tactic == kManyVectors ? 2 : 1;
      config.number("kWidth", width_), config.number("kAtOnce", at_once);
      vectors();
      threads = ceil_div(broadcast_.count, Expr(int64_t{width_} * at_once));
    }
    source_.add_declarations(include("elementwise.cuh") +
                             (config.is_empty() ? std::string() : config.write()));
    return source_.finish(text_, blocks_for(threads, kThreads), kThreads);
  }

 private:
  static std::string_view register_of(const PortDesc& port) {
    return register_type(port.type.dtype);
  }
  /// Whether the input's elements are in the output's order.
  bool is_dense(int input) const {
    for (int axis = 0; axis < rank_; ++axis)
      if (axes_.is_repeated(input, axis)) return false;
    return true;
  }
  bool is_scalar(int input) const { return axes_.is_scalar(input); }
  /// Whether neighbours of the output are also neighbours in the input.
  bool is_vector(int input) const { return !axes_.is_repeated(input, rank_ - 1); }

  /// Writes the computation of one element. `operand(input)` is the code of an input's value,
  /// `result(output)` the place of a result.
  template <class Operand, class Result>
  void compute(Operand&& operand, Result&& result) {
    text_ += "{\n";
    std::string call = "compute(";
    for (const int input : reads_) call += str(operand(input), ", ");
    for (size_t i = 0; i < args_.outputs.size(); ++i) {
      text_ += str(register_of(args_.outputs[i]), " y", i, ";\n");
      call += str(i ? ", y" : "y", i);
    }
    text_ += call + ");\n";
    for (size_t i = 0; i < args_.outputs.size(); ++i)
      text_ +=
          str(result(i), " = store<", storage_type(args_.outputs[i].type.dtype), ">(y", i, ");\n");
    text_ += "}\n";
  }

  /// Writes the computation of one element, with an offset for each input that is not a scalar.
  template <class Offset>
  void compute_at(Offset&& offset, const std::string& to, bool hoisted) {
    compute(
        [&](int input) {
          return hoisted && is_scalar(input) ? str("s", input)
                                             : str("load(in", input, "[", offset(input), "])");
        },
        [&](size_t output) { return str("out", output, "[", to, "]"); });
  }

  static std::vector<std::string> variables(size_t count) {
    std::vector<std::string> names;
    for (size_t i = 0; i < count; ++i) names.push_back(str("a", i));
    return names;
  }

  /// Writes a loop over the elements from `first` on. With `hoisted`, the axes are the presumed
  /// ones, and scalars have been read before.
  void each_element(const Broadcast::Axes& axes, bool hoisted, std::string_view first = "0") {
    const std::vector<std::string> names = variables(axes.extents.size());
    text_ += str("each_element(", first, ", count, [&](Index i) {\n");
    if (!hoisted || rank_ > 1) text_ += source_.decompose("i", names, axes.extents);
    compute_at(
        [&](int input) {
          if (hoisted && is_dense(input)) return std::string("i");
          return source_.offset(names, axes.strides[input]);
        },
        "i", hoisted);
    text_ += "});\n";
  }

  std::string pack_of(const PortDesc& port) const {
    return str("Pack<", storage_type(port.type.dtype), ", ", width_, ">");
  }

  /// Declares `Group`, the elements that a thread reads for one access of the output. Also declares
  /// the functions `fetch(offset of each input)` and `put(group, offset of the output)`.
  void declare_groups() {
    std::string members, parameters, fetched;
    for (const int input : reads_) {
      if (is_scalar(input)) continue;
      const PortDesc& port = args_.inputs[input];
      const std::string type =
          is_vector(input) ? pack_of(port) : std::string(storage_type(port.type.dtype));
      members += str(type, " p", input, ";\n");
      parameters += str(parameters.empty() ? "" : ", ", "Index o", input);
      fetched += str("group.p", input, " = *(const ", type, "*)(in", input, " + o", input, ");\n");
    }
    text_ += str("struct Group {\n", members, "};\n");
    text_ += str("const auto fetch = [&](", parameters, ") -> Group {\nGroup group;\n", fetched,
                 "return group;\n};\n");
    text_ += "const auto put = [&](const Group& group, Index to) {\n(void)group;\n";
    for (size_t i = 0; i < args_.outputs.size(); ++i)
      text_ += str(pack_of(args_.outputs[i]), " r", i, ";\n");
    text_ += str("#pragma unroll\nfor (int k = 0; k < ", width_, "; ++k) ");
    compute(
        [&](int input) {
          return is_scalar(input)   ? str("s", input)
                 : is_vector(input) ? str("load(group.p", input, ".at[k])")
                                    : str("load(group.p", input, ")");
        },
        [](size_t output) { return str("r", output, ".at[k]"); });
    for (size_t i = 0; i < args_.outputs.size(); ++i)
      text_ += str("*(", pack_of(args_.outputs[i]), "*)(out", i, " + to) = r", i, ";\n");
    text_ += "};\n";
  }

  /// Writes a call of fetch() with an offset for each of its parameters.
  template <class Offset>
  std::string fetch(Offset&& offset) const {
    std::string call;
    for (const int input : reads_)
      if (!is_scalar(input)) call += str(call.empty() ? "" : ", ", offset(input));
    return "fetch(" + call + ")";
  }

  /// The condition under which groups can be used: the user's pointers may be aligned only to
  /// elements.
  std::string alignment_test() {
    std::vector<std::string> tests;
    const Expr& inner = axes_.extents.back();
    if (rank_ > 1 && !inner.is_constant())
      tests.push_back(str(source_.value(inner), " % ", width_, " == 0"));
    const auto aligned = [&](const PortDesc& port, std::string_view name, size_t index) {
      tests.push_back(
          str("is_aligned<", storage_type(port.type.dtype), ", ", width_, ">(", name, index, ")"));
    };
    for (const int input : reads_)
      if (!is_scalar(input) && is_vector(input)) aligned(args_.inputs[input], "in", input);
    for (size_t i = 0; i < args_.outputs.size(); ++i) aligned(args_.outputs[i], "out", i);
    return joined(tests, " && ");
  }

  void vectors() {
    text_ += str("Index done = 0;\nif (", alignment_test(), ") {\n");
    declare_groups();
    // Offsets of a group, whose position along the innermost axis counts groups.
    const std::vector<std::string> names = variables(axes_.extents.size());
    SymShape extents = axes_.extents;
    if (rank_ > 1) extents.back() = floor_div(extents.back(), Expr(width_));
    const auto offset = [&](int input) {
      if (is_dense(input)) return str("g * ", width_);
      SymShape strides = axes_.strides[input];
      strides.back() = strides.back() * Expr(width_);
      return source_.offset(names, strides);
    };
    text_ += "done = each_group<Config, Group>(count, [&](Index g) -> Group {\n";
    if (rank_ > 1) text_ += source_.decompose("g", names, extents);
    text_ += str("return ", fetch(offset), ";\n}, put);\n}\n");
    each_element(axes_, true, "done");
  }

  /// Returns the number of rows.
  Expr rows() {
    const std::span<const Expr> outer = std::span(axes_.extents).first(rank_ - 1);
    const Expr& inner = axes_.extents.back();
    Expr count = numel(outer);
    const std::vector<std::string> names = variables(rank_ - 1);
    declare_groups();
    std::string members, begins;
    for (const int input : reads_) {
      if (is_scalar(input)) continue;
      members += str("Index b", input, ";\n");
      begins += str(begins.empty() ? "" : ", ",
                    source_.offset(names, std::span(axes_.strides[input]).first(rank_ - 1)));
    }
    const auto offset = [&](int input) {
      return str("row.b", input, is_vector(input) ? " + j" : "");
    };
    text_ += str("struct Row {\n", members, "};\neach_row<Config>(", source_.values({count, inner}),
                 ", ", alignment_test(), ", [&](Index number) -> Row {\n",
                 source_.decompose("number", names, outer));
    for (const std::string& name : names) text_ += str("(void)", name, ";\n");
    text_ += str("return {", begins,
                 "};\n}, [&](const Row& row, Index j) -> Group {\n(void)row, "
                 "(void)j;\nreturn ",
                 fetch(offset),
                 ";\n}, put, "
                 "[&](const Row& row, Index j, Index to) {\n(void)row, (void)j;\n");
    compute_at(offset, "to", true);
    text_ += "});\n";
    return count;
  }

  KernelSource& source_;
  const KernelArgs& args_;
  const std::vector<int>& reads_;
  const Broadcast& broadcast_;
  const Broadcast::Axes& axes_;
  const int width_, rank_;
  std::string text_;
};

}  // namespace

std::vector<Candidate> with_formats(const Candidate& candidate, const CandidateQuery& query) {
  const int rank = query.outputs[0].opt.rank();
  std::vector<Candidate> result;
  for (const TensorFormat format : formats_of(query, rank)) {
    Candidate& other = result.emplace_back(candidate);
    bool fits = true;
    const auto set = [&](std::vector<PortType>& types, std::span<const PortDesc> ports) {
      for (size_t i = 0; i < ports.size(); ++i) {
        if (!ports[i].present || format == TensorFormat::kLINEAR) continue;
        if (ports[i].opt.rank() == rank)
          types[i].format = format;
        else
          fits = fits && ports[i].max.numel() <= 1;
      }
    };
    set(other.inputs, query.inputs);
    set(other.outputs, query.outputs);
    if (!fits) result.pop_back();
  }
  return result;
}

std::vector<Candidate> elementwise_tactics(const Candidate& candidate,
                                           const CandidateQuery& query) {
  std::vector<PortDesc> inputs(query.inputs.begin(), query.inputs.end());
  std::vector<PortDesc> outputs(query.outputs.begin(), query.outputs.end());
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i].type = candidate.inputs[i];
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i].type = candidate.outputs[i];
  KernelArgs args;
  args.layer = query.layer;
  args.inputs = inputs;
  args.outputs = outputs;
  const PortsInMemory ports(args);
  const KernelSource source("", ports);
  const Broadcast::Axes axes = analyze_broadcast(source, ports.args()).presumed;
  const int width = vector_width(inputs, outputs, axes);
  const int64_t count = outputs[0].opt.numel(), row = source.typical(axes.extents.back());
  std::vector<Candidate> result;
  for (const Tactic tactic : kTactics) {
    if (!can_share(tactic, axes, width) ||
        !(query.all_tactics || is_worth_timing(tactic, axes, width, count, row)))
      continue;
    result.push_back(candidate);
    result.back().tactic = tactic, result.back().tactic_name = name_of(tactic, width);
  }
  return result;
}

std::vector<std::string> elementwise_tactic_names() {
  std::set<std::string> names;
  for (int bytes = kNarrowest; bytes <= kWidest; bytes *= 2)
    for (const Tactic tactic : kTactics) names.insert(name_of(tactic, kAccessBytes / bytes));
  return {names.begin(), names.end()};
}

GeneratedKernel generate_elementwise(std::string name, const KernelArgs& args,
                                     const ElementwiseBody& body) {
  const PortsInMemory ports(args);
  KernelSource source(std::move(name), ports);
  const Broadcast broadcast = analyze_broadcast(source, ports.args());
  return ElementwiseWriter(source, ports.args(), body, broadcast).write(args.candidate->tactic);
}

}  // namespace opwright::gpu
