#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "compile/program.h"
#include "cpu/run_kernel.h"
#include "operators/fused_attention.h"

/// Attention whose last step quantizes the result.
namespace opwright::testing {
namespace {

struct Case {
  int64_t queries, keys, size;
};

/// softmax(q k^T / 4) v of heads that lie one after the other; the result's lie side by side.
Values attention(const std::vector<TestInput>& inputs, int64_t heads, const Case& of) {
  const auto& [queries, keys, size] = of;
  Values result = make_values({1, queries, heads * size}, [](int64_t) { return 0; });
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t q = 0; q < queries; ++q) {
      std::vector<double> weights(static_cast<size_t>(keys));
      double sum = 0;
      for (int64_t k = 0; k < keys; ++k) {
        double score = 0;
        for (int64_t e = 0; e < size; ++e)
          score += inputs[0].values[(h * queries + q) * size + e] *
                   inputs[1].values[(h * keys + k) * size + e];
        sum += weights[static_cast<size_t>(k)] = std::exp(score / 4);
      }
      for (int64_t k = 0; k < keys; ++k)
        for (int64_t e = 0; e < size; ++e)
          result[(q * heads + h) * size + e] +=
              weights[static_cast<size_t>(k)] / sum * inputs[2].values[(h * keys + k) * size + e];
    }
  return result;
}

/// Every kernel: of rows that are stored in vectors and element by element, and beyond whole tiles.
TEST(CudaQuantizedAttention, EveryKernel) {
  using Op = ElementWiseOperation;
  constexpr DataType kFloat = DataType::kFLOAT;
  const double scale = 0.07, zero_point = 9;
  std::set<std::string> kinds;
  PairSelection pairs;
  for (const Case& of : {Case{70, 33, 64}, Case{3, 130, 64}, Case{66, 20, 20}})
    for (const DataType type : {DataType::kHALF, DataType::kBF16, DataType::kFLOAT})
      for (const DataType result : {DataType::kINT8, DataType::kUINT8, DataType::kFP8}) {
        if (type != DataType::kHALF && result != DataType::kINT8) continue;
        const bool is_fp8 = result == DataType::kFP8, is_signed = result == DataType::kINT8;
        const int64_t heads = 3;
        ProgramWriter writer;
        int y = writer.binary(Op::kDIV, writer.input(0, type), writer.constant(scale, kFloat));
        if (!is_fp8) {
          y = writer.unary(UnaryOperation::kROUND, y);
          y = writer.binary(Op::kSUM, y, writer.constant(zero_point, kFloat));
          y = writer.activation(ActivationType::kCLIP, y, is_signed ? -128 : 0,
                                is_signed ? 127 : 255);
        }
        const int results[] = {writer.cast(y, result)};
        std::vector<int> used;
        FusedAttentionParams params;
        params.scale = 0.25f, params.heads = params.shared_heads = heads;
        params.size = params.value_size = of.size;
        params.layouts[3] = static_cast<int64_t>(AttentionLayout::kBATCH_FIRST);
        params.fused = {writer.finish(results, &used), {}, result};
        const FusedAttention op(params);
        std::vector<TestInput> inputs;
        for (int i = 0; i < 3; ++i)
          inputs.push_back(
              {rounded(
                   random_values({1, heads, i == 0 ? of.queries : of.keys, of.size}, i + 1, -4, 4),
                   type),
               type});
        Values expected = rounded(attention(inputs, heads, of), type);
        for (double& value : expected.data)
          value = is_fp8 ? value / scale
                         : std::clamp(std::nearbyint(value / scale) + zero_point,
                                      is_signed ? -128.0 : 0.0, is_signed ? 127.0 : 255.0);
        expected = rounded(expected, result);
        const std::vector<TestOutput> outputs = {{expected.shape, result}};
        for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
          SCOPED_TRACE(describe(candidate));
          kinds.insert(candidate.tactic_name);
          if (!pairs.takes({candidate.tactic_name, name(type), name(result), str(of.queries)}))
            continue;
          const Values y = run_kernel(op, candidate, inputs, outputs)[0];
          // What the type rounds otherwise may fall on the other side of a half.
          const double error = type == DataType::kBF16 ? 0.04 : 0.01;
          int64_t apart = 0;
          for (int64_t i = 0; i < y.size(); ++i) {
            const double step = is_fp8 ? std::max(std::abs(expected[i]) / 8, error / scale) : 1;
            EXPECT_LE(std::abs(y[i] - expected[i]), step) << "at " << i;
            if (y[i] != expected[i]) ++apart;
          }
          EXPECT_LE(apart, y.size() / (type == DataType::kBF16 ? 5 : 20));
          if (::testing::Test::HasFailure()) return;
        }
      }
  EXPECT_GE(kinds.size(), at_least(6u));
}

}  // namespace
}  // namespace opwright::testing
