#include "operators/matmul_nbits.h"

#include <gtest/gtest.h>

#include <iterator>
#include <tuple>

#include "base/types.h"
#include "cpu/run_kernel.h"

namespace opwright::testing {
namespace {

struct PackedCase {
  int64_t vectors, rows, columns, bits, block;
  DataType type = DataType::kHALF;
  DataType zeros = DataType::kBOOL;  ///< BOOL: there are none
  bool bias = false;
};

/// Every candidate against (code - zero point) * scale in double precision.
void check(const PackedCase& c, Selection& selection) {
  SCOPED_TRACE(::testing::Message()
               << c.vectors << " x " << c.rows << " x " << c.columns << ", " << c.bits
               << " bits, blocks of " << c.block << " " << name(c.type) << " zeros "
               << name(c.zeros) << " bias " << c.bias);
  MatMulNBitsParams p;
  p.rows = c.rows, p.columns = c.columns, p.bits = c.bits, p.block = c.block;
  const int64_t blocks = p.blocks(), mask = (int64_t{1} << c.bits) - 1;
  const auto code = [&](int64_t row, int64_t k) { return (row * 7 + k * 5 + k / 3) & mask; };
  const auto packed_zero = [&](int64_t row, int64_t block) { return (row * 3 + block) & mask; };
  const auto packed = [&](int64_t bytes, const auto& number) {
    return make_values({c.rows, bytes}, [&](int64_t at) {
      int64_t byte = 0;
      for (int64_t i = 0; i < p.codes_per_byte(); ++i)
        byte |= number(at / bytes, at % bytes * p.codes_per_byte() + i) << i * c.bits;
      return static_cast<double>(byte);
    });
  };
  std::vector<TestInput> inputs = {
      {rounded(random_values({c.vectors, c.columns}, 1), c.type), c.type},
      {packed(blocks * p.bytes_per_block(), code), DataType::kUINT8, true},
      {rounded(random_values({c.rows, blocks}, 2, 0.01, 0.05), c.type), c.type, true}};
  inputs[1].values.shape = {c.rows, blocks, p.bytes_per_block()};
  if (c.zeros == DataType::kUINT8)
    inputs.push_back({packed(p.zero_bytes(), packed_zero), DataType::kUINT8, true});
  else if (c.zeros == c.type)
    inputs.push_back({rounded(random_values({c.rows, blocks}, 3, 0, 3), c.type), c.type, true});
  else if (c.bias)
    inputs.push_back(absent());
  if (c.bias) inputs.push_back({rounded(random_values({c.rows}, 4), c.type), c.type, true});
  // Tensor cores multiply weights that were rounded to the type.
  const auto product = [&](bool rounds) {
    Values weights = make_values({c.rows, c.columns}, [&](int64_t at) {
      const int64_t row = at / c.columns, k = at % c.columns, block = row * blocks + k / c.block;
      const double zero = c.zeros == DataType::kUINT8
                              ? static_cast<double>(packed_zero(row, k / c.block))
                          : c.zeros == c.type ? inputs[3].values[block]
                                              : static_cast<double>((mask + 1) / 2);
      return (static_cast<double>(code(row, k)) - zero) * inputs[2].values[block];
    });
    if (rounds) weights = rounded(weights, c.type);
    return make_values({c.vectors, c.rows}, [&](int64_t at) {
      const int64_t vector = at / c.rows, row = at % c.rows;
      double sum = c.bias ? inputs[4].values[row] : 0;
      for (int64_t k = 0; k < c.columns; ++k)
        sum += inputs[0].values[vector * c.columns + k] * weights[row * c.columns + k];
      return sum;
    });
  };
  const std::vector<TestOutput> outputs = {{{c.vectors, c.rows}, c.type}};
  const MatMulNBits op(p);
  const std::vector<Candidate> candidates = candidates_of(op, inputs, outputs);
  ASSERT_TRUE(runs_each_once() || !candidates.empty());
  Values expected[2];
  for (const Candidate& candidate : candidates) {
    if (!selection.takes_next()) continue;
    SCOPED_TRACE(describe(candidate));
    const bool rounds = candidate.tactic_name.starts_with("tensor") ||
                        candidate.tactic_name.starts_with("warpgroup");
    Values& wanted = expected[rounds ? 1 : 0];
    if (wanted.data.empty()) wanted = product(rounds);
    expect_close(run_kernel(op, candidate, inputs, outputs)[0], wanted,
                 (c.type == DataType::kFLOAT ? 4 : 1) * tolerance_of(c.type));
  }
}

/// Each number of vectors meets each shape with one number of bits: a kernel has all three as
/// constants, so that each case is compiled anew.
TEST(MatMulNBits, EveryKernel) {
  constexpr int64_t kBits[] = {2, 4, 8}, kVectors[] = {1, 9, 40, 130};
  constexpr std::tuple<int64_t, int64_t, int64_t> kShapes[] = {
      {70, 200, 32}, {40, 72, 16}, {129, 384, 128}};
  Selection selection(5);
  for (const DataType type : {DataType::kHALF, DataType::kBF16, DataType::kFLOAT})
    for (size_t v = 0; v < std::size(kVectors); ++v)
      for (size_t s = 0; s < std::size(kShapes); ++s) {
        const auto& [rows, columns, block] = kShapes[s];
        PackedCase c{kVectors[v], rows, columns, kBits[(v + s) % std::size(kBits)], block, type};
        c.zeros = rows == 40 ? type : rows == 70 ? DataType::kUINT8 : DataType::kBOOL;
        c.bias = rows != 129;
        check(c, selection);
      }
}

}  // namespace
}  // namespace opwright::testing
