#include "operators/fused_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/candidates.h"
#include "backend/cpu/attention_tile.h"
#include "backend/cpu/dnnl_memory.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise_tile.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "backend/cpu/transpose_tile.h"
#include "base/parallel.h"

namespace opwright {
namespace {

/// The most elements of a head.
constexpr int64_t kMaxSize = 512;
/// Queries and keys in one piece of work.
constexpr int64_t kRows = 384, kPartRows = 48, kKeys = 128;
/// With at most this number of queries, keys are not rearranged.
constexpr int64_t kFewRows = 4;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

int64_t padded(int64_t count) {
  return (count + kAttentionLanes - 1) / kAttentionLanes * kAttentionLanes;
}

/// Offsets of parts of a thread's workspace, in floats.
struct Places {
  int64_t query = 0, raw, keys, values, scores, out, most, sum, bias, total;
  explicit Places(const FusedAttentionParams& params) {
    raw = query + kRows * padded(params.size);
    keys = raw + kKeys * padded(std::max(params.size, params.value_size));
    values = keys + params.size * kKeys;
    scores = values + kKeys * padded(params.value_size);
    out = scores + kPartRows * kKeys;
    most = out + kRows * padded(params.value_size);
    sum = most + kRows;
    bias = sum + kRows;
    total = bias + 2 * kKeys;
  }
};

/// A mask over [batch, heads, queries, keys]; strides are 0 where it is broadcast.
struct MaskStrides {
  int64_t batch = 0, head = 0, query = 0, key = 0;
  MaskStrides() = default;
  explicit MaskStrides(const Shape& shape) {
    int64_t* const all[] = {&key, &query, &head, &batch};
    int64_t stride = 1;
    for (int i = 0; i < shape.rank(); ++i) {
      const int64_t extent = shape[shape.rank() - 1 - i];
      *all[i] = extent == 1 ? 0 : stride;
      stride *= extent;
    }
  }
};

class FusedAttentionKernel final : public Kernel {
 public:
  FusedAttentionKernel(const FusedAttentionParams& params, const KernelArgs& args)
      : layer_(args.layer),
        params_(params),
        functions_(attention_functions()),
        places_(params),
        workers_(thread_count()),
        type_(args.inputs[0].type.dtype),
        element_(element_size(type_)) {
    if (type_ != DataType::kFLOAT) {
      load_ = find_cast(type_, DataType::kFLOAT);
      store_ = find_cast(DataType::kFLOAT, type_);
    }
    const auto has = [&](size_t i) { return i < args.inputs.size() && args.inputs[i].present; };
    has_allowed_ = has(FusedAttention::kAllowed), has_bias_ = has(FusedAttention::kBias);
    if (has_bias_) {
      const DataType bias = args.inputs[FusedAttention::kBias].type.dtype;
      bias_element_ = element_size(bias);
      if (bias != DataType::kFLOAT) load_bias_ = find_cast(bias, DataType::kFLOAT);
    }
  }

  size_t workspace_size() const override {
    return static_cast<size_t>(workers_ * places_.total) * sizeof(float);
  }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    tasks_ = 0;
    require_countable(inputs), require_countable(outputs);
    const auto batch_of = [&](int i, const Shape& shape) {
      return shape[attention_batch_axis(params_.layout(i))];
    };
    const auto length_of = [&](int i, const Shape& shape) {
      return shape[attention_length_axis(params_.layout(i))];
    };
    const int64_t batch = batch_of(0, inputs[0]);
    queries_ = length_of(0, inputs[0]), keys_ = length_of(1, inputs[1]);
    for (int i = 0; i < 4; ++i) {
      const Shape& shape = i == 3 ? outputs[0] : inputs[static_cast<size_t>(i)];
      const int64_t length = i == 0 || i == 3 ? queries_ : keys_;
      require(batch_of(i, shape) == batch && length_of(i, shape) == length, "Layer '", layer_,
              "': queries of shape ", inputs[0], " do not meet keys of shape ", inputs[1],
              " and values of shape ", inputs[2]);
      strides_[i] = attention_strides<int64_t>(params_, i, shape);
    }
    const Shape scores{batch, params_.heads, queries_, keys_};
    if (has_allowed_) {
      require_broadcast(FusedAttention::kAllowed, inputs[FusedAttention::kAllowed], scores);
      allowed_ = MaskStrides(inputs[FusedAttention::kAllowed]);
    }
    if (has_bias_) {
      require_broadcast(FusedAttention::kBias, inputs[FusedAttention::kBias], scores);
      bias_ = MaskStrides(inputs[FusedAttention::kBias]);
    }
    rows_ = params_.group() * queries_;
    const int64_t heads = batch * params_.shared_heads;
    if (rows_ == 0 || heads == 0) return;
    // Makes parts until each thread has several, which evens out other load on the cores.
    const int64_t parts = (rows_ + kPartRows - 1) / kPartRows;
    chunks_ = (rows_ + kRows - 1) / kRows;
    while (chunks_ < parts && heads * chunks_ < 2 * workers_) ++chunks_;
    chunk_ = (parts + chunks_ - 1) / chunks_ * kPartRows;
    chunks_ = (rows_ + chunk_ - 1) / chunk_;
    tasks_ = heads * chunks_;
    const int64_t work = rows_ * heads * keys_ * (params_.size + params_.value_size);
    slots_ = std::clamp<int64_t>(work / kGrain, 1, std::min<int64_t>(workers_, tasks_));
  }

