#include <algorithm>

#include "backend/candidates.h"
#include "backend/cpu/cpu_device.h"
#include "backend/cpu/dnnl_kernel.h"
#include "backend/cpu/dnnl_variant.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise_tile.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "backend/cpu/softmax_tile.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/types.h"
#include "operators/reduce.h"

namespace opwright {
namespace {

using SoftmaxDesc = dnnl::softmax_forward::primitive_desc;
using dnnl::memory;

/// The axes before the softmax's, that axis, and those behind it, in the order of memory.
struct Extents {
  int64_t outer = 1, axis = 1, inner = 1;
};

Extents extents_of(const SoftmaxParams& params, const Shape& shape, TensorFormat format) {
  const int axis = __builtin_ctzll(static_cast<uint64_t>(params.axes));
  Extents extents;
  bool behind = false;
  const auto visit = [&](int i) {
    if (i == axis)
      extents.axis = shape[i], behind = true;
    else
      (behind ? extents.inner : extents.outer) *= shape[i];
  };
  const bool channels_last = layout_of(format).channels_last;
  for (int i = 0; i < shape.rank(); ++i)
    if (!channels_last || i != 1) visit(i);
  if (channels_last) visit(1);
  return extents;
}

/// [outer, axis, inner] as it lies in memory, or with the axis moved behind the others.
memory::desc desc_of(const Extents& e, DataType type, bool axis_last) {
  const memory::dims extents = dnnl_dims(memory::dims{e.outer, e.axis, e.inner});
  if (axis_last) return {extents, dnnl_type(type), {e.axis * e.inner, 1, e.axis}};
  return {extents, dnnl_type(type), {e.axis * e.inner, e.inner, 1}};
}

SoftmaxDesc make_desc(const SoftmaxParams& params, const memory::desc& desc) {
  return SoftmaxDesc(dnnl_engine(), dnnl::prop_kind::forward_inference,
                     params.log ? dnnl::algorithm::softmax_log : dnnl::algorithm::softmax_accurate,
                     desc, desc, /*axis=*/1, workspace_attributes(), /*allow_empty=*/true);
}

struct Choice {
  SoftmaxDesc desc;
  std::string name;
};

/// On the tensor as it lies where oneDNN has a tuned kernel for that, else with the axis last.
Choice choose(const SoftmaxParams& params, const Extents& extents, DataType type) {
  Choice plain{make_desc(params, desc_of(extents, compute_type(type), false)), {}};
  if (plain.desc) plain.name = plain.desc.impl_info_str();
  if (plain.desc && !is_reference(plain.name)) return plain;
  for (const DataType computed : {compute_type(type), DataType::kFLOAT}) {
    Choice moved{make_desc(params, desc_of(extents, computed, true)), {}};
    if (!moved.desc) continue;
    moved.name = moved.desc.impl_info_str() + std::string(" with the axis last");
    if (!is_reference(moved.name)) return moved;
  }
  return plain;
}

class SoftmaxKernel final : public DnnlKernel {
 public:
  SoftmaxKernel(const SoftmaxParams& params, const KernelArgs& args)
      : DnnlKernel(args), params_(params) {}

 private:
  void build(DnnlProgram& program, std::span<const Shape> inputs, std::span<const Shape>) override {
    const PortType type = input_type(0);
    const Extents extents = extents_of(params_, inputs[0], type.format);
    const Choice choice = choose(params_, extents, type.dtype);
    if (!choice.desc)
      fail_with(ErrorCode::kUNSUPPORTED_STATE, "Layer '", layer(), "': oneDNN has no softmax of ",
                inputs[0], ".");
    const memory::desc port = desc_of(extents, type.dtype, false);
    const Operand source = program.as(program.input(0, port), choice.desc.src_desc());
    const Operand target = program.output(0, port);
    const Operand result = program.staging(target, choice.desc.dst_desc());
    program.add(choice.desc, {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, result}});
    program.copy(result, target);
    program.description = choice.name;
  }

  SoftmaxParams params_;
};

/// In FP32, along neighbours in memory or along columns. Of narrower types all is converted before
/// and behind.
class LinesKernel final : public Kernel {
 public:
  LinesKernel(const SoftmaxParams& params, const KernelArgs& args)
      : params_(params),
        type_(args.inputs[0].type),
        load_(find_cast(type_.dtype, DataType::kFLOAT)),
        store_(find_cast(DataType::kFLOAT, type_.dtype)),
        most_(args.inputs[0].max.numel()) {}

