#include "operators/window_reduction.h"

#include <algorithm>
#include <cstdio>

#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/infer.h"
#include "operators/window.h"

namespace opwright::gpu {
namespace {

constexpr int64_t kFar = 1 << 28;

/// A loop over the outputs, and in it one over the elements of each one's window.
class WindowWriter {
 public:
  WindowWriter(std::string_view name, const PoolingParams& params, const KernelArgs& args)
      : source_(std::string(name), args), x_(source_.dims(0)) {
    const auto spatial = static_cast<int>(x_.size()) - 2;
    const Ints window = per_axis(name, "window", params.window, spatial, 1, 1);
    const std::vector<WindowAxis> axes =
        window_axes(name, spatial, params.stride, params.dilation, params.pre_padding,
                    params.post_padding, params.padding_mode);
    // So that positions far beyond the input do not overflow.
    for (size_t i = 0; i < axes.size(); ++i) {
      const WindowAxis& axis = axes[i];
      if (std::max({axis.stride, axis.dilation, axis.pre, axis.post,
                    (window[i] - 1) * axis.dilation}) > kFar)
        source_.widen();
    }
    SymShape extents = {x_[0] * x_[1]};
    std::vector<std::string> names = {"plane"};
    std::string starts, place = "plane", ends;
    for (size_t i = 0; i < axes.size(); ++i) {
      const WindowAxis& axis = axes[i];
      const Expr& in = x_[i + 2];
      const Expr count = pooling_window_count(axis, params.padding_mode, in, Expr(window[i]));
      const std::string extent = source_.value(in), k = str("k", i), p = str("p", i);
      extents.push_back(count), names.push_back(str("c", i));
      starts += str("const Index start", i, " = c", i, " * ", axis.stride, " - ",
                    source_.value(padding(axis, params.padding_mode, in, window[i], count)), ";\n");
      loops_ += str("for (int ", k, " = 0; ", k, " < ", window[i], "; ++", k, ") {\nconst Index ",
                    p, " = start", i, " + ", k, " * ", axis.dilation, ";\nif (", p,
                    " < 0) continue;\n", "if (", p, " >= ", extent, ") break;\n");
      place = str("(", place, " * ", extent, " + ", p, ")");
      ends += "}\n";
    }
    count_ = numel(extents);
    begin_ = str("for (Index at = first_index(); at < ", source_.value(count_),
                 "; at += index_step()) {\n", source_.decompose("at", names, extents), starts);
    loops_ += str("const Index place = ", place, ";\n");
    end_ = ends;
  }

  KernelSource& source() { return source_; }
  const SymShape& x() const { return x_; }

  /// With statements before, in and after the loops over the window.
  GeneratedKernel write(std::string_view before, std::string_view visit, std::string_view after) {
    return source_.finish(str(begin_, before, loops_, visit, end_, after, "}\n"),
                          blocks_for(count_, kThreads), kThreads);
  }

 private:
  /// The padding in front; see padding_for.
  static Expr padding(const WindowAxis& axis, PaddingMode mode, const Expr& in, int64_t window,
                      const Expr& count) {
    if (mode != PaddingMode::kSAME_UPPER && mode != PaddingMode::kSAME_LOWER) return Expr(axis.pre);
    const Expr total = max(
        (count - Expr(1)) * Expr(axis.stride) + dilated(Expr(window), axis.dilation) - in, Expr(0));
    const Expr less = floor_div(total, Expr(2));
    return mode == PaddingMode::kSAME_UPPER ? less : total - less;
  }

  KernelSource source_;
  const SymShape& x_;
  Expr count_ = 1;
  std::string begin_, loops_, end_;
};

std::vector<Candidate> candidates(const Operator&, const CandidateQuery& query) {
  return moving_candidates(
      query, [](const KernelArgs&) { return std::vector<std::string>{"a thread per window"}; });
}

std::optional<GeneratedKernel> generate_max(const Operator& op, const KernelArgs& args) {
  const IndexedMaxPoolingParams& params = static_cast<const IndexedMaxPooling&>(op).params();
  WindowWriter writer("indexed_max_pooling", params.pooling, args);
  const DataType type = args.inputs[0].type.dtype;
  const SymShape& x = writer.x();
  std::string index = "place";
  if (params.column_major) {
    index = "0";
    for (size_t i = x.size(); i-- > 2;)
      index = str("(", index, " * ", writer.source().value(x[i]), " + p", i - 2, ")");
    index = str("plane * ", writer.source().value(numel(std::span(x).subspan(2))), " + ", index);
  }
  // NaN stays: it is no more compared.
  return writer.write(
      str("Index index = -1;\n", register_type(type), " most = 0;\n"),
      str("const ", register_type(type),
          " value = load(in0[place]);\nif (index < 0 || (most == most && !(value <= most))) {\n"
          "most = value;\nindex = ",
          index, ";\n}\n"),
      str("out0[at] = store<", storage_type(type),
          ">(most);\nout1[at] = index < 0 ? 0 : index;\n"));
}

std::optional<GeneratedKernel> generate_lp(const Operator& op, const KernelArgs& args) {
  const LpPoolingParams& params = static_cast<const LpPooling&>(op).params();
  WindowWriter writer("lp_pooling", params.pooling, args);
  const bool is_sum = params.p == 1, is_euclidean = params.p == 2;
  char p[40];
  std::snprintf(p, sizeof p, "%.17e", params.p);
  // In double precision, in which squares of FP32 do not overflow.
  return writer.write(
      "double sum = 0;\n",
      str("const double value = fabs((double)load(in0[place]));\nsum += ",
          is_sum         ? "value"
          : is_euclidean ? "value * value"
                         : str("pow(value, ", p, ")"),
          ";\n"),
      str("out0[at] = store<", storage_type(args.outputs[0].type.dtype), ">((float)",
          is_sum         ? "sum"
          : is_euclidean ? "sqrt(sum)"
                         : str("pow(sum, 1.0 / ", p, ")"),
          ");\n"));
}

const RegisteredKernels<IndexedMaxPooling> kIndexedMaxPoolingKernels({candidates, generate_max,
                                                                      nullptr});
const RegisteredKernels<LpPooling> kLpPoolingKernels({candidates, generate_lp, nullptr});

}  // namespace
}  // namespace opwright::gpu
