// Types and shapes are inferred when they are asked for, so that parameters can follow the layer.

#include <gtest/gtest.h>

#include "network/network.h"
#include "network/test_operators.h"

namespace opwright {
namespace {

const Grow::Params kLate{.late = true};

TEST(LazyInference, AnErrorLastsUntilItIsMended) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{-1, 4});
  auto* first = network.add<Grow>({.axis = 7, .late = true}, {x}, "first");
  Tensor* y = network.add<Grow>(kLate, {first->output(0)}, "second")->output(0);
  network.mark_output(*y);
  const std::string message = "Grow 'first': there is no axis 7";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(error_of([&] { y->dims(); }), message);
    EXPECT_EQ(error_of([&] { y->dtype(); }), message);
    EXPECT_EQ(error_of([&] { y->aliased_input(); }), message);
    EXPECT_EQ(error_of([&] { network.infer(); }), message);
  }
  EXPECT_EQ(network.num_layers(), 2);
  EXPECT_EQ(y->name(), "second_output_0");
  first->set_name("renamed");
  EXPECT_EQ(error_of([&] { y->dims(); }), "Grow 'renamed': there is no axis 7");
  edit(*first, [](Grow::Params& p) { p.axis = 1; });
  EXPECT_EQ(y->shape(), (Shape{-1, 5}));
  EXPECT_EQ(first->output(0)->shape(), (Shape{-1, 5}));
}

TEST(LazyInference, EachLayerIsInferredOnce) {
  constexpr int kLayers = 5000;
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{-1});
  std::vector<TypedLayer<Grow>*> layers;
  Tensor* last = x;
  Grow::inferred = 0;
  for (int i = 0; i < kLayers; ++i) {
    layers.push_back(network.add<Grow>({.axis = 3, .limit = 1 << 20, .late = true}, {last}));
    edit(*layers.back(), [](Grow::Params& p) { p.axis = 0; });
    edit(*layers.back(), [](Grow::Params& p) { p.amount = 2; });
    last = layers.back()->output(0);
  }
  EXPECT_EQ(Grow::inferred, 0);
  EXPECT_EQ(last->rank(), 1);
  EXPECT_EQ(Grow::inferred, kLayers);
  network.infer();
  EXPECT_EQ(Grow::inferred, kLayers);
  // Changes of what is to be inferred anyway cost nothing, from whichever end.
  for (auto* layer : layers) edit(*layer, [](Grow::Params& p) { p.amount = 3; });
  EXPECT_EQ(Grow::inferred, kLayers);
  x->set_shape(Shape{1});
  EXPECT_EQ(last->shape(), (Shape{1 + 3 * kLayers}));
  EXPECT_EQ(Grow::inferred, 2 * kLayers);
  // A change reaches only layers downstream.
  edit(*layers[kLayers - 2], [](Grow::Params& p) { p.amount = 4; });
  EXPECT_EQ(last->shape(), (Shape{2 + 3 * kLayers}));
  EXPECT_EQ(Grow::inferred, 2 * kLayers + 2);
}

TEST(LazyInference, AskedAfterEachLayerItIsInferredOnce) {
  constexpr int kLayers = 1000;
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{1});
  Grow::inferred = 0;
  for (int i = 0; i < kLayers; ++i) {
    auto* layer = network.add<Grow>({.axis = 3, .limit = 1 << 20, .late = true}, {x});
    edit(*layer, [](Grow::Params& p) { p.axis = 0; });
    x = layer->output(0);
    EXPECT_EQ(x->shape(), (Shape{i + 2}));
  }
  EXPECT_EQ(Grow::inferred, kLayers);
}

TEST(LazyInference, InputsAreFollowed) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{4});
  Tensor* z = network.add_input("z", DataType::kFLOAT, Shape{10});
  auto* first = network.add<Grow>(kLate, {x}, "first");
  auto* second = network.add<Grow>(kLate, {first->output(0)}, "second");
  auto* behind = network.add<Grow>(kLate, {z}, "behind");
  EXPECT_EQ(second->output(0)->shape(), (Shape{6}));
  first->set_input(0, behind->output(0));
  EXPECT_EQ(second->output(0)->shape(), (Shape{13}));
  x->set_shape(Shape{5});  // nobody uses it any more
  EXPECT_EQ(second->output(0)->shape(), (Shape{13}));
  z->set_shape(Shape{20});
  EXPECT_EQ(second->output(0)->shape(), (Shape{23}));
  first->set_input(0, nullptr);
  EXPECT_EQ(error_of([&] { second->output(0)->shape(); }),
            "Grow 'first': input 0 is absent, but is needed");
  EXPECT_THROW(behind->set_input(0, behind->output(0)), Error);
  first->set_input(0, x);
  first->set_input(1, x);
  first->set_input(1, z);
  z->set_shape(Shape{21});
  x->set_dtype(DataType::kHALF);
  EXPECT_EQ(second->output(0)->dtype(), DataType::kHALF);
  EXPECT_EQ(second->output(0)->shape(), (Shape{7}));
}