  size_t workspace_size() const override {
    return converts() ? 2 * static_cast<size_t>(bytes_of(DataType::kFLOAT, most_)) : 0;
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape>) override {
    require_countable(inputs);
    require(inputs[0].numel() <= most_, "a softmax of ", inputs[0], " is larger than planned");
    extents_ = extents_of(params_, inputs[0], type_.format);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    const int64_t numel = extents_.outer * extents_.axis * extents_.inner;
    if (numel == 0) return;
    if (!converts())
      return run(static_cast<const float*>(inputs[0]), static_cast<float*>(outputs[0]));
    auto* const x = static_cast<float*>(workspace);
    float* const y = x + numel;
    convert_all(load_, inputs[0], element_size(type_.dtype), x, sizeof(float), numel);
    run(x, y);
    convert_all(store_, y, sizeof(float), outputs[0], element_size(type_.dtype), numel);
  }

 private:
  static constexpr int64_t kGrain = 1 << 12;  ///< elements that are worth a second thread

  bool converts() const { return type_.dtype != DataType::kFLOAT; }

  static void convert_all(TileFunction function, const void* from, int64_t from_size, void* to,
                          int64_t to_size, int64_t count) {
    parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
      function(static_cast<std::byte*>(to) + begin * to_size,
               static_cast<const std::byte*>(from) + begin * from_size, nullptr, nullptr,
               end - begin, nullptr);
    });
  }

  void run(const float* x, float* y) const {
    const int64_t outer = extents_.outer, count = extents_.axis, inner = extents_.inner;
    if (inner == 1) {
      parallel_for(outer, std::max<int64_t>(1, kGrain / count), [&](int64_t begin, int64_t end) {
        softmax_rows(x + begin * count, end - begin, count, params_.log, y + begin * count);
      });
      return;
    }
    const int64_t tiles = (inner + kSoftmaxColumns - 1) / kSoftmaxColumns;
    const int64_t size = count * std::min(inner, kSoftmaxColumns);
    parallel_for(outer * tiles, std::max<int64_t>(1, kGrain / size),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t first = i % tiles * kSoftmaxColumns;
                     const int64_t at = i / tiles * count * inner + first;
                     softmax_columns(x + at, count, inner, std::min(kSoftmaxColumns, inner - first),
                                     params_.log, y + at);
                   }
                 });
  }

  const SoftmaxParams params_;
  const PortType type_;
  const TileFunction load_, store_;
  const int64_t most_;
  Extents extents_;
};

/// Whether LinesKernel computes it. The logarithms of oneDNN are 25 times less exact, and above 0.
bool is_by_lines(const SoftmaxParams& params, DataType type) {
  return type == DataType::kFLOAT || params.log;
}

constexpr TensorFormat kFormats[] = {TensorFormat::kLINEAR, TensorFormat::kHWC};

std::vector<Candidate> softmax_candidates(const Operator& op, const CandidateQuery& query) {
  const SoftmaxParams& params = static_cast<const Softmax&>(op).params();
  const Shape& shape = query.inputs[0].opt;
  std::vector<Candidate> found;
  for (const DataType type : offered_types(query, query.inputs[0].type.dtype)) {
    for (const TensorFormat format : kFormats) {
      if (!is_valid(format, shape.rank())) continue;
      const PortType port{type, format};
      Candidate candidate{{port}, {port}, 0, {}};
      if (is_by_lines(params, type)) {
        const bool is_last = extents_of(params, shape, format).inner == 1;
        candidate.tactic_name = is_last ? "rows" : "columns";
      } else if (shape.numel() > 0) {
        const Choice choice = choose(params, extents_of(params, shape, format), type);
        if (!choice.desc) continue;
        candidate.tactic_name = choice.name;
      }
      found.push_back(candidate);
    }
  }
  return found;
}

void check_softmax(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(1, 1);
  rules.require(rules.input(0), kDnnlFloats, {kFormats[0], kFormats[1]});
  rules.require_same(rules.output(0), rules.input(0));
}

std::unique_ptr<Kernel> make_softmax(const Operator& op, const KernelArgs& args) {
  const SoftmaxParams& params = static_cast<const Softmax&>(op).params();
  if (is_by_lines(params, args.inputs[0].type.dtype))
    return std::make_unique<LinesKernel>(params, args);
  return make_dnnl_kernel<SoftmaxKernel, Softmax>(op, args);
}

const RegisteredKernels<Softmax> kSoftmaxKernels(
    {softmax_candidates, make_softmax, check_softmax, -1, -1, [] {
       return std::vector<std::string>{std::string(kDnnlTactic), "rows", "columns"};
     }});

}  // namespace
}  // namespace opwright
