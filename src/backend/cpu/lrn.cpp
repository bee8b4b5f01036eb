#include "backend/cpu/cpu_device.h"
#include "backend/cpu/dnnl_kernel.h"
#include "backend/cpu/dnnl_variant.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "base/error.h"
#include "operators/normalization.h"

namespace opwright {
namespace {

using LrnDesc = dnnl::lrn_forward::primitive_desc;

/// [batch, channels, all other axes, 1]: oneDNN's fast kernels are for images.
Shape as_image(const Shape& shape) { return {shape[0], shape[1], shape.numel(2, shape.rank()), 1}; }

LrnDesc make_desc(const LrnParams& params, const Shape& shape, const Variant& variant) {
  const dnnl::memory::desc desc = dnnl_desc(as_image(shape), variant.type, variant.input);
  return LrnDesc(dnnl_engine(), dnnl::prop_kind::forward_inference,
                 dnnl::algorithm::lrn_across_channels, desc, desc, params.window, params.alpha,
                 params.beta, params.k, workspace_attributes(), /*allow_empty=*/true);
}

std::optional<Selection<LrnDesc>> select(const LrnParams& params, const Shape& shape,
                                         const PortType& port, std::string_view wanted) {
  return select_implementation<LrnDesc>(
      port, port, wanted, is_reference,
      [&](const Variant& variant) { return make_desc(params, shape, variant); });
}

class LrnKernel final : public DnnlKernel {
 public:
  LrnKernel(const LrnParams& params, const KernelArgs& args) : DnnlKernel(args), params_(params) {}

 private:
  void build(DnnlProgram& program, std::span<const Shape> inputs, std::span<const Shape>) override {
    const PortType type = input_type(0);
    const auto selected = select(params_, inputs[0], type, candidate().tactic_name);
    if (!selected)
      fail_with(ErrorCode::kUNSUPPORTED_STATE, "Layer '", layer(), "': oneDNN has no LRN of ",
                inputs[0], ".");
    const dnnl::memory::desc port = dnnl_desc(as_image(inputs[0]), type.dtype, type.format);
    const Operand source = program.as(program.input(0, port), selected->desc.src_desc());
    const Operand target = program.output(0, port);
    const Operand result = program.staging(target, selected->desc.dst_desc());
    program.add(selected->desc, {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, result}});
    program.copy(result, target);
    program.description = selected->name;
  }

  LrnParams params_;
};

void require_window(const LrnParams& params, std::string_view layer) {
  require(params.window % 2 == 1 && fits_dnnl(params.window), "Layer '", layer,
          "': LRN on the CPU needs an odd window of at most 31 bits, not ", params.window, ".");
}

std::vector<Candidate> lrn_candidates(const Operator& op, const CandidateQuery& query) {
  const LrnParams& params = static_cast<const Lrn&>(op).params();
  require_window(params, query.layer);
  const Shape& shape = query.inputs[0].opt;
  std::vector<TensorFormat> formats = {TensorFormat::kLINEAR};
  for (const TensorFormat format : cpu_device().formats(shape.rank())) formats.push_back(format);
  std::vector<Candidate> found;
  for (const DataType type : offered_types(query, query.inputs[0].type.dtype)) {
    for (const TensorFormat format : formats) {
      const PortType port{type, format};
      Candidate candidate{{port}, {port}, 0, {}};
      if (shape.numel() > 0) {
        const auto best = select(params, shape, port, {});
        if (!best || (!best->fast && format != TensorFormat::kLINEAR)) continue;
        candidate.tactic_name = best->name;
      } else if (format != TensorFormat::kLINEAR) {
        continue;
      }
      found.push_back(candidate);
    }
  }
  return found;
}

void check_lrn(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1);
  rules.require(rules.input(0), kDnnlFloats, kImageFormats);
  rules.require_same(rules.output(0), rules.input(0));
  require_window(static_cast<const Lrn&>(op).params(), args.layer);
}

std::vector<std::string> lrn_tactics() { return {std::string(kDnnlTactic)}; }

const RegisteredKernels<Lrn> kLrnKernels({lrn_candidates, make_dnnl_kernel<LrnKernel, Lrn>,
                                          check_lrn, -1, -1, lrn_tactics});

}  // namespace
}  // namespace opwright
