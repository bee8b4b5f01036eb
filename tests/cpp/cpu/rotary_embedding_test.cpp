#include <gtest/gtest.h>

#include "cpu/run_kernel.h"
#include "operators/rotary_embedding.h"

namespace opwright::testing {
namespace {

struct RotationCase {
  int64_t batch, heads, length, size;
  RotaryEmbeddingParams params;
  DataType type = DataType::kFLOAT;
  int64_t angle_batch = 1;  ///< of the angles or the positions
  int64_t table = 0;        ///< rows of the tables; 0: no positions
  DataType positions = DataType::kINT64;
};

void check_rotation(const RotationCase& c, Selection& selection) {
  SCOPED_TRACE(::testing::Message()
               << c.batch << "x" << c.heads << "x" << c.length << "x" << c.size << " turned "
               << c.params.rotary_embedding_dim << " interleaved " << c.params.interleaved
               << " sequence first " << c.params.sequence_first << " heads "
               << c.params.turned_heads << " table " << c.table << " " << name(c.type));
  const bool apart = c.params.sequence_first;
  const Shape shape =
      apart ? Shape{c.batch, c.length, c.heads, c.size} : Shape{c.batch, c.heads, c.length, c.size};
  const int64_t turned = c.params.rotary_embedding_dim > 0 ? c.params.rotary_embedding_dim : c.size;
  const int64_t half = turned / 2;
  const Shape angles = c.table > 0 ? Shape{c.table, half} : Shape{c.angle_batch, c.length, half};
  const Values x = rounded(random_values(shape, 1), c.type);
  const Values cosines = rounded(random_values(angles, 2), c.type);
  const Values sines = rounded(random_values(angles, 3), c.type);
  // From behind the table's end to before its beginning, from which negative ones count.
  const Values places = make_values({c.angle_batch, c.length}, [&](int64_t i) {
    return static_cast<double>(i * 7 % (2 * c.table + 3) - c.table - 1);
  });
  Values expected = x;
  for (int64_t row = 0; row < shape.numel(0, 3); ++row) {
    const int64_t batch = row / (c.heads * c.length);
    const int64_t t = apart ? row / c.heads % c.length : row % c.length;
    const int64_t head = apart ? row % c.heads : row / c.length % c.heads;
    if (c.params.turned_heads > 0 && head >= c.params.turned_heads) continue;
    int64_t at = (c.angle_batch == 1 ? 0 : batch) * c.length + t;
    if (c.table > 0) {
      at = static_cast<int64_t>(places[at]);
      if (at < 0) at += c.table;
    }
    const bool found = c.table == 0 || (at >= 0 && at < c.table);
    for (int64_t k = 0; k < half; ++k) {
      const int64_t a = row * c.size + (c.params.interleaved ? 2 * k : k);
      const int64_t b = a + (c.params.interleaved ? 1 : half);
      const double cosine = found ? cosines[at * half + k] : 0;
      const double sine = found ? sines[at * half + k] : 0;
      expected[a] = cosine * x[a] - sine * x[b];
      expected[b] = sine * x[a] + cosine * x[b];
    }
  }
  std::vector<TestInput> inputs = {{x, c.type}, {cosines, c.type}, {sines, c.type}};
  if (c.table > 0) inputs.push_back({places, c.positions});
  const std::vector<TestOutput> outputs = {{shape, c.type}};
  const RotaryEmbedding op(c.params);
  for (const Candidate& candidate : candidates_of(op, inputs, outputs)) {
    if (!selection.takes_next()) continue;
    const std::vector<Values> results = run_kernel(op, candidate, inputs, outputs);
    expect_close(results[0], expected, tolerance_of(c.type));
    for (int shift : {0, 1}) {
      TestKernel kernel(op, candidate, inputs, outputs);
      expect_close(kernel.run(inputs, outputs, -1, shift)[0], expected, tolerance_of(c.type));
    }
  }
}

TEST(RotaryEmbedding, FormsTypesAndTables) {
  Selection selection(7);
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16})
    for (const bool interleaved : {false, true})
      for (const bool sequence_first : {false, true})
        for (const int64_t turned : {0, 4, 38})
          for (const int64_t table : {0, 9})
            for (const int64_t angle_batch : {1, 2}) {
              const DataType positions = turned == 4 ? DataType::kINT32 : DataType::kINT64;
              check_rotation({2,
                              3,
                              5,
                              46,
                              {interleaved, turned, sequence_first},
                              type,
                              angle_batch,
                              table,
                              positions},
                             selection);
            }
}

/// Sizes whose pairs are turned several at a time, and heads that are only copied.
TEST(RotaryEmbedding, HeadsOfWholeVectors) {
  Selection selection(5);
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF, DataType::kBF16})
    for (const bool interleaved : {false, true})
      for (const bool sequence_first : {false, true})
        for (const int64_t turned : {0, 16, 24, 32})
          for (const int64_t turned_heads : {0, 2})
            check_rotation(
                {2, 5, 3, 64, {interleaved, turned, sequence_first, turned_heads}, type, 2},
                selection);
}

TEST(RotaryEmbedding, OddHeads) {
  Selection selection(1);
  for (const bool interleaved : {false, true})
    check_rotation({1, 3, 2, 7, {interleaved, 4, false, 2}, DataType::kHALF}, selection);
}

TEST(RotaryEmbedding, HeadsOfSeveralPieces) {
  Selection selection(2);
  for (const DataType type : {DataType::kFLOAT, DataType::kHALF})
    for (const bool interleaved : {false, true})
      check_rotation({1, 2, 3, 1130, {interleaved, 1126, false}, type}, selection);
}

TEST(RotaryEmbedding, ManyRows) {
  Selection selection(1);
  check_rotation({2, 12, 67, 64, {false, 0, false}, DataType::kFLOAT, 2, 100}, selection);
}

TEST(RotaryEmbedding, NothingToTurn) {
  Selection selection(1);
  check_rotation({0, 2, 3, 4, {}}, selection);
  check_rotation({1, 2, 0, 4, {}}, selection);
  check_rotation({1, 2, 3, 0, {}}, selection);
}

}  // namespace
}  // namespace opwright::testing
