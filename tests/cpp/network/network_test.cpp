#include "network/network.h"

#include <gtest/gtest.h>

#include "network/constant.h"
#include "network/test_operators.h"

namespace opwright {
namespace {

std::string text(const Network& network, const Tensor* tensor) {
  return str(tensor->dims(), network.symbols().names());
}

TEST(Network, InputsHaveSymbolsForDynamicExtents) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{-1, 3, -1});
  EXPECT_EQ(text(network, x), "(x.0, 3, x.2)");
  EXPECT_EQ(x->shape(), (Shape{-1, 3, -1}));
  EXPECT_EQ(network.symbols()[1].tensor, "x");
  EXPECT_EQ(network.symbols()[1].index, 2);
  EXPECT_TRUE(x->is_network_input());
  EXPECT_EQ(network.find_tensor("x"), x);
  EXPECT_EQ(network.find_tensor("y"), nullptr);
  EXPECT_THROW(network.add_input("x", DataType::kFLOAT, Shape{1}), Error);
  EXPECT_THROW(network.add_input("", DataType::kFLOAT, Shape{1}), Error);
  EXPECT_THROW(network.add_input("z", DataType::kFLOAT, Shape{-2}), Error);
  EXPECT_EQ(network.inputs().size(), 1u);
}

TEST(Network, DimensionsOfOneNameShareASymbol) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{-1, -1});
  Tensor* y = network.add_input("y", DataType::kFLOAT, Shape{-1, 4});
  Tensor* sum = network.add<Grow>({.amount = 2, .axis = 0}, {y})->output(0);
  EXPECT_FALSE(x->dims()[0] == y->dims()[0]);
  x->set_dimension_name(0, "batch");
  y->set_dimension_name(0, "batch");
  EXPECT_EQ(x->dims()[0], y->dims()[0]);
  EXPECT_EQ(text(network, sum), "(batch + 2, 4)");
  EXPECT_EQ(x->dimension_name(0), "batch");
  EXPECT_EQ(x->dimension_name(1), "");
  // Apart again; each symbol has a home of its own.
  x->set_dimension_name(0, "n");
  EXPECT_EQ(text(network, x), "(n, x.1)");
  EXPECT_EQ(text(network, sum), "(batch + 2, 4)");
  EXPECT_EQ(network.symbols()[y->dims()[0].symbol_id()].tensor, "y");
  EXPECT_EQ(network.symbols()[x->dims()[0].symbol_id()].tensor, "x");
  EXPECT_THROW(x->set_dimension_name(2, "z"), Error);
  EXPECT_THROW(sum->set_dimension_name(0, "z"), Error);
}

TEST(Network, TheLastLayersCanBeTakenOut) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{-1, 8});
  Tensor* kept = network.add<Grow>({.amount = 1, .axis = 1}, {x}, "kept")->output(0);
  Tensor* gone = network.add<Grow>({.amount = 2, .axis = 1}, {kept}, "gone")->output(0);
  network.add<Grow>({.amount = 4, .axis = 1}, {gone}, "behind");
  gone->set_name("name");
  network.remove_layers_from(1);
  EXPECT_EQ(network.num_layers(), 1);
  EXPECT_TRUE(network.fits());
  EXPECT_EQ(kept->num_users(), 0);
  EXPECT_EQ(network.find_tensor("name"), nullptr);
  EXPECT_EQ(gone->producer(), nullptr);
  EXPECT_THROW(network.mark_output(*gone), Error);
  // Their names are free again.
  Tensor* again = network.add<Grow>({.amount = 3, .axis = 1}, {kept}, "gone")->output(0);
  again->set_name("name");
  EXPECT_EQ(again->shape(), (Shape{-1, 12}));
  network.mark_output(*again);
  EXPECT_THROW(network.remove_layers_from(1), Error);
  EXPECT_EQ(network.num_layers(), 2);
}

TEST(Network, ChangedInputsAreInferredAgainDownstream) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{-1, 8});
  auto* first = network.add<Grow>({.amount = 1, .axis = 1}, {x});
  auto* second = network.add<Grow>({.amount = 2, .axis = 1}, {first->output(0)});
  EXPECT_EQ(second->output(0)->shape(), (Shape{-1, 11}));
  x->set_shape(Shape{5, 20});
  EXPECT_EQ(second->output(0)->shape(), (Shape{5, 23}));
  x->set_dtype(DataType::kHALF);
  EXPECT_EQ(second->output(0)->dtype(), DataType::kHALF);
  x->set_shape(Shape{-1, 20, 2});
  EXPECT_EQ(text(network, second->output(0)), "(x.0, 23, 2)");
  EXPECT_THROW(second->output(0)->set_shape(Shape{1}), Error);
  EXPECT_THROW(second->output(0)->set_dtype(DataType::kFLOAT), Error);
  EXPECT_THROW(x->set_shape(Shape{-3}), Error);
}

