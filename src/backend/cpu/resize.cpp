#include <algorithm>
#include <utility>

#include "backend/candidates.h"
#include "backend/cpu/copy_table.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise_tile.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/resize_tables.h"
#include "backend/cpu/resize_tile.h"
#include "backend/cpu/shape_checks.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/types.h"

namespace opwright {
namespace {

bool is_resized(const ResizeParams& params, int axis, int64_t from, int64_t to) {
  return from != to || (!params.scales.empty() && static_cast<float>(params.scales[axis]) != 1);
}

/// Requires that an image in another format than LINEAR keeps its number of channels.
void require_shapes(std::string_view layer, const Shape& x, const Shape& y, TensorFormat format) {
  const Shape shapes[] = {x, y};
  require_countable(shapes);
  require(x.rank() == y.rank() && (format == TensorFormat::kLINEAR || x[1] == y[1]), "Layer '",
          layer, "': cannot resize ", x, " to ", y, " in the format ", name(format));
}

class NearestKernel final : public Kernel {
 public:
  NearestKernel(const Resize& op, const KernelArgs& args)
      : layer_(args.layer),
        params_(op.params()),
        type_(args.outputs[0].type),
        size_(element_size(type_.dtype)) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    copy_.clear();
    require_shapes(layer_, inputs[0], outputs[0], type_.format);
    const Axes input = physical_extents(inputs[0], type_.format);
    const Axes output = physical_extents(outputs[0], type_.format);
    const int rank = inputs[0].rank();
    require(inputs[0].numel() > 0 || outputs[0].numel() == 0, "Layer '", layer_,
            "': there is no nearest element among none");
    int logical[Axes::kMax] = {};
    logical[input.count - 1] = 1;  // the block of a split channel axis
    for (int axis = 0; axis < rank; ++axis) logical[physical_axis(axis, rank, type_.format)] = axis;
    copy_.reserve(output);
    copy_.prepare(
        input, output, size_,
        [&](int axis) { return !is_resized(params_, logical[axis], input[axis], output[axis]); },
        [&](int axis, int64_t* table) {
          const Fraction scale = resize_scale(params_, logical[axis], input[axis], output[axis]);
          const bool resized = is_resized(params_, logical[axis], input[axis], output[axis]);
          for (int64_t i = 0; i < output[axis]; ++i)
            table[i] = resized ? nearest_index(params_, i, input[axis], output[axis], scale) : i;
        });
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    copy_.run(inputs[0], outputs[0], nullptr);
  }

 private:
  std::string layer_;
  ResizeParams params_;
  PortType type_;
  int size_;
  TableCopy copy_;
};

/// Linear and cubic interpolation are separable: one pass for each axis, in FP32. The axes before
/// the first resized one split the tensor, so that the results between two passes stay in the
/// cache.
class InterpolationKernel final : public Kernel {
 public:
  InterpolationKernel(const Resize& op, const KernelArgs& args)
      : layer_(args.layer),
        params_(op.params()),
        from_(args.inputs[0].type),
        to_(args.outputs[0].type) {
    if (from_.dtype != DataType::kFLOAT) load_ = find_cast(from_.dtype, DataType::kFLOAT);
    if (to_.dtype != DataType::kFLOAT) store_ = find_cast(DataType::kFLOAT, to_.dtype);
    workers_ = thread_count();
    // Bounds the elements between any two passes by an image whose axes all have their greatest
    // extents. Leading axes that keep their extent throughout the profile do not belong to an
    // image.
    const PortDesc &x = args.inputs[0], &y = args.outputs[0];
    const Axes from = physical_extents(x.max, from_.format);
    const Axes to = physical_extents(y.max, to_.format);
    int first = 0;
    const auto is_kept = [&](int axis) {
      return x.min[axis] == y.min[axis] && x.opt[axis] == y.opt[axis] &&
             !is_resized(params_, axis, x.max[axis], y.max[axis]);
    };
    const int leading = from_.format == TensorFormat::kLINEAR ? from.count : 1;
    while (first < leading && is_kept(first)) ++first;
    slot_ = 1;
    for (int i = first; i < from.count; ++i)
      slot_ = checked_product(kScratch, {slot_, std::max(from[i], to[i])});
    slot_ = checked_product(kScratch, {slot_ / 16 + 1, 16});
  }

