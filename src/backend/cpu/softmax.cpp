#include <algorithm>

#include "backend/candidates.h"
#include "backend/cpu/cpu_device.h"
#include "backend/cpu/dnnl_memory.h"
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

/// Extents in memory order: of the axes before the softmax's axis, of that axis, and of those
/// behind it.
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

/// Computes in FP32, along contiguous elements or along columns. Each worker converts narrower
/// types tile by tile.
class SoftmaxKernel final : public Kernel {
 public:
  SoftmaxKernel(const SoftmaxParams& params, const KernelArgs& args)
      : params_(params),
        type_(args.inputs[0].type),
        load_(find_cast(type_.dtype, DataType::kFLOAT)),
        store_(find_cast(DataType::kFLOAT, type_.dtype)),
        workers_(thread_count()) {
    const Extents most = extents_of(params, args.inputs[0].max, type_.format);
    if (type_.dtype != DataType::kFLOAT)
      tile_ = std::max(kGrain, most.axis * std::min(most.inner, kSoftmaxColumns));
  }

  size_t workspace_size() const override {
    return static_cast<size_t>(workers_) * static_cast<size_t>(bytes_of(DataType::kFLOAT, tile_));
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape>) override {
    require_countable(inputs);
    extents_ = extents_of(params_, inputs[0], type_.format);
    const bool fits = type_.dtype == DataType::kFLOAT || inputs[0].numel() == 0 ||
                      extents_.axis * std::min(extents_.inner, kSoftmaxColumns) <= tile_;
    require(fits, "a softmax of ", inputs[0], " is larger than planned");
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    const int64_t outer = extents_.outer, count = extents_.axis, inner = extents_.inner;
    if (outer * count * inner == 0) return;
    const bool is_by_rows = inner == 1;
    const int64_t rows = std::max<int64_t>(1, kGrain / count);
    const int64_t columns = (inner + kSoftmaxColumns - 1) / kSoftmaxColumns;
    const int64_t tiles = is_by_rows ? (outer + rows - 1) / rows : outer * columns;
    // Small tiles share a thread.
    const int64_t size = is_by_rows ? rows * count : count * std::min(inner, kSoftmaxColumns);
    const int64_t groups = (tiles * size + kGrain - 1) / kGrain;
    const int64_t workers = std::clamp<int64_t>(std::min(tiles, groups), 1, workers_);
    parallel_for(workers, 1, [&](int64_t begin, int64_t end) {
      for (int64_t worker = begin; worker < end; ++worker) {
        float* const buffer = static_cast<float*>(workspace) + worker * tile_;
        const int64_t last = tiles * (worker + 1) / workers;
        for (int64_t i = tiles * worker / workers; i < last; ++i) {
          if (is_by_rows) {
            run_rows(inputs[0], outputs[0], i * rows, std::min(rows, outer - i * rows), buffer);
          } else {
            const int64_t first = i % columns * kSoftmaxColumns;
            run_columns(inputs[0], outputs[0], i / columns * count * inner + first,
                        std::min(kSoftmaxColumns, inner - first), buffer);
          }
        }
      }
    });
  }

 private:
  static constexpr int64_t kGrain = 1 << 12;  ///< elements that are worth a second thread

  const std::byte* from(const void* x, int64_t element) const {
    return static_cast<const std::byte*>(x) + element * element_size(type_.dtype);
  }
  std::byte* to(void* y, int64_t element) const {
    return static_cast<std::byte*>(y) + element * element_size(type_.dtype);
  }

  void run_rows(const void* x, void* y, int64_t first, int64_t rows, float* buffer) const {
    const int64_t count = extents_.axis, at = first * count;
    if (type_.dtype == DataType::kFLOAT)
      return softmax_rows(static_cast<const float*>(x) + at, rows, count, params_.log,
                          static_cast<float*>(y) + at);
    load_(buffer, from(x, at), nullptr, nullptr, rows * count, nullptr);
    softmax_rows(buffer, rows, count, params_.log, buffer);
    store_(to(y, at), buffer, nullptr, nullptr, rows * count, nullptr);
  }

  void run_columns(const void* x, void* y, int64_t at, int64_t columns, float* buffer) const {
    const int64_t count = extents_.axis, inner = extents_.inner;
    if (type_.dtype == DataType::kFLOAT)
      return softmax_columns(static_cast<const float*>(x) + at, count, inner, columns, params_.log,
                             static_cast<float*>(y) + at);
    for (int64_t i = 0; i < count; ++i)
      load_(buffer + i * columns, from(x, at + i * inner), nullptr, nullptr, columns, nullptr);
    softmax_columns(buffer, count, columns, columns, params_.log, buffer);
    for (int64_t i = 0; i < count; ++i)
      store_(to(y, at + i * inner), buffer + i * columns, nullptr, nullptr, columns, nullptr);
  }

  const SoftmaxParams params_;
  const PortType type_;
  const TileFunction load_, store_;
  const int workers_;
  int64_t tile_ = 0;  ///< FP32 elements of one worker's tile
  Extents extents_;
};

constexpr TensorFormat kFormats[] = {TensorFormat::kLINEAR, TensorFormat::kHWC};

std::vector<Candidate> softmax_candidates(const Operator& op, const CandidateQuery& query) {
  const SoftmaxParams& params = static_cast<const Softmax&>(op).params();
  const Shape& shape = query.inputs[0].opt;
  std::vector<Candidate> found;
  for (const DataType type : offered_types(query, query.inputs[0].type.dtype)) {
    if (!kDnnlFloats.has(type)) continue;
    for (const TensorFormat format : kFormats) {
      if (!is_valid(format, shape.rank())) continue;
      const PortType port{type, format};
      const bool is_last = extents_of(params, shape, format).inner == 1;
      found.push_back({{port}, {port}, 0, is_last ? "rows" : "columns"});
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
  return std::make_unique<SoftmaxKernel>(static_cast<const Softmax&>(op).params(), args);
}

const RegisteredKernels<Softmax> kSoftmaxKernels(
    {softmax_candidates, make_softmax, check_softmax, -1, -1, [] {
       return std::vector<std::string>{"rows", "columns"};
     }});

}  // namespace
}  // namespace opwright