TEST(Network, EditedLayersAreInferredAgain) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{4});
  auto* first = network.add<Grow>({}, {x});
  auto* other = network.add<Grow>({}, {x});
  auto* second = network.add<Grow>({}, {first->output(0)});
  Grow::inferred = 0;
  edit(*first, [](Grow::Params& p) { p.amount = 10; });
  EXPECT_EQ(second->output(0)->shape(), (Shape{15}));
  EXPECT_EQ(Grow::inferred, 2);  // not `other`
  EXPECT_EQ(other->output(0)->shape(), (Shape{5}));
}

TEST(Network, FailedChangesLeaveEverythingAsItWas) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{-1, 4});
  auto* first = network.add<Grow>({.axis = 1}, {x}, "first");
  auto* second = network.add<Grow>({.axis = 1, .limit = 10}, {first->output(0)}, "second");
  const SymShape dims = second->output(0)->dims();
  const int symbols = network.symbols().size();
  const OperatorPtr op = first->op();

  EXPECT_EQ(error_of([&] { edit(*first, [](Grow::Params& p) { p.axis = 2; }); }),
            "Grow 'first': there is no axis 2");
  EXPECT_EQ(first->op(), op);
  EXPECT_EQ(first->output(0)->shape(), (Shape{-1, 5}));

  EXPECT_THROW(x->set_shape(Shape{-2, 4}), Error);
  EXPECT_EQ(x->shape(), (Shape{-1, 4}));
  EXPECT_EQ(second->output(0)->dims(), dims);
  EXPECT_EQ(network.symbols().size(), symbols);
  EXPECT_EQ(network.symbols()[0].name, "x.0");

  EXPECT_THROW(first->set_input(0, nullptr), Error);
  EXPECT_EQ(first->input(0), x);
  EXPECT_THROW(first->set_op(nullptr), Error);

  const int layers = network.num_layers();
  EXPECT_THROW(network.add<Grow>({.axis = 7}, {x}, "third"), Error);
  EXPECT_EQ(network.num_layers(), layers);
  EXPECT_EQ(network.find_tensor("third_output_0"), nullptr);
}

TEST(Network, InputsOfLayersCanBeReplaced) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{4});
  auto* first = network.add<Grow>({}, {x}, "first");
  auto* second = network.add<Grow>({}, {first->output(0)}, "second");
  auto* inserted = network.add<Grow>({.amount = 100}, {x}, "inserted");
  first->set_input(0, inserted->output(0));
  EXPECT_EQ(second->output(0)->shape(), (Shape{106}));
  EXPECT_EQ(network.topological_order(), (std::vector<Layer*>{inserted, first, second}));
  EXPECT_EQ(network.layer(0), first);
  // Changes reach layers that were added earlier.
  x->set_shape(Shape{5});
  EXPECT_EQ(second->output(0)->shape(), (Shape{107}));
  EXPECT_EQ(error_of([&] { inserted->set_input(0, second->output(0)); }),
            "layer 'inserted': its input 0 cannot be 'second_output_0', which depends on the layer "
            "itself");
  EXPECT_THROW(first->set_input(0, first->output(0)), Error);
  EXPECT_THROW(first->set_input(-1, x), Error);
  // Gaps are absent inputs.
  first->set_input(1, x);
  EXPECT_EQ(first->num_inputs(), 2);
  EXPECT_THROW(first->set_input(4, x), Error);  // Grow takes two
  EXPECT_EQ(first->num_inputs(), 2);
  Network other;
  EXPECT_THROW(first->set_input(0, other.add_input("o", DataType::kFLOAT, Shape{1})), Error);
}

TEST(Network, NumberOfOutputsFollowsTheOperator) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{4});
  auto* layer = network.add<Grow>({.outputs = 3}, {x}, "l");
  Tensor* last = layer->output(2);
  EXPECT_EQ(last->name(), "l_output_2");
  EXPECT_EQ(last->producer(), layer);
  EXPECT_EQ(last->producer_output(), 2);
  network.mark_output(*last);
  EXPECT_THROW(edit(*layer, [](Grow::Params& p) { p.outputs = 1; }), Error);
  EXPECT_EQ(layer->num_outputs(), 3);
  EXPECT_EQ(layer->output(2), last);
  EXPECT_EQ(network.find_tensor("l_output_2"), last);
  network.unmark_output(*last);
  edit(*layer, [](Grow::Params& p) { p.outputs = 1; });
  EXPECT_EQ(layer->num_outputs(), 1);
  EXPECT_EQ(network.find_tensor("l_output_2"), nullptr);
  EXPECT_THROW(network.mark_output(*last), Error);
  EXPECT_THROW(network.add<Grow>({}, {last}), Error);
  EXPECT_THROW(layer->output(1), Error);
}

