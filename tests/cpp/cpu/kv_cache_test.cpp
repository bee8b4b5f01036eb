#include <gtest/gtest.h>

#include <algorithm>

#include "cpu/run_kernel.h"
#include "operators/kv_cache.h"

namespace opwright::testing {
namespace {

constexpr int64_t kBatch = 4, kHeads = 2, kRoom = 6, kSize = 5;

/// Before the cache, across its beginning, within it, across its end, behind it, and where 32 bits
/// overflow.
const std::vector<std::vector<int64_t>> kStarts = {
    {0, 3, 5, 6}, {-1, -2, -3, 4}, {INT32_MAX, INT32_MIN, 7, -7}};

int64_t place(int64_t batch, int64_t head, int64_t at, int64_t e, int64_t extent) {
  return ((batch * kHeads + head) * extent + at) * kSize + e;
}

template <class Op>
void check(DataType type, DataType index_type, bool is_packed, const std::vector<int64_t>& starts) {
  SCOPED_TRACE(::testing::Message() << name(type) << " " << name(index_type) << " packed "
                                    << is_packed << " from " << starts[0]);
  // In the packed form none, two, one and more than there are.
  const std::vector<int64_t> bounds = {0, 0, 2, 3, 9};
  const int64_t tokens = is_packed ? 4 : 3;
  const Shape cache_shape{kBatch, kHeads, kRoom, kSize};
  const Shape update_shape =
      is_packed ? Shape{tokens, kHeads, kSize} : Shape{kBatch, kHeads, tokens, kSize};
  const Values cache = rounded(random_values(cache_shape, 1), type);
  const Values update = rounded(random_values(update_shape, 2), type);
  Values expected = cache;
  for (int64_t b = 0; b < kBatch; ++b) {
    const int64_t first = is_packed ? std::min(bounds[b], tokens) : 0;
    const int64_t last = is_packed ? std::min(bounds[b + 1], tokens) : tokens;
    for (int64_t t = 0; t < last - first; ++t) {
      const int64_t at = starts[b] + t;
      if (at < 0 || at >= kRoom) continue;
      for (int64_t h = 0; h < kHeads; ++h)
        for (int64_t e = 0; e < kSize; ++e)
          expected[place(b, h, at, e, kRoom)] =
              update[is_packed ? ((first + t) * kHeads + h) * kSize + e
                               : place(b, h, t, e, tokens)];
    }
  }
  const auto numbers = [](const std::vector<int64_t>& of) {
    return make_values({static_cast<int64_t>(of.size())},
                       [&](int64_t i) { return static_cast<double>(of[i]); });
  };
  std::vector<TestInput> inputs = {{cache, type}, {update, type}, {numbers(starts), index_type}};
  if (is_packed) inputs.push_back({numbers(bounds), index_type});
  const std::vector<TestOutput> outputs = {{cache_shape, type}};
  KvCacheUpdateParams params;
  if (is_packed) params.update_form = AttentionIOForm::kPACKED_NHD;
  const Op op(params);
  for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
    TestKernel kernel(op, candidate, inputs, outputs);
    for (const int in_place : {-1, 0})
      expect_close(kernel.run(inputs, outputs, in_place)[0], expected, 0);
  }
}

TEST(KvCacheUpdate, WritesWhatFits) {
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16})
    for (const DataType index_type : {DataType::kINT32, DataType::kINT64})
      for (const bool is_packed : {false, true})
        for (const std::vector<int64_t>& starts : kStarts)
          check<KvCacheUpdate>(type, index_type, is_packed, starts);
}

TEST(KvCacheWrite, WritesWhatFits) {
  for (const bool is_packed : {false, true})
    for (const std::vector<int64_t>& starts : kStarts)
      check<KvCacheWrite>(DataType::kFLOAT, DataType::kINT64, is_packed, starts);
}

}  // namespace
}  // namespace opwright::testing