  void enqueue(void const* const* inputs, void* const* outputs, void* workspace, Queue) override {
    if (tasks_ == 0) return;
    parallel_for(slots_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot) {
        float* const memory = static_cast<float*>(workspace) + slot * places_.total;
        const int64_t last = (slot + 1) * tasks_ / slots_;
        for (int64_t task = slot * tasks_ / slots_; task < last; ++task)
          run(inputs, outputs[0], memory, task);
      }
    });
  }

 private:
  /// Multiply-adds that are worth a thread.
  static constexpr int64_t kGrain = 1 << 17;

  /// A thread's work: rows [first, first + count) of the queries of all heads that share one head
  /// of keys.
  struct Task {
    int64_t batch, shared_head, first, count;
  };
  int64_t head_of(const Task& task, int64_t row) const {
    return task.shared_head * params_.group() + row / queries_;
  }
  const std::byte* place(const void* data, int operand, int64_t batch, int64_t head,
                         int64_t position) const {
    const AttentionStrides<int64_t>& s = strides_[operand];
    return static_cast<const std::byte*>(data) +
           (s.offset + batch * s.batch + head * s.head + position * s.length) * element_;
  }
  /// The number of keys that a query attends to.
  int64_t limit(int64_t query) const {
    if (params_.causal_kind == CausalMaskKind::kNONE) return keys_;
    const int64_t shift =
        params_.causal_kind == CausalMaskKind::kLOWER_RIGHT ? keys_ - queries_ : 0;
    return std::clamp<int64_t>(query + shift + 1, 0, keys_);
  }
  /// `count` rows of `size` elements as FP32. The rows are `stride` elements apart in place; in the
  /// buffer `to` they are `to_stride` apart.
  const float* rows(const std::byte* from, int64_t stride, int64_t count, int64_t size, float* to,
                    int64_t to_stride) const {
    for (int64_t i = 0; i < count; ++i) {
      const std::byte* const row = from + i * stride * element_;
      if (load_)
        load_(to + i * to_stride, row, nullptr, nullptr, size, nullptr);
      else
        std::copy_n(reinterpret_cast<const float*>(row), size, to + i * to_stride);
    }
    return to;
  }

  void run(void const* const* inputs, void* output, float* memory, int64_t number) const {
    const int64_t chunk = number % chunks_, head = number / chunks_;
    const Task task{head / params_.shared_heads, head % params_.shared_heads, chunk * chunk_,
                    std::min(chunk_, rows_ - chunk * chunk_)};
    const int64_t size = params_.size, value_size = params_.value_size;
    const int64_t query_stride = padded(size), out_stride = padded(value_size);
    float* const queries = memory + places_.query;
    float* const out = memory + places_.out;
    float *const most = memory + places_.most, *const sum = memory + places_.sum;
    int64_t end = 0;
    for (int64_t i = 0; i < task.count; ++i) {
      const int64_t row = task.first + i, query = row % queries_;
      rows(place(inputs[0], 0, task.batch, head_of(task, row), query), 0, 1, size,
           queries + i * query_stride, query_stride);
      if (params_.scale != 1) functions_.scale(queries + i * query_stride, size, params_.scale);
      most[i] = kNothing, sum[i] = 0;
      end = std::max(end, limit(query));
    }
    std::fill_n(out, task.count * out_stride, 0.0f);
    for (int64_t key = 0; key < end; key += kKeys)
      visit_keys(inputs, memory, task, key, std::min(kKeys, end - key));
    for (int64_t i = 0; i < task.count; ++i) {
      const int64_t row = task.first + i;
      functions_.scale(out + i * out_stride, value_size, sum[i] > 0 ? 1 / sum[i] : 0.0f);
      auto* const to =
          const_cast<std::byte*>(place(output, 3, task.batch, head_of(task, row), row % queries_));
      if (store_)
        store_(to, out + i * out_stride, nullptr, nullptr, value_size, nullptr);
      else
        std::copy_n(out + i * out_stride, value_size, reinterpret_cast<float*>(to));
    }
  }

  void visit_keys(void const* const* inputs, float* memory, const Task& task, int64_t first,
                  int64_t count) const {
    const int64_t size = params_.size, value_size = params_.value_size;
    const int64_t query_stride = padded(size), out_stride = padded(value_size);
    const bool few = task.count <= kFewRows;
    float* const raw = memory + places_.raw;
    const std::byte* const own_keys = place(inputs[1], 1, task.batch, task.shared_head, first);
    const std::byte* const own_values = place(inputs[2], 2, task.batch, task.shared_head, first);
    const float* keys = reinterpret_cast<const float*>(own_keys);
    int64_t key_stride = strides_[1].length;
    if (load_) keys = rows(own_keys, key_stride, count, size, raw, size), key_stride = size;
    float* const turned = memory + places_.keys;
    if (!few) {
      transpose_matrix(keys, key_stride, turned, kKeys, count, size, sizeof(float));
      // Columns beyond the keys are computed as well. Stale NaNs in them would slow that down.
      if (count % kAttentionLanes != 0)
        for (int64_t e = 0; e < size; ++e)
          std::fill(turned + e * kKeys + count, turned + e * kKeys + padded(count), 0.0f);
    }
    // Values are used in place where few queries read them once.
    const bool in_place = few && !load_ && value_size % kAttentionLanes == 0;
    const float* values = reinterpret_cast<const float*>(own_values);
    int64_t value_stride = strides_[2].length;
    bool has_values = in_place;

    float* const scores = memory + places_.scores;
    float* const out = memory + places_.out;
    float *const most = memory + places_.most, *const sum = memory + places_.sum;
    for (int64_t part = 0; part < task.count; part += kPartRows) {
      const int64_t height = std::min(kPartRows, task.count - part);
      int64_t width = 0;
      for (int64_t i = 0; i < height; ++i)
        width = std::max(width, limit((task.first + part + i) % queries_) - first);
      width = std::min(width, count);
      if (width <= 0) continue;
      const float* const part_queries = memory + places_.query + part * query_stride;
      if (few)
        functions_.dots(part_queries, query_stride, height, keys, key_stride, width, size, scores,
                        kKeys);
      else
        functions_.multiply({part_queries, query_stride, height, turned, kKeys, padded(width), size,
                             scores, kKeys, false});
      for (int64_t i = 0; i < height; ++i) {
        const int64_t at = part + i, row = task.first + at;
        float* const own = scores + i * kKeys;
        const int64_t valid = std::clamp<int64_t>(limit(row % queries_) - first, 0, width);
        const float largest =
            valid > 0
                ? functions_.mask(own, valid, mask_of(inputs, memory, task, row, first, valid))
                : kNothing;
        std::fill(own + valid, own + width, 0.0f);
        const float next = std::max(most[at], largest);
        if (next == kNothing) {
          std::fill(own, own + valid, 0.0f);
          continue;
        }
        const float added = functions_.exponentials(own, valid, next);
        if (most[at] != next) {
          const float factor = std::exp(most[at] - next);
          sum[at] *= factor;
          functions_.scale(out + at * out_stride, out_stride, factor);
          most[at] = next;
        }
        sum[at] += added;
      }
      if (!has_values) {
        float* const buffer = memory + places_.values;
        values = rows(own_values, value_stride, count, value_size, buffer, out_stride);
        if (value_size < out_stride)
          for (int64_t i = 0; i < count; ++i)
            std::fill(buffer + i * out_stride + value_size, buffer + (i + 1) * out_stride, 0.0f);
        value_stride = out_stride, has_values = true;
      }
      functions_.multiply({scores, kKeys, height, values, value_stride, out_stride, width,
                           out + part * out_stride, out_stride, true});
    }
  }

  ScoreMask mask_of(void const* const* inputs, float* memory, const Task& task, int64_t row,
                    int64_t first, int64_t count) const {
    ScoreMask mask;
    mask.cap = params_.cap, mask.masked = params_.masked_score;
    const int64_t head = head_of(task, row), query = row % queries_;
    const auto at = [&](const MaskStrides& s) {
      return task.batch * s.batch + head * s.head + query * s.query + first * s.key;
    };
    if (has_bias_) {
      float* const buffer = memory + places_.bias;
      const auto* from =
          static_cast<const std::byte*>(inputs[FusedAttention::kBias]) + at(bias_) * bias_element_;
      mask.bias = reinterpret_cast<const float*>(from);
      if (load_bias_) {
        load_bias_(buffer, from, nullptr, nullptr, bias_.key == 0 ? 1 : count, nullptr);
        mask.bias = buffer;
      }
      if (bias_.key == 0) {
        std::fill_n(buffer, count, *mask.bias);
        mask.bias = buffer;
      }
    }
    if (has_allowed_) {
      mask.allowed =
          static_cast<const unsigned char*>(inputs[FusedAttention::kAllowed]) + at(allowed_);
      if (allowed_.key == 0) {
        auto* const buffer = reinterpret_cast<unsigned char*>(memory + places_.bias + kKeys);
        std::fill_n(buffer, count, *mask.allowed);
        mask.allowed = buffer;
      }
    }
    return mask;
  }

  const std::string layer_;
  const FusedAttentionParams params_;
  const AttentionFunctions& functions_;
  const Places places_;
  const int workers_;
  const DataType type_;
  const int element_;
  int bias_element_ = 4;
  bool has_allowed_ = false, has_bias_ = false;
  TileFunction load_ = nullptr, store_ = nullptr, load_bias_ = nullptr;
  AttentionStrides<int64_t> strides_[4] = {};
  MaskStrides allowed_, bias_;
  int64_t queries_ = 0, keys_ = 0, rows_ = 0, chunk_ = 1, chunks_ = 0, tasks_ = 0, slots_ = 1;
};

