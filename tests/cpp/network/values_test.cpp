// Shape arithmetic: constants, expressions, shape inputs and size tensors.

#include <gtest/gtest.h>

#include "network/constant.h"
#include "network/test_operators.h"

namespace opwright {
namespace {

template <class T>
Blob blob(std::vector<T> elements) {
  return Blob::copy(elements.data(), elements.size() * sizeof(T));
}

TEST(Constant, SmallIntegersAreKnownValues) {
  Network network;
  const Tensor* a =
      network.add_constant(DataType::kINT32, Shape{3}, blob<int32_t>({2, -5, 1 << 30}), "a");
  ASSERT_TRUE(a->info().values);
  EXPECT_EQ(*a->info().values, (std::vector<Expr>{2, -5, 1 << 30}));
  EXPECT_EQ(a->info().constant.size(), 12u);
  const Tensor* flag = network.add_constant(DataType::kBOOL, Shape{}, blob<uint8_t>({1}));
  EXPECT_EQ(*flag->info().values, (std::vector<Expr>{1}));
  const Tensor* bytes = network.add_constant(DataType::kINT8, Shape{2}, blob<int8_t>({-1, 7}));
  EXPECT_EQ(*bytes->info().values, (std::vector<Expr>{-1, 7}));
  const Tensor* wide = network.add_constant(DataType::kINT64, Shape{1}, blob<int64_t>({1ll << 40}));
  EXPECT_EQ(*wide->info().values, (std::vector<Expr>{1ll << 40}));

  EXPECT_FALSE(network.add_constant(DataType::kFLOAT, Shape{1}, blob<float>({1}))->info().values);
  const std::vector<int32_t> ones(65, 1);
  EXPECT_FALSE(network.add_constant(DataType::kINT32, Shape{65}, blob(ones))->info().values);
  const Tensor* row = network.add_constant(DataType::kINT32, Shape{1, 2}, blob<int32_t>({1, 2}));
  EXPECT_EQ(*row->info().values, (std::vector<Expr>{1, 2}));
  EXPECT_FALSE(
      network.add_constant(DataType::kINT32, Shape{1, 1, 2}, blob<int32_t>({1, 2}))->info().values);
  const Tensor* empty = network.add_constant(DataType::kINT64, Shape{0}, Blob());
  EXPECT_TRUE(empty->info().values->empty());
  EXPECT_FALSE(empty->info().constant.empty());

  EXPECT_EQ(error_of([&] {
              network.add_constant(DataType::kFLOAT, Shape{2, 2}, blob<float>({1}), "w");
            }),
            "Constant 'w': shape 2x2 of type FP32 takes 16 bytes, but there are 4");
}

TEST(Values, AreExpressionsOrConstants) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{-1, 4});
  const Expr n = x->dims()[0];
  Tensor* shape = network.add_values({n * 2, 3});
  EXPECT_EQ(shape->dtype(), DataType::kINT64);
  EXPECT_EQ(shape->shape(), (Shape{2}));
  EXPECT_TRUE(shape->info().constant.empty());
  Tensor* y = network.add_layer(std::make_shared<ShapedLike>(), std::vector{x, shape})->output(0);
  EXPECT_EQ(y->dims(), (SymShape{n * 2, 3}));

  const Tensor* scalar = network.add_values({7}, DataType::kINT32, true);
  EXPECT_EQ(scalar->rank(), 0);
  ASSERT_EQ(scalar->info().constant.size(), 4u);
  EXPECT_EQ(*scalar->info().constant.as<int32_t>(), 7);
  EXPECT_THROW(network.add_values({1, 2}, DataType::kINT64, true), Error);
  EXPECT_THROW(network.add_values(std::vector<Expr>(65)), Error);
  EXPECT_THROW(network.add_values({1}, DataType::kHALF), Error);
  EXPECT_THROW(network.add_values({int64_t{1} << 40}, DataType::kINT32), Error);
}