TEST(LazyInference, PluginsAreInferredAtOnce) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{4});
  auto* first = network.add<Grow>({.axis = 7, .late = true}, {x}, "first");
  // Not what depends on what cannot be inferred: nothing is added.
  EXPECT_EQ(error_of([&] { network.add<Grow>({}, {first->output(0)}, "plugin"); }),
            "Grow 'first': there is no axis 7");
  EXPECT_EQ(network.num_layers(), 1);
  EXPECT_EQ(network.find_tensor("plugin_output_0"), nullptr);
  edit(*first, [](Grow::Params& p) { p.axis = 0; });
  auto* plugin = network.add<Grow>({.limit = 10}, {first->output(0)}, "plugin");
  EXPECT_EQ(plugin->output(0)->shape(), (Shape{6}));
  EXPECT_EQ(error_of([&] { edit(*plugin, [](Grow::Params& p) { p.amount = 6; }); }),
            "Grow 'plugin': extent 11 is above 10");
  EXPECT_EQ(plugin->output(0)->shape(), (Shape{6}));
  // What changes upstream it hears of later.
  edit(*first, [](Grow::Params& p) { p.amount = 9; });
  EXPECT_EQ(error_of([&] { plugin->output(0)->shape(); }), "Grow 'plugin': extent 14 is above 10");
  edit(*first, [](Grow::Params& p) { p.amount = 2; });
  EXPECT_EQ(plugin->output(0)->shape(), (Shape{7}));
}

TEST(LazyInference, OutputsFollowTheOperator) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{4});
  auto* layer = network.add<Grow>({.outputs = 2, .late = true}, {x}, "l");
  EXPECT_EQ(layer->num_outputs(), 2);
  auto* user = network.add<Grow>(kLate, {layer->output(1)});
  EXPECT_EQ(error_of([&] { edit(*layer, [](Grow::Params& p) { p.outputs = 1; }); }),
            "Grow 'l': would have 1 outputs, but its output 'l_output_1' is in use");
  EXPECT_EQ(layer->num_outputs(), 2);
  user->set_input(0, layer->output(0));
  edit(*layer, [](Grow::Params& p) { p.outputs = 1; });
  EXPECT_EQ(layer->num_outputs(), 1);
  EXPECT_EQ(user->output(0)->shape(), (Shape{6}));
}

TEST(LazyInference, FailedSizeTensorsLeaveNothing) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{-1});
  bool fails = true;
  const auto op = std::make_shared<Scripted>([&](InferContext& context) {
    const Expr most = numel(context.inputs[0]->dims);
    const Expr count = context.declare_size_tensor(1, most, most);
    require(!fails, "not now");
    std::vector<OutputInfo> outputs(2);
    outputs[0].dims = {count};
    outputs[1].dtype = DataType::kINT64;
    return outputs;
  });
  const int symbols = network.symbols().size();
  EXPECT_EQ(error_of([&] { network.add_layer(op, std::vector{x}, "sizes"); }),
            "Scripted 'sizes': not now");
  EXPECT_EQ(network.symbols().size(), symbols);
  fails = false;
  Layer* layer = network.add_layer(op, std::vector{x}, "sizes");
  EXPECT_EQ(network.symbols().size(), symbols + 1);
  const SymShape dims = layer->output(0)->dims();
  fails = true;
  x->set_dimension_name(0, "n");
  x->set_shape(Shape{5});
  EXPECT_THROW(layer->output(0)->dims(), Error);
  fails = false;
  x->set_shape(Shape{-1});
  EXPECT_EQ(str(layer->output(0)->dims(), network.symbols().names()), "(sizes_output_1)");
}

}  // namespace
}  // namespace opwright
