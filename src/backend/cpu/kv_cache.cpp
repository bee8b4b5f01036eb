#include "operators/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "backend/candidates.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/index_reader.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/port_rules.h"
#include "backend/cpu/shape_checks.h"
#include "base/parallel.h"

namespace opwright {
namespace {

/// A task copies the tokens of one head of one batch.
class KvCacheKernel final : public Kernel {
 public:
  KvCacheKernel(const KvCacheUpdateParams& params, const KernelArgs& args)
      : layer_(args.layer),
        is_packed_(params.update_form == AttentionIOForm::kPACKED_NHD),
        may_grow_(!is_packed_ && args.inputs.size() > 3 && args.inputs[3].present),
        size_(element_size(args.inputs[0].type.dtype)),
        wide_indices_(args.inputs[2].type.dtype == DataType::kINT64),
        wide_lengths_(args.inputs.size() > 3 && args.inputs[3].present &&
                      args.inputs[3].type.dtype == DataType::kINT64) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    require_countable(inputs), require_countable(outputs);
    const Shape &cache = inputs[0], &update = inputs[1];
    batch_ = 0;
    const int head_axis = 1, size_axis = is_packed_ ? 2 : 3;
    Shape expected = cache;
    if (may_grow_ && outputs[0].rank() == 4) expected[2] = outputs[0][2];
    require(outputs[0] == expected && (is_packed_ || update[0] == cache[0]) &&
                update[head_axis] == cache[1] && update[size_axis] == cache[3] &&
                inputs[2].numel() == cache[0] && (!is_packed_ || inputs[3].numel() == cache[0] + 1),
            "Layer '", layer_, "': an update of shape ", update, " and indices of shape ",
            inputs[2], " do not fit the cache ", cache);
    batch_ = cache[0], heads_ = cache[1], room_ = outputs[0][2], before_ = cache[2];
    tokens_ = update[is_packed_ ? 0 : 2];
    head_ = cache[3] * size_;
    cache_bytes_ = cache.numel() * size_;
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    auto* const to = static_cast<std::byte*>(outputs[0]);
    // The output lies elsewhere where other steps read the cache.
    if (before_ == room_)
      parallel_copy(to, inputs[0], cache_bytes_);
    else
      move_heads(static_cast<const std::byte*>(inputs[0]), to);
    if (head_ == 0) return;
    const auto* const from = static_cast<const std::byte*>(inputs[1]);
    const IndexReader indices(inputs[2], wide_indices_);
    const IndexReader lengths(is_packed_ ? inputs[3] : inputs[2], wide_lengths_);
    parallel_for(
        batch_ * heads_, std::max<int64_t>(1, kCopyGrainBytes / std::max<int64_t>(16, head_)),
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t b = i / heads_, h = i % heads_;
            const int64_t first = is_packed_ ? std::clamp<int64_t>(lengths.raw(b), 0, tokens_) : 0;
            const int64_t last =
                is_packed_ ? std::clamp<int64_t>(lengths.raw(b + 1), first, tokens_) : tokens_;
            const int64_t at = indices.raw(b);
            for (int64_t t = std::max<int64_t>(0, -std::max(at, -tokens_)); t < last - first; ++t) {
              if (at >= room_ || at + t >= room_) break;
              const int64_t source =
                  is_packed_ ? (first + t) * heads_ + h : (b * heads_ + h) * tokens_ + t;
              std::memcpy(to + ((b * heads_ + h) * room_ + at + t) * head_, from + source * head_,
                          static_cast<size_t>(head_));
            }
          }
        });
  }

 private:
  /// Moves heads to a cache with different room per head. In place, one head moves after the other,
  /// in an order that overwrites none before it has moved.
  void move_heads(const std::byte* from, std::byte* to) const {
    const int64_t old_bytes = before_ * head_, new_bytes = room_ * head_;
    const auto move = [&](int64_t i) {
      const int64_t kept = std::min(old_bytes, new_bytes);
      std::memmove(to + i * new_bytes, from + i * old_bytes, static_cast<size_t>(kept));
      std::memset(to + i * new_bytes + kept, 0, static_cast<size_t>(new_bytes - kept));
    };
    const int64_t count = batch_ * heads_;
    if (from == to) {
      for (int64_t i = 0; i < count; ++i) move(new_bytes > old_bytes ? count - 1 - i : i);
      return;
    }
    parallel_for(count, std::max<int64_t>(1, kCopyGrainBytes / std::max<int64_t>(16, new_bytes)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) move(i);
                 });
  }

  const std::string layer_;
  const bool is_packed_;
  const bool may_grow_;  ///< whether an input determines the output's room
  const int size_;
  const bool wide_indices_, wide_lengths_;
  int64_t batch_ = 0, heads_ = 0, room_ = 0, tokens_ = 0, head_ = 0;
  int64_t before_ = 0, cache_bytes_ = 0;
};

constexpr Types kCached = {DataType::kFLOAT, DataType::kHALF, DataType::kBF16, DataType::kFP8};

std::vector<Candidate> kv_cache_candidates(const Operator&, const CandidateQuery& query) {
  if (!kCached.has(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "copy")};
}

template <class Op>
void check_kv_cache(const Operator& op, const KernelArgs& args) {
  const PortRules rules(op, args);
  const bool is_packed =
      static_cast<const Op&>(op).params().update_form == AttentionIOForm::kPACKED_NHD;
  rules.require_ports(is_packed ? 4 : 3, 4);
  rules.require(rules.input(0), kCached);
  rules.require_same(rules.input(1), rules.input(0));
  rules.require(rules.input(2), kIndexTypes);
  if (rules.has_input(3)) rules.require(rules.input(3), kIndexTypes);
  rules.require_same(rules.output(0), rules.input(0));
}

const RegisteredKernels<KvCacheUpdate> kKvCacheUpdateKernels(
    {kv_cache_candidates, make_kernel<KvCacheKernel, KvCacheUpdate>,
     check_kv_cache<KvCacheUpdate>});
const RegisteredKernels<KvCacheWrite> kKvCacheWriteKernels(
    {kv_cache_candidates, make_kernel<KvCacheKernel, KvCacheWrite>, check_kv_cache<KvCacheWrite>});

}  // namespace
}  // namespace opwright
