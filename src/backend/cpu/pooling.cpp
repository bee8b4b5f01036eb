#include "operators/pooling.h"

#include <algorithm>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/dnnl_kernel.h"
#include "backend/cpu/dnnl_variant.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/max_pooling.h"
#include "backend/cpu/port_rules.h"
#include "base/error.h"

namespace opwright {
namespace {

using PoolingDesc = dnnl::pooling_forward::primitive_desc;
using dnnl::memory;

/// One spatial axis of a pooling.
struct Axis {
  int64_t window, stride, dilation, pre, post;
};

std::vector<Axis> axes_of(const PoolingParams& params, const Shape& x) {
  ResolvedPadding padding = resolve_padding(params, x);
  // With rounding up, resolve_padding() includes the overhang of the last window. The padding
  // proper ends before it.
  if (params.padding_mode == PaddingMode::kEXPLICIT_ROUND_UP)
    for (size_t i = 0; i < padding.post.size(); ++i)
      padding.post[i] = params.post_padding.empty() ? 0 : params.post_padding[i];
  std::vector<Axis> axes;
  for (int i = 0; i < x.rank() - 2; ++i)
    axes.push_back({params.window[i], params.stride.empty() ? 1 : params.stride[i],
                    params.dilation.empty() ? 1 : params.dilation[i], padding.pre[i],
                    padding.post[i]});
  return axes;
}

PoolingDesc make_desc(const PoolingParams& params, dnnl::algorithm algorithm, const Shape& x,
                      const Shape& y, const Variant& variant) {
  memory::dims strides, windows, dilations, pre, post;
  std::vector<DnnlWindow> reaches;
  const std::vector<Axis> axes = axes_of(params, x);
  for (size_t i = 0; i < axes.size(); ++i) {
    const Axis& axis = axes[i];
    strides.push_back(axis.stride);
    windows.push_back(axis.window);
    dilations.push_back(axis.dilation - 1);
    pre.push_back(axis.pre);
    const int64_t reach = (y[i + 2] - 1) * axis.stride + axis.dilation * (axis.window - 1) + 1;
    post.push_back(std::max<int64_t>(reach - x[i + 2] - axis.pre, 0));
    reaches.push_back(
        {x[i + 2], y[i + 2], axis.window, axis.stride, axis.dilation, pre[i], post[i]});
  }
  require_dnnl_windows(reaches);
  return PoolingDesc(dnnl_engine(), dnnl::prop_kind::forward_inference, algorithm,
                     dnnl_desc(x, variant.type, variant.input),
                     dnnl_desc(y, variant.type, variant.output), strides, windows, dilations, pre,
                     post, workspace_attributes(), /*allow_empty=*/true);
}

dnnl::algorithm average_algorithm(const PoolingParams& params) {
  return params.average_count_excludes_padding ? dnnl::algorithm::pooling_avg_exclude_padding
                                               : dnnl::algorithm::pooling_avg_include_padding;
}

dnnl::algorithm main_algorithm(const PoolingParams& params) {
  return params.type == PoolingType::kAVERAGE ? average_algorithm(params)
                                              : dnnl::algorithm::pooling_max;
}

/// Factors that correct averages with an overhang, per output position. Where padding counts,
/// oneDNN divides by the whole window. Rounding up makes windows that reach beyond the padding;
/// their divisor is the number of taps that begin before its end. Empty where no window reaches
/// beyond it.
Blob overhang_factors(const PoolingParams& params, const Shape& x, const Shape& y) {
  if (params.average_count_excludes_padding) return {};
  const std::vector<Axis> axes = axes_of(params, x);
  std::vector<std::vector<double>> factors(axes.size());
  bool any = false;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Axis& axis = axes[i];
    for (int64_t out = 0; out < y[i + 2]; ++out) {
      // Taps that begin before the end of the padding count.
      const int64_t left = x[i + 2] + axis.post - (out * axis.stride - axis.pre);
      const int64_t inside =
          std::clamp<int64_t>((left + axis.dilation - 1) / axis.dilation, 0, axis.window);
      any |= inside < axis.window;
      factors[i].push_back(static_cast<double>(axis.window) /
                           static_cast<double>(std::max<int64_t>(inside, 1)));
    }
  }
  if (!any) return {};
  const int64_t count = y.numel(2, y.rank());
  return Blob::make(count * sizeof(float), [&](void* bytes) {
    for (int64_t position = 0; position < count; ++position) {
      double factor = 1;
      int64_t rest = position;
      for (size_t i = axes.size(); i-- > 0;) {
        factor *= factors[i][rest % y[i + 2]];
        rest /= y[i + 2];
      }
      static_cast<float*>(bytes)[position] = static_cast<float>(factor);
    }
  });
}

class PoolingKernel final : public DnnlKernel {
 public:
  PoolingKernel(const PoolingParams& params, const KernelArgs& args)
      : DnnlKernel(args), params_(params) {}