  size_t workspace_size() const override {
    return checked_product(kScratch, {workers_, 2, slot_, sizeof(float)});
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    const Shape& shape = inputs[0];
    batch_ = 0;
    passes_.clear();
    require_shapes(layer_, shape, outputs[0], from_.format);
    const Axes from = physical_extents(shape, from_.format);
    const Axes to = physical_extents(outputs[0], to_.format);
    int logical[Axes::kMax] = {};
    for (int axis = 0; axis < shape.rank(); ++axis)
      logical[physical_axis(axis, shape.rank(), from_.format)] = axis;
    const auto resized = [&](int i) { return is_resized(params_, logical[i], from[i], to[i]); };
    if (outputs[0].numel() == 0) return;
    require(shape.numel() > 0, "Layer '", layer_, "': cannot interpolate between no elements");
    int first = 0;
    int64_t batch = 1;
    while (first < from.count && !resized(first)) batch *= from[first++];
    from_image_ = to_image_ = 1;
    int64_t between = 1;  // bounds the elements between passes, too
    bool fits = true;
    for (int i = first; i < from.count; ++i) {
      from_image_ *= from[i], to_image_ *= to[i];
      fits = fits && !__builtin_mul_overflow(between, std::max(from[i], to[i]), &between);
    }
    require(fits && between <= slot_, "Layer '", layer_, "': resizes ", shape, " to ", outputs[0],
            ", beyond the optimization profile");
    // The axis that shrinks most comes first. Passes along inner axes pick single elements. Among
    // equal axes, such a pass comes where the other passes leave it less to do.
    Axes extents = from;
    std::vector<int> order;
    for (int i = from.count - 1; i >= first; --i)
      if (resized(i)) order.push_back(i);
    if (to_image_ < from_image_) std::reverse(order.begin(), order.end());
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return to[a] * from[b] < to[b] * from[a]; });
    for (const int axis : order) {
      Pass pass;
      make_resize_table(params_, from[axis], to[axis],
                        resize_scale(params_, logical[axis], from[axis], to[axis]), pass.table);
      pass.from = from[axis], pass.to = to[axis];
      for (int i = first; i < axis; ++i) pass.outer *= extents[i];
      for (int i = axis + 1; i < extents.count; ++i) pass.inner *= extents[i];
      extents[axis] = to[axis];
      passes_.push_back(std::move(pass));
    }
    batch_ = batch;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    const auto* from = static_cast<const std::byte*>(inputs[0]);
    auto* to = static_cast<std::byte*>(outputs[0]);
    auto* scratch = static_cast<float*>(workspace);
    const auto image = [&](int64_t i, int64_t worker) {
      run_image(from + i * from_image_ * element_size(from_.dtype),
                to + i * to_image_ * element_size(to_.dtype), scratch + worker * 2 * slot_);
    };
    if (batch_ < workers_) {  // the passes themselves use threads
      for (int64_t i = 0; i < batch_; ++i) image(i, 0);
      return;
    }
    const int64_t grain =
        std::max<int64_t>(1, kGrain * workers_ / std::max<int64_t>(1, batch_ * to_image_));
    parallel_for(workers_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t worker = begin; worker < end; ++worker)
        for (int64_t i = batch_ * worker / workers_; i < batch_ * (worker + 1) / workers_; ++i)
          image(i, worker);
    });
  }

 private:
  static constexpr int64_t kGrain = 1 << 13;  ///< elements that are worth a thread
  static constexpr std::string_view kScratch = "the memory to interpolate in";

  struct Pass {
    ResizeTable table;
    int64_t from = 1, to = 1, outer = 1, inner = 1;
  };

  void run_image(const std::byte* from, std::byte* to, float* scratch) const {
    float* buffers[2] = {scratch, scratch + slot_};
    const auto* x = reinterpret_cast<const float*>(from);
    int next = 0;
    if (load_) {
      convert(load_, from, element_size(from_.dtype), buffers[0], sizeof(float), from_image_);
      x = buffers[0];
      next = 1;
    }
    for (size_t i = 0; i < passes_.size(); ++i) {
      const bool last = i + 1 == passes_.size() && !store_;
      float* y = last ? reinterpret_cast<float*>(to) : buffers[next];
      run_pass(passes_[i], x, y);
      x = y;
      next = 1 - next;
    }
    if (store_) {
      convert(store_, x, sizeof(float), to, element_size(to_.dtype), to_image_);
    } else if (passes_.empty()) {
      const TileFunction copy = find_cast(DataType::kFLOAT, DataType::kFLOAT);
      convert(copy, x, sizeof(float), to, sizeof(float), to_image_);
    }
  }

  static void convert(TileFunction function, const void* from, int64_t from_size, void* to,
                      int64_t to_size, int64_t count) {
    parallel_for(count, 4 * kGrain, [&](int64_t begin, int64_t end) {
      function(static_cast<std::byte*>(to) + begin * to_size,
               static_cast<const std::byte*>(from) + begin * from_size, nullptr, nullptr,
               end - begin, nullptr);
    });
  }

  static void run_pass(const Pass& pass, const float* x, float* y) {
    const ResizeTable& table = pass.table;
    if (pass.inner == 1) {
      parallel_for(pass.outer, std::max<int64_t>(1, kGrain / pass.to),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t row = begin; row < end; ++row)
                       blend_elements(x + row * pass.from, table.index.data(), table.weight.data(),
                                      table.taps, pass.to, y + row * pass.to);
                   });
      return;
    }
    parallel_for(pass.outer * pass.to, std::max<int64_t>(1, kGrain / pass.inner),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t row = begin; row < end; ++row) {
                     const int64_t i = row % pass.to;
                     const float* rows[4];
                     for (int k = 0; k < table.taps; ++k)
                       rows[k] = x + (row / pass.to * pass.from + table.index[i * table.taps + k]) *
                                         pass.inner;
                     blend_rows(rows, &table.weight[i * table.taps], table.taps, pass.inner,
                                y + row * pass.inner);
                   }
                 });
  }

  std::string layer_;
  ResizeParams params_;
  PortType from_, to_;
  TileFunction load_ = nullptr, store_ = nullptr;
  int64_t workers_ = 1, slot_ = 0;
  std::vector<Pass> passes_;
  int64_t batch_ = 0, from_image_ = 1, to_image_ = 1;
};