TEST(Network, Names) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{-1});
  network.add<Grow>({}, {x}, "Grow 2");
  auto* second = network.add<Grow>({}, {x});
  auto* third = network.add<Grow>({}, {x});
  EXPECT_EQ(second->name(), "Grow 1");
  EXPECT_EQ(third->name(), "Grow 3");
  auto* again = network.add<Grow>({}, {x}, "Grow 2");
  EXPECT_EQ(again->output(0)->name(), "Grow 2_output_0_2");

  x->set_name("z");
  EXPECT_EQ(text(network, x), "(z.0)");
  EXPECT_EQ(network.symbols()[0].tensor, "z");
  EXPECT_EQ(network.find_tensor("x"), nullptr);
  EXPECT_EQ(network.find_tensor("z"), x);
  EXPECT_THROW(x->set_name("Grow 1_output_0"), Error);
  EXPECT_THROW(x->set_name(""), Error);
  second->output(0)->set_name("y");
  EXPECT_EQ(network.find_tensor("y"), second->output(0));
}

TEST(Network, ErrorsNameTheLayer) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{4});
  EXPECT_EQ(error_of([&] { network.add<Grow>({.axis = 3}, {x}, "conv1"); }),
            "Grow 'conv1': there is no axis 3");
  EXPECT_EQ(error_of([&] { network.add<Grow>({}, {}, "conv1"); }),
            "Grow 'conv1': takes 1 to 2 inputs, not 0");
  EXPECT_EQ(error_of([&] { network.add<Grow>({}, {nullptr}, "conv1"); }),
            "Grow 'conv1': input 0 is absent, but is needed");
  // Exceptions of plugins keep their type.
  const auto thrower = std::make_shared<Scripted>(
      [](InferContext&) -> std::vector<OutputInfo> { throw std::out_of_range("mine"); });
  EXPECT_THROW(network.add_layer(thrower, {}), std::out_of_range);
  EXPECT_EQ(network.num_layers(), 0);
}

TEST(Network, WrongAnswersOfOperatorsAreRejected) {
  Network network;
  const auto rejected = [&](const std::function<void(OutputInfo&)>& spoil) {
    const auto op = std::make_shared<Scripted>([&](InferContext&) {
      OutputInfo output;
      output.dims = {2};
      spoil(output);
      return std::vector{output};
    });
    return error_of([&] { network.add_layer(op, {}, "plugin"); });
  };
  EXPECT_EQ(rejected([](OutputInfo&) {}), "no error");
  EXPECT_EQ(rejected([](OutputInfo& o) { o.dims = SymShape(9, 1); }),
            "Scripted 'plugin': output 0 has 9 dimensions, but at most 8 are possible");
  EXPECT_EQ(rejected([](OutputInfo& o) {
              o.dims = {3, -1};
            }),
            "Scripted 'plugin': output 0 would have the shape (3, -1), in which an extent is "
            "negative");
  EXPECT_EQ(rejected([](OutputInfo& o) {
              o.values = std::make_shared<const std::vector<Expr>>(3, Expr(1));
            }),
            "Scripted 'plugin': output 0 of shape (2) cannot have 3 known elements");
  EXPECT_EQ(rejected([](OutputInfo& o) { o.constant = Blob::copy("1234", 4); }),
            "Scripted 'plugin': output 0 of shape (2) takes 8 bytes, but its constant has 4");
  EXPECT_EQ(rejected([](OutputInfo& o) { o.aliased_input = 0; }),
            "Scripted 'plugin': output 0 is aliased to input 0, which does not exist");
  EXPECT_NE(rejected([](OutputInfo& o) { o.dtype = static_cast<DataType>(77); }), "no error");
}

TEST(Network, OutputsAreMarkedOnce) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{4});
  Tensor* y = network.add<Grow>({}, {x})->output(0);
  network.mark_output(*y);
  EXPECT_TRUE(y->is_network_output());
  EXPECT_THROW(network.mark_output(*y), Error);
  EXPECT_THROW(network.mark_output(*x), Error);
  EXPECT_EQ(network.outputs().size(), 1u);
  network.unmark_output(*y);
  EXPECT_TRUE(network.outputs().empty());
  EXPECT_THROW(network.unmark_output(*y), Error);
  Network other;
  EXPECT_THROW(other.mark_output(*y), Error);

  EXPECT_THROW(y->set_allowed_formats(1), Error);
  x->set_allowed_formats(1u << static_cast<int>(TensorFormat::kHWC));
  EXPECT_EQ(x->allowed_formats(), 256u);
  EXPECT_THROW(x->set_allowed_formats(0), Error);
}

TEST(Network, ManyLayersTakeLinearTime) {
  Network network;
  Tensor* x = network.add_input("x", DataType::kFLOAT, Shape{-1});
  for (int i = 0; i < 20000; ++i) {
    auto* layer = network.add<Grow>({.limit = 100000}, {x});
    edit(*layer, [](Grow::Params& p) { p.amount = 2; });
    x = layer->output(0);
  }
  EXPECT_EQ(text(network, x), "(x.0 + 40000)");
  network.inputs()[0]->set_shape(Shape{1});
  EXPECT_EQ(x->shape(), (Shape{40001}));
}

}  // namespace
}  // namespace opwright