 private:
  void build(DnnlProgram& program, std::span<const Shape> inputs,
             std::span<const Shape> outputs) override {
    const Shape &x = inputs[0], &y = outputs[0];
    // oneDNN would leave the output unwritten.
    require(x.numel() > 0, "Layer '", layer(), "': there is nothing to pool in ", x);
    const PortType x_type = input_type(0), y_type = output_type(0);
    auto selected = select_implementation<PoolingDesc>(
        x_type, y_type, candidate().tactic_name, is_reference, [&](const Variant& variant) {
          return make_desc(params_, main_algorithm(params_), x, y, variant);
        });
    if (!selected)
      fail_with(ErrorCode::kUNSUPPORTED_STATE, "Layer '", layer(), "': oneDNN has no pooling of ",
                x, ".");
    const Operand source = program.as(program.input(0, dnnl_desc(x, x_type.dtype, x_type.format)),
                                      selected->desc.src_desc());
    const Operand target = program.output(0, dnnl_desc(y, y_type.dtype, y_type.format));
    const Operand result = program.staging(target, selected->desc.dst_desc());

    if (params_.type == PoolingType::kMAX_AVERAGE_BLEND) {
      const Operand largest = program.temporary(result.desc);
      const Operand average = program.temporary(result.desc);
      program.add(selected->desc, {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, largest}});
      add_average(program, make_desc(params_, average_algorithm(params_), x, y, selected->variant),
                  source, average, x, y);
      const dnnl::sum::primitive_desc sum(dnnl_engine(), result.desc,
                                          {1 - params_.blend_factor, params_.blend_factor},
                                          {largest.desc, average.desc}, workspace_attributes());
      program.add(sum, {{DNNL_ARG_MULTIPLE_SRC, largest},
                        {DNNL_ARG_MULTIPLE_SRC + 1, average},
                        {DNNL_ARG_DST, result}});
    } else {
      add_average(program, selected->desc, source, result, x, y);
    }
    program.copy(result, target);
    program.description = selected->name;
  }

  void add_average(DnnlProgram& program, const PoolingDesc& desc, const Operand& source,
                   const Operand& result, const Shape& x, const Shape& y) const {
    program.add(desc, {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, result}});
    Blob factors = overhang_factors(params_, x, y);
    if (!factors) return;
    Shape extents = y;
    extents[0] = extents[1] = 1;
    const memory::desc factors_desc = dnnl_desc(extents, DataType::kFLOAT);
    const dnnl::binary::primitive_desc multiply(dnnl_engine(), dnnl::algorithm::binary_mul,
                                                result.desc, factors_desc, result.desc,
                                                workspace_attributes());
    program.add(multiply, {{DNNL_ARG_SRC_0, result},
                           {DNNL_ARG_SRC_1, program.constant(std::move(factors), factors_desc)},
                           {DNNL_ARG_DST, result}});
  }

  PoolingParams params_;
};

Types types_of(const PoolingParams& params) {
  return params.type == PoolingType::kMAX ? kDnnlFloats | kBytes : kDnnlFloats;
}

std::vector<Candidate> pooling_candidates(const Operator& op, const CandidateQuery& query) {
  const PoolingParams& params = static_cast<const Pooling&>(op).params();
  const Shape x = query.inputs[0].opt, y = query.outputs[0].opt;
  std::vector<TensorFormat> formats = {TensorFormat::kLINEAR};
  for (const TensorFormat format : cpu_device().formats(x.rank())) formats.push_back(format);

  std::vector<Candidate> found;
  for (const DataType type : offered_types(query, query.inputs[0].type.dtype)) {
    for (const TensorFormat format : formats) {
      const PortType port{type, format};
      Candidate candidate{{port}, {port}, 0, {}};
      if (params.type == PoolingType::kMAX) {
        if (!types_of(params).has(type)) continue;
        candidate.tactic_name = "rows";
      } else if (x.numel() > 0 && y.numel() > 0) {
        const auto best = select_implementation<PoolingDesc>(
            port, port, {}, is_reference, [&](const Variant& variant) {
              return make_desc(params, main_algorithm(params), x, y, variant);
            });
        if (!best || (!best->fast && format != TensorFormat::kLINEAR)) continue;
        candidate.tactic_name = best->name;
      } else if (format == TensorFormat::kLINEAR) {
        candidate.tactic_name = kDnnlTactic;  // the first shape with elements decides
      } else {
        continue;
      }
      found.push_back(candidate);
    }
  }
  return found;
}

void check_pooling(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1);
  rules.require(rules.input(0), types_of(static_cast<const Pooling&>(op).params()), kImageFormats);
  rules.require_same(rules.output(0), rules.input(0));
}

std::unique_ptr<Kernel> make_pooling(const Operator& op, const KernelArgs& args) {
  const PoolingParams& params = static_cast<const Pooling&>(op).params();
  return params.type == PoolingType::kMAX ? make_max_pooling(params, args)
                                          : make_dnnl_kernel<PoolingKernel, Pooling>(op, args);
}

const RegisteredKernels<Pooling> kPoolingKernels(
    {pooling_candidates, make_pooling, check_pooling, -1, -1, [] {
       return std::vector{std::string(kDnnlTactic), std::string("rows")};
     }});

}  // namespace
}  // namespace opwright