bool fits(const FusedAttentionParams& params) {
  return params.size <= kMaxSize && params.value_size <= kMaxSize;
}

std::vector<Candidate> attention_candidates(const Operator& op, const CandidateQuery& query) {
  const FusedAttentionParams& params = static_cast<const FusedAttention&>(op).params();
  const DataType type = query.inputs[0].type.dtype;
  if (!kDnnlFloats.has(type) || !fits(params) || params.fused.present()) return {};
  if (query.inputs.size() > FusedAttention::kBias && query.inputs[FusedAttention::kBias].present &&
      !kDnnlFloats.has(query.inputs[FusedAttention::kBias].type.dtype))
    return {};
  std::vector<Candidate> found;
  for (const DataType offered : offered_types(query, type)) {
    Candidate candidate = linear_candidate(query, str("blocks of ", kKeys, " keys"));
    for (size_t i = 0; i < 3; ++i) candidate.inputs[i].dtype = offered;
    candidate.outputs[0].dtype = offered;
    found.push_back(std::move(candidate));
  }
  return found;
}

void check_attention(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  rules.require_ports(3, 5);
  const FusedAttentionParams& params = static_cast<const FusedAttention&>(op).params();
  rules.require_that(fits(params), "heads have more elements than ", kMaxSize);
  rules.require_that(!params.fused.present(),
                     "it has a fused program, which the CPU does not know");
  rules.require(rules.input(0), kDnnlFloats);
  for (const size_t i : {1, 2}) rules.require_same(rules.input(i), rules.input(0));
  rules.require_same(rules.output(0), rules.input(0));
  if (rules.has_input(FusedAttention::kAllowed))
    rules.require(rules.input(FusedAttention::kAllowed), {DataType::kBOOL});
  if (rules.has_input(FusedAttention::kBias))
    rules.require(rules.input(FusedAttention::kBias), kDnnlFloats);
}

const RegisteredKernels<FusedAttention> kFusedAttentionKernels(
    {attention_candidates, make_kernel<FusedAttentionKernel, FusedAttention>, check_attention});

}  // namespace
}  // namespace opwright
