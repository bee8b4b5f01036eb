// Parameters as a damaged or hostile plan may hold them: inference answers with outputs or an
// Error, nothing else. What goes wrong silently is found by the sanitizer builds.

#include <limits>
#include <random>

#include "operators/activation.h"
#include "operators/assertion.h"
#include "operators/attention.h"
#include "operators/bit_cast.h"
#include "operators/boundary.h"
#include "operators/col2im.h"
#include "operators/context.h"
#include "operators/convolution.h"
#include "operators/einsum.h"
#include "operators/elementwise.h"
#include "operators/indexing.h"
#include "operators/kv_cache.h"
#include "operators/matmul_nbits.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pointwise.h"
#include "operators/pooling.h"
#include "operators/quantization.h"
#include "operators/recurrence.h"
#include "operators/reduce.h"
#include "operators/rotary_embedding.h"
#include "operators/sampling.h"
#include "operators/scatter.h"
#include "operators/selection.h"
#include "operators/source.h"
#include "operators/window_reduction.h"

namespace opwright::testing {
namespace {

class Random : public StoredParameterVisitor<Random> {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  int below(int count) { return static_cast<int>(engine_() % static_cast<uint32_t>(count)); }
  int64_t integer() {
    constexpr int64_t kOdd[] = {std::numeric_limits<int64_t>::min(),
                                std::numeric_limits<int64_t>::max(),
                                std::numeric_limits<int32_t>::max(),
                                int64_t{1} << 32,
                                -7,
                                -1,
                                64};
    return below(6) ? below(6) : kOdd[below(std::size(kOdd))];
  }
  double number() {
    constexpr double kOdd[] = {-1,
                               0,
                               0.5,
                               1e300,
                               1e-300,
                               std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()};
    return below(3) ? below(4) : kOdd[below(std::size(kOdd))];
  }
  /// Visits the members of parameters.
  template <class T, class... Hints>
  void operator()(const char*, T& member, Hints...) {
    if constexpr (std::is_same_v<T, bool>) {
      member = below(2);
    } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
      member = static_cast<T>(integer());
    } else if constexpr (std::is_floating_point_v<T>) {
      member = static_cast<T>(number());
    } else if constexpr (std::is_same_v<T, Ints>) {
      member.resize(below(5));
      for (int64_t& value : member) value = integer();
    } else if constexpr (std::is_same_v<T, Floats>) {
      member.resize(below(5));
      for (double& value : member) value = number();
    } else if constexpr (std::is_same_v<T, std::string>) {
      constexpr const char* kTerms[] = {"", "ab", "...", "->", ",", "ii", "b...", "%", "ac"};
      for (int i = below(7); i > 0; --i) member += kTerms[below(std::size(kTerms))];
    }
  }
  std::optional<TensorInfo> input() {
    if (!below(12)) return std::nullopt;
    const DataType dtype =
        below(2) ? DataType::kFLOAT : static_cast<DataType>(below(EnumMax<DataType>()));
    if (dtype == DataType::kINT64 && below(2)) {
      std::vector<Expr> values(below(5));
      for (Expr& value : values) value = below(3) ? Expr(integer()) : s(below(3));
      return vector_of(std::move(values));
    }
    SymShape dims(below(8) ? below(6) : below(Dims::MAX_DIMS + 1));
    for (Expr& extent : dims)
      extent = !below(20) ? Expr(int64_t{1} << 62) : below(3) ? Expr(below(7)) : s(below(3));
    return tensor(std::move(dims), dtype);
  }

 private:
  std::mt19937 engine_;
};

template <class Op>
class Hostile : public ::testing::Test {};
using Operators = ::testing::Types<
    Activation, Attention, BitCast, Col2Im, ConditionalInputBoundary, ConditionalOutputBoundary,
    Einsum, IteratorBoundary, KvCacheUpdate, KvCacheWrite, LoopOutputBoundary, Moe, RaggedSoftmax,
    RecurrenceBoundary, RotaryEmbedding, Squeeze, Unsqueeze, Cast, Concatenation, Convolution,
    Cumulative, DataExtent, Deconvolution, DeformableColumns, Dequantize, Determinant, ElementWise,
    Fill, Gather, GridSample, Identity, IndexedMaxPooling, LpPooling, Lrn, MatMulNBits,
    MatrixMultiply, MaxUnpool, Nms, NonZero, Normalization, OneHot, ParametricRelu, Pointwise,
    Pooling, Quantize, Recurrence, Reduce, Reformat, Reshape, Resize, ReverseSequence, RoiAlign,
    RoiPool, Scale, Scatter, Select, ShapeOf, Shuffle, Slice, Softmax, TopK, Transpose, Unary,
    Unique>;
TYPED_TEST_SUITE(Hostile, Operators);

TYPED_TEST(Hostile, GivesOutputsOrAnError) {
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    Random random(seed);
    typename TypeParam::Params params;
    if (random.below(4)) params.visit(random);
    Tensors inputs(random.below(5));
    for (auto& input : inputs) input = random.input();
    try {
      const auto outputs = infer<TypeParam>(params, inputs);
      EXPECT_FALSE(outputs.empty());
      for (const OutputInfo& output : outputs) {
        EXPECT_LE(output.dims.size(), static_cast<size_t>(Dims::MAX_DIMS));
        for (const Expr& extent : output.dims)
          EXPECT_TRUE(!extent.is_constant() || extent.constant() >= 0) << extent.str();
        if (output.values && output.dims.size() == 1) {
          EXPECT_EQ(output.dims[0], Expr(static_cast<int64_t>(output.values->size())));
        }
      }
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()), "");
    }
  }
}

TEST(HostileLimits, GiveNothingOrAnError) {
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    Random random(seed);
    Tensors inputs(random.below(3));
    for (auto& input : inputs) input = random.input();
    const auto run = [&]<class Op>(typename Op::Params params) {
      params.visit(random);
      try {
        EXPECT_TRUE(infer<Op>(params, inputs).empty());
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()), "");
      }
    };
    run.template operator()<Assertion>({});
    run.template operator()<ConditionBoundary>({});
    run.template operator()<TripLimitBoundary>({});
  }
}

TEST(HostilePadding, GivesPaddingOrAnError) {
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    Random random(seed);
    ConvolutionParams convolution;
    PoolingParams pooling;
    convolution.visit(random), pooling.visit(random);
    const auto shape = [&] {
      Shape result;
      for (int i = random.below(6); i > 0; --i) result.push_back(random.below(9));
      return result;
    };
    const Shape x = shape(), kernel = shape();
    for (int function = 0; function < 3; ++function) {
      try {
        const ResolvedPadding padding = function == 0 ? resolve_padding(convolution, x, kernel)
                                        : function == 1
                                            ? resolve_transposed_padding(convolution, x, kernel)
                                            : resolve_padding(pooling, x);
        EXPECT_EQ(padding.pre.size(), static_cast<size_t>(x.rank() - 2));
        EXPECT_EQ(padding.post.size(), padding.pre.size());
      } catch (const Error&) {
        continue;
      }
    }
  }
}

}  // namespace
}  // namespace opwright::testing