/// Whether resizing takes the format: nearest neighbours only move elements, and blocks of channels
/// must keep their channel axis.
bool takes_format(const ResizeParams& params, const PortDesc& x, const PortDesc& y,
                  TensorFormat format) {
  if (format == TensorFormat::kLINEAR) return true;
  const bool is_whole = x.min.rank() > 1 && x.min[1] == y.max[1];
  const bool is_nearest = params.mode == InterpolationMode::kNEAREST;
  return is_whole && fills_blocks(x, format) &&
         (is_nearest ? kImageFormats.has(format) : format == TensorFormat::kHWC);
}

Types types_of(const ResizeParams& params) {
  return params.mode == InterpolationMode::kNEAREST ? kWholeBytes : kFloats;
}

std::vector<Candidate> resize_candidates(const Operator& op, const CandidateQuery& query) {
  const ResizeParams& params = static_cast<const Resize&>(op).params();
  const PortDesc &x = query.inputs[0], &y = query.outputs[0];
  const bool nearest = params.mode == InterpolationMode::kNEAREST;
  std::vector<Candidate> result;
  if (!types_of(params).has(x.type.dtype)) return result;
  for (const TensorFormat format : formats_of(query, x.max.rank())) {
    if (!takes_format(params, x, y, format)) continue;
    Candidate candidate = linear_candidate(query, nearest ? "copy" : "separable");
    candidate.inputs[0].format = candidate.outputs[0].format = format;
    result.push_back(std::move(candidate));
  }
  const size_t count = result.size();
  for (const DataType type : {DataType::kBF16, DataType::kHALF}) {
    if (query.strongly_typed || x.type.dtype != DataType::kFLOAT ||
        !(type == DataType::kBF16 ? query.bf16 : query.fp16))
      continue;
    for (size_t i = 0; i < count; ++i) {
      Candidate candidate = result[i];
      candidate.inputs[0].dtype = candidate.outputs[0].dtype = type;
      result.push_back(std::move(candidate));
    }
  }
  return result;
}

void check_resize(const Operator& op, const KernelArgs& args) {
  const ResizeParams& params = static_cast<const Resize&>(op).params();
  const PortRules rules(op, args);
  rules.require_ports(1, 2);
  const PortRules::Port x = rules.input(0), y = rules.output(0);
  rules.require_type(x, types_of(params));
  rules.require_same(y, x);
  rules.require_that(takes_format(params, x.desc, y.desc, x.desc.type.format), "cannot resize ",
                     x.desc.max, " to ", y.desc.max, " in the format ", name(x.desc.type.format));
  if (rules.has_input(1)) rules.require(rules.input(1), kIndexTypes);
}

const RegisteredKernels<Resize> kResizeKernels(
    {resize_candidates,
     [](const Operator& op, const KernelArgs& args) -> std::unique_ptr<Kernel> {
       const Resize& resize = static_cast<const Resize&>(op);
       if (resize.params().mode == InterpolationMode::kNEAREST)
         return std::make_unique<NearestKernel>(resize, args);
       return std::make_unique<InterpolationKernel>(resize, args);
     },
     check_resize, -1, -1,
     [] {
       return std::vector<std::string>{"copy", "separable"};
     }});

}  // namespace
}  // namespace opwright