TEST(ShapeInput, ElementsAreSymbols) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{-1});
  Tensor* s = network.add_input("s", DataType::kINT64, Shape{2});
  const auto add = [&] {
    return network.add_layer(std::make_shared<ShapedLike>(), std::vector{x, s});
  };
  EXPECT_THROW(add(), Error);
  network.make_shape_input(*s);
  EXPECT_TRUE(s->is_shape_input());
  const Layer* layer = add();
  EXPECT_EQ(str(layer->output(0)->dims(), network.symbols().names()), "(s[0], s[1])");
  const Symbol& symbol = network.symbols()[(*s->info().values)[1].symbol_id()];
  EXPECT_EQ(symbol.kind, Symbol::Kind::kInputValue);
  EXPECT_EQ(symbol.tensor, "s");
  EXPECT_EQ(symbol.index, 1);

  s->set_name("t");
  EXPECT_EQ(str(layer->output(0)->dims(), network.symbols().names()), "(t[0], t[1])");
  EXPECT_EQ(network.symbols()[(*s->info().values)[1].symbol_id()].tensor, "t");

  s->set_shape(Shape{1});
  EXPECT_EQ(layer->output(0)->rank(), 1);
  for (int id = 0; id < network.symbols().size(); ++id)
    EXPECT_FALSE(network.symbols()[id].tensor == "t" && network.symbols()[id].index > 0);
  EXPECT_THROW(s->set_shape(Shape{-1}), Error);
  EXPECT_THROW(s->set_shape(Shape{1, 1}), Error);
  EXPECT_THROW(s->set_dtype(DataType::kFLOAT), Error);
  EXPECT_EQ(s->dtype(), DataType::kINT64);
  EXPECT_THROW(network.make_shape_input(*x), Error);
  EXPECT_FALSE(x->is_shape_input());
}

TEST(ShapeInput, DeclaredLateReachesLayers) {
  Network network;
  Tensor* s = network.add_input("s", DataType::kINT32, Shape{});
  int known = 0;
  const auto op = std::make_shared<Scripted>([&](InferContext& context) {
    known += context.inputs[0]->values != nullptr;
    return std::vector<OutputInfo>(1);
  });
  const Layer* layer = network.add_layer(op, std::vector{s});
  EXPECT_EQ(known, 0);
  network.make_shape_input(*s);
  layer->output(0)->info();
  EXPECT_EQ(known, 1);
}

/// Output 0 has as many elements as output 1 says.
std::vector<OutputInfo> non_zero(InferContext& context) {
  const Expr most = numel(context.inputs[0]->dims);
  const Expr count = context.declare_size_tensor(1, floor_div(most, 2), most);
  std::vector<OutputInfo> outputs(2);
  outputs[0].dims = {count};
  outputs[1].dtype = DataType::kINT64;
  return outputs;
}

TEST(SizeTensor, IsASymbolWithBounds) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{-1});
  Layer* layer = network.add_layer(std::make_shared<Scripted>(non_zero), std::vector{x}, "nz");
  ASSERT_EQ(layer->output(0)->dims()[0].op(), ExprOp::kSymbol);
  const int id = layer->output(0)->dims()[0].symbol_id();
  EXPECT_EQ(network.symbols()[id].kind, Symbol::Kind::kSizeTensor);
  EXPECT_EQ(network.symbols()[id].tensor, layer->output(1)->name());
  EXPECT_EQ(network.symbols()[id].upper_bound, x->dims()[0]);
  EXPECT_EQ(network.symbols()[id].opt, floor_div(x->dims()[0], 2));
  EXPECT_EQ(layer->output(1)->info().values->front(), Expr::symbol(id));

  layer->output(1)->set_name("count");
  EXPECT_EQ(network.symbols()[id].tensor, "count");

  // Inferred again it keeps its symbol, unless its bounds come to depend on a later one.
  x->set_shape(Shape{100});
  EXPECT_EQ(layer->output(0)->dims()[0].symbol_id(), id);
  EXPECT_EQ(network.symbols()[id].upper_bound, Expr(100));
  Tensor* later = network.add_input("later", DataType::kFLOAT, Shape{-1});
  layer->set_input(0, later);
  const int moved = layer->output(0)->dims()[0].symbol_id();
  EXPECT_GT(moved, later->dims()[0].symbol_id());
  EXPECT_EQ(network.symbols()[moved].tensor, "count");
  EXPECT_EQ(network.symbols()[id].tensor, "");
}

TEST(SizeTensor, MustBeAScalarInteger) {
  Network network;
  const auto wrong = [&](const std::function<void(std::vector<OutputInfo>&)>& spoil) {
    Tensor* x = network.find_tensor("x");
    if (!x) x = network.add_input("x", DataType::kFLOAT, Shape{4});
    network.add_layer(std::make_shared<Scripted>([&](InferContext& context) {
                        auto outputs = non_zero(context);
                        spoil(outputs);
                        return outputs;
                      }),
                      std::vector{x});
  };
  const auto symbols = [&] { return network.symbols().size(); };
  EXPECT_THROW(wrong([](auto& o) { o[1].dims = {1}; }), Error);
  EXPECT_THROW(wrong([](auto& o) { o[1].dtype = DataType::kFLOAT; }), Error);
  EXPECT_THROW(wrong([](auto& o) { o.pop_back(); }), Error);
  EXPECT_EQ(symbols(), 0);
  wrong([](auto&) {});
  EXPECT_EQ(symbols(), 1);
}

}  // namespace
}  // namespace opwright
