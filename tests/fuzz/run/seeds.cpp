#include "run/seeds.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "add_profile.h"
#include "base/error.h"
#include "compile/compile.h"
#include "operators/activation.h"
#include "operators/convolution.h"
#include "operators/elementwise.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pooling.h"
#include "operators/reduce.h"
#include "operators/source.h"
#include "run/layout.h"
#include "run/run_plan.h"
#include "run/script.h"
#include "run/seed_plugins.h"
#include "runtime/engine.h"

namespace opwright::fuzz {
namespace {

using DT = DataType;
using TF = TensorFormat;

constexpr DT kF32 = DT::kFLOAT;

/// A network and its profiles, made by few words. Extents of -1 get the ranges of profile().
class Maker {
 public:
  Network network;
  BuilderConfig config{DeviceId{"cpu"}};

  explicit Maker(bool strong) : network(NetworkFlags{.strongly_typed = strong}) {}

  Tensor* input(const char* name, const Shape& shape, DT type = kF32) {
    return network.add_input(name, type, shape);
  }
  /// A shape input with values in these ranges.
  Tensor* values(const char* name, const Shape& min, const Shape& opt, const Shape& max,
                 DT type = DT::kINT64) {
    Tensor* tensor = network.add_input(name, type, {min.rank()});
    network.make_shape_input(*tensor);
    values_.push_back({name, min, opt, max});
    return tensor;
  }
  Tensor* weights(const Shape& shape, DT type = kF32) {
    const auto bytes = static_cast<size_t>(bytes_of(type, shape.numel()));
    const Blob data = Blob::make(bytes, [&](void* memory) {
      Random random(static_cast<uint64_t>(++constants_));
      if (type == kF32) {
        for (size_t i = 0; i < bytes / 4; ++i)
          static_cast<float*>(memory)[i] = static_cast<float>(random.below(200)) / 100.0f - 1;
      } else {
        // Small numbers, in the high bytes of halves.
        for (size_t i = 0; i < bytes; ++i)
          static_cast<uint8_t*>(memory)[i] = static_cast<uint8_t>(
              type == DT::kHALF || type == DT::kBF16 ? 0x38 + random.below(4) : random.below(2));
      }
    });
    return network.add_constant(type, shape, data);
  }
  template <class T>
  Tensor* list(DT type, std::vector<T> elements) {
    return network.add_constant(type, {static_cast<int64_t>(elements.size())},
                                Blob::copy(elements.data(), elements.size() * sizeof(T)));
  }
  template <class Op>
  Tensor* add(typename Op::Params params, std::initializer_list<Tensor*> inputs) {
    return network.add<Op>(std::move(params), inputs)->output(0);
  }
  Tensor* plugin(OperatorPtr op, std::initializer_list<Tensor*> inputs, int outputs = 1) {
    Layer* layer = network.add_layer(std::move(op), std::span(inputs.begin(), inputs.size()));
    for (int i = 1; i < outputs; ++i) network.mark_output(*layer->output(i));
    return layer->output(0);
  }
  Tensor* relu(Tensor* x) { return add<Activation>({}, {x}); }
  Tensor* sum(Tensor* a, Tensor* b) { return add<ElementWise>({}, {a, b}); }
  Tensor* unary(UnaryOperation op, Tensor* x) { return add<Unary>({op}, {x}); }
  Tensor* binary(ElementWiseOperation op, Tensor* a, Tensor* b) {
    return add<ElementWise>({op}, {a, b});
  }
  Tensor* cast(Tensor* x, DT to) { return add<Cast>({to}, {x}); }
  Tensor* reshape(Tensor* x, Ints dims) {
    ShuffleParams params;
    params.has_reshape = true;
    params.reshape_dims = std::move(dims);
    return add<Shuffle>(params, {x});
  }
  Tensor* transpose(Tensor* x, Ints order) { return add<Transpose>({std::move(order)}, {x}); }
  void output(Tensor* tensor) { network.mark_output(*tensor); }
  static void format(Tensor* tensor, TF format) {
    tensor->set_allowed_formats(1u << static_cast<int>(format));
  }

  /// With `count` profiles. The second begins where the first ends.
  void finish(int count = 1) {
    for (int p = 0; p < count; ++p) {
      OptimizationProfile profile;
      for (const Tensor* tensor : network.inputs()) {
        if (tensor->is_shape_input()) continue;
        Shape min = tensor->shape(), opt = min, max = min;
        for (int d = 0; d < min.rank(); ++d)
          if (min[d] < 0)
            min[d] = p == 0 ? low : 4, opt[d] = p == 0 ? 2 : 5, max[d] = p == 0 ? 4 : 6;
        profile.set_shape(tensor->name(), min, opt, max);
      }
      for (const auto& [name, min, opt, max] : values_) profile.set_values(name, min, opt, max);
      add_profile(config, profile);
    }
  }
  int64_t low = 1;

 private:
  struct Values {
    std::string name;
    Shape min, opt, max;
  };
  std::vector<Values> values_;
  int constants_ = 0;
};

struct Recipe {
  const char* name;
  std::function<void(Maker&)> make;
  int profiles = 1;
  bool strong = false;
  int variants = 1;  ///< beside the one of first candidates: with other candidates
};

ConvolutionParams padded(Ints padding, int64_t groups = 1) {
  ConvolutionParams params;
  params.pre_padding = params.post_padding = std::move(padding);
  params.groups = groups;
  return params;
}

PoolingParams pooling(PoolingType type, Ints window, Ints stride, Ints padding = {}) {
  PoolingParams params;
  params.type = type;
  params.window = std::move(window);
  params.stride = std::move(stride);
  params.pre_padding = params.post_padding = std::move(padding);
  return params;
}

SliceParams slice(Ints start, Ints size, Ints stride, SampleMode mode = SampleMode::kSTRICT_BOUNDS,
                  Ints axes = {}) {
  return {std::move(start), std::move(size), std::move(stride), std::move(axes), mode};
}

ResizeParams resize(InterpolationMode mode, Floats scales, ResizeCoordinateTransformation how) {
  ResizeParams params;
  params.mode = mode;
  params.scales = std::move(scales);
  params.coordinate_transformation = how;
  return params;
}

FusedActivation none() { return {}; }

std::vector<Recipe> recipes() {
  using E = ElementWiseOperation;
  using U = UnaryOperation;
  using R = ReduceOperation;
  std::vector<Recipe> list = {
      {"conv",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 3, 6, 6});
         Tensor* y = m.relu(
             m.add<Convolution>(padded({1, 1}), {x, m.weights({4, 3, 3, 3}), m.weights({4})}));
         Tensor* z = m.add<Convolution>(padded({1, 1}), {y, m.weights({4, 4, 3, 3})});
         m.output(m.relu(m.sum(z, y)));
       },
       2, false, 3},
      {"conv-hwc",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 4, 5, 5});
         m.format(x, TF::kHWC);
         Tensor* y = m.add<Convolution>(padded({1, 1}, 2), {x, m.weights({6, 2, 3, 3})});
         m.output(y);
         m.format(y, TF::kHWC);
       }},
      {"conv-1d-computed-kernel",
       [](Maker& m) {
         Tensor* x = m.input("x", {2, 3, -1});
         Tensor* k = m.input("k", {4, 3, 3});
         m.output(m.add<Convolution>(padded({1}), {x, k, m.input("b", {4})}));
       }},
      {"conv-3d",
       [](Maker& m) {
         m.output(m.add<Convolution>(padded({1, 1, 1}),
                                     {m.input("x", {1, 2, 3, 4, 4}), m.weights({3, 2, 3, 3, 3})}));
       }},
      {"conv-half",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 4, 5, 5}, DT::kHALF);
         m.output(m.relu(m.add<Convolution>(
             padded({1, 1}), {x, m.weights({4, 4, 3, 3}, DT::kHALF), m.weights({4}, DT::kHALF)})));
       },
       1, true},
      {"deconv",
       [](Maker& m) {
         ConvolutionParams params = padded({1, 1});
         params.stride = {2, 2};
         params.output_padding = {1, 1};
         m.output(m.relu(m.add<Deconvolution>(
             params, {m.input("x", {-1, 3, 4, 4}), m.weights({3, 2, 3, 3}), m.weights({2})})));
       },
       2, false, 2},
      {"pooling",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 3, 6, 6});
         PoolingParams average = pooling(PoolingType::kAVERAGE, {3, 3}, {1, 1}, {1, 1});
         average.average_count_excludes_padding = false;
         Tensor* y = m.add<Pooling>(pooling(PoolingType::kMAX, {2, 2}, {2, 2}), {x});
         m.output(m.add<Pooling>(average, {y}));
         PoolingParams up = pooling(PoolingType::kMAX, {3, 3}, {2, 2}, {1, 1});
         up.padding_mode = PaddingMode::kEXPLICIT_ROUND_UP;
         m.output(m.add<Pooling>(up, {x}));
       },
       1, false, 2},
      {"pooling-3d",
       [](Maker& m) {
         m.low = 2;
         m.output(m.add<Pooling>(pooling(PoolingType::kAVERAGE, {2, 2, 2}, {1, 1, 1}),
                                 {m.input("x", {1, 2, 3, 3, -1})}));
       }},
      {"pooling-int8",
       [](Maker& m) {
         m.output(m.add<Pooling>(pooling(PoolingType::kMAX, {2, 2}, {1, 1}),
                                 {m.input("x", {1, 2, 4, 4}, DT::kINT8)}));
       },
       1, true},
      {"matmul",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 4, 8});
         Tensor* y = m.add<MatrixMultiply>({}, {x, m.weights({1, 8, 5})});
         m.output(m.relu(m.sum(y, m.weights({1, 1, 5}))));
       },
       2, false, 2},
      {"matmul-batch",
       [](Maker& m) {
         Tensor* a = m.input("a", {2, -1, 3});
         Tensor* b = m.input("b", {2, 5, 3});
         Tensor* c = m.add<MatrixMultiply>(
             {MatrixOperation::kNONE, MatrixOperation::kTRANSPOSE, false, none(), {}}, {a, b});
         m.output(m.add<MatrixMultiply>(
             {MatrixOperation::kNONE, MatrixOperation::kVECTOR, false, none(), {}},
             {c, m.weights({2, 5})}));
       }},
      {"matmul-half",
       [](Maker& m) {
         m.output(m.add<MatrixMultiply>(
             {}, {m.input("a", {-1, 8}, DT::kBF16), m.weights({8, 4}, DT::kBF16)}));
       },
       1, true},
      {"softmax",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 5, 3});
         m.output(m.add<Softmax>({.axes = 2}, {x}));
         m.output(m.add<Softmax>({.axes = 4, .log = true}, {m.relu(x)}));
       },
       2, false, 2},
      {"normalization",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 4, 3, 3});
         NormalizationParams layer;
         layer.axes = 12;
         m.output(m.add<Normalization>(layer, {x, m.weights({3, 3}), m.weights({3, 3})}));
         NormalizationParams group;
         group.axes = 12;
         group.num_groups = 2;
         m.output(
             m.add<Normalization>(group, {x, m.weights({1, 4, 1, 1}), m.weights({1, 4, 1, 1})}));
         NormalizationParams rms;
         rms.axes = 8;
         rms.rms = true;
         m.output(m.add<Normalization>(rms, {x, m.weights({3}), nullptr}));
       },
       1, false, 2},
      {"lrn",
       [](Maker& m) {
         m.output(m.add<Lrn>({}, {m.input("x", {-1, 6, 3, 3})}));
       },
       2, false, 2},
      {"reduce",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 3, 4});
         m.output(m.add<Reduce>({R::kSUM, 4, false}, {x}));
         m.output(m.add<Reduce>({R::kMAX, 3, true}, {x}));
         m.output(m.add<Reduce>({R::kAVG, 7, false}, {m.relu(x)}));
       },
       1, false, 2},
      {"reduce-int",
       [](Maker& m) {
         m.output(m.add<Reduce>({R::kPROD, 2, false}, {m.input("x", {3, -1}, DT::kINT32)}));
         m.output(m.add<Reduce>({R::kMIN, 1, true}, {m.input("y", {3, -1}, DT::kINT64)}));
       }},
      {"topk",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 7});
         Layer* top = m.network.add<TopK>({TopKOperation::kMAX, 3, 2, DT::kINT32}, {x});
         m.output(top->output(0));
         m.output(top->output(1));
         m.output(
             m.network.add<TopK>({TopKOperation::kMIN, 2, 2, DT::kINT64}, {m.cast(x, DT::kINT32)})
                 ->output(1));
       }},
      {"topk-k-input",
       [](Maker& m) {
         Tensor* k = m.values("k", {1}, {2}, {5});
         Layer* top = m.network.add<TopK>({TopKOperation::kMAX, 1, 2, DT::kINT32},
                                          {m.input("x", {-1, 5}), k});
         m.output(top->output(0));
         m.output(top->output(1));
       }},
      {"gather",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 4, 3});
         m.output(m.add<Gather>({GatherMode::kDEFAULT, 1, 0}, {x, m.input("i", {5}, DT::kINT32)}));
         m.output(m.add<Gather>({GatherMode::kELEMENT, 2, 0},
                                {x, m.input("j", {-1, 4, 2}, DT::kINT64)}));
         m.output(
             m.add<Gather>({GatherMode::kND, 0, 1}, {x, m.input("l", {-1, 2, 1}, DT::kINT32)}));
       },
       2},
      {"gather-int",
       [](Maker& m) {
         m.output(m.add<Gather>({GatherMode::kDEFAULT, 0, 0},
                                {m.weights({6, 3}, DT::kINT64), m.input("i", {-1}, DT::kINT64)}));
         m.output(m.add<Gather>({GatherMode::kDEFAULT, 0, 0},
                                {m.weights({9}, DT::kBOOL), m.input("k", {-1, 2}, DT::kINT32)}));
       }},
      {"slice",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 5, 6});
         m.output(
             m.add<Slice>(slice({1, 4}, {3, 3}, {1, -1}, SampleMode::kSTRICT_BOUNDS, {1, 2}), {x}));
         m.output(m.add<Slice>(slice({-1, -2}, {8, 9}, {1, 1}, SampleMode::kREFLECT, {1, 2}), {x}));
         m.output(m.add<Slice>(slice({-2}, {9}, {1}, SampleMode::kWRAP, {2}), {x}));
         m.output(m.add<Slice>(slice({-2}, {9}, {2}, SampleMode::kCLAMP, {1}), {x}));
         m.output(m.add<Slice>(slice({-1}, {7}, {1}, SampleMode::kFILL, {1}), {x}));
       },
       1, false, 1},
      {"slice-shape-inputs",
       [](Maker& m) {
         Tensor* start = m.values("start", {0}, {0}, {2});
         Tensor* size = m.values("size", {1}, {2}, {3}, DT::kINT32);
         Tensor* x = m.input("x", {-1, 6});
         m.output(m.add<Slice>(slice({}, {}, {1}, SampleMode::kFILL, {1}),
                               {x, start, size, nullptr, m.input("fill", {})}));
       }},
      {"channel-shuffle",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 6, 3, 4});
         Tensor* parts = m.reshape(m.relu(x), {-1, 2, 3, 3, 4});
         m.output(m.reshape(m.transpose(parts, {0, 2, 1, 3, 4}), {-1, 6, 3, 4}));
       },
       2, false, 1},
      {"channel-shuffle-hwc",
       [](Maker& m) {
         Tensor* x = m.input("x", {2, 12, 3, 4});
         Tensor* parts = m.reshape(x, {2, 4, 3, 3, 4});
         Tensor* y = m.reshape(m.transpose(parts, {0, 2, 1, 3, 4}), {2, 12, 3, 4});
         m.format(x, TF::kHWC);
         m.output(y);
         m.format(y, TF::kHWC);
       }},
      {"views-of-ports",
       [](Maker& m) {
         Tensor* rows = m.reshape(m.input("x", {-1, 2, 6}), {-1, 6});
         Tensor* y = m.add<Softmax>({.axes = 0b10}, {rows});
         m.output(m.reshape(y, {-1}));
         m.output(m.add<Reduce>({R::kMAX, 0b10, true}, {y}));
         Tensor* w = m.reshape(m.input("w", {2, 3, 2, 2}), {6, 4});
         m.output(m.reshape(m.add<Softmax>({.axes = 0b01}, {w}), {3, 2, 4}));
         m.output(m.add<Softmax>({.axes = 0b01}, {m.input("v", {6, 4})}));
       },
       2, false, 1},
      {"concat",
       [](Maker& m) {
         Tensor* a = m.input("a", {-1, 2, 3, 3});
         Tensor* b = m.input("b", {-1, 4, 3, 3});
         m.output(m.add<Concatenation>({1}, {m.relu(a), b}));
       },
       1, false, 2},
      {"concat-hwc",
       [](Maker& m) {
         Tensor* a = m.input("a", {2, 2, 3, 3});
         Tensor* b = m.input("b", {2, 4, 3, 3});
         m.format(a, TF::kHWC);
         m.format(b, TF::kHWC);
         Tensor* y = m.add<Concatenation>({1}, {a, b});
         m.output(y);
         m.format(y, TF::kHWC);
       }},
      {"concat-int",
       [](Maker& m) {
         m.output(m.add<Concatenation>(
             {0}, {m.input("a", {-1, 3}, DT::kINT64), m.weights({2, 3}, DT::kINT64)}));
         m.output(m.add<Concatenation>(
             {1}, {m.input("p", {2, -1}, DT::kBOOL), m.input("q", {2, 3}, DT::kBOOL)}));
       }},
      {"resize",
       [](Maker& m) {
         using C = ResizeCoordinateTransformation;
         Tensor* x = m.input("x", {-1, 2, 4, 5});
         m.output(m.add<Resize>(resize(InterpolationMode::kNEAREST, {1, 1, 2, 0.5}, C::kASYMMETRIC),
                                {x}));
         m.output(m.add<Resize>(resize(InterpolationMode::kLINEAR, {1, 1, 1.5, 2}, C::kHALF_PIXEL),
                                {x}));
         m.output(m.add<Resize>(resize(InterpolationMode::kCUBIC, {1, 1, 2, 2}, C::kALIGN_CORNERS),
                                {x}));
       },
       1, false, 2},
      {"resize-to-shape-input",
       [](Maker& m) {
         Tensor* shape = m.values("shape", {1, 2, 1, 1}, {1, 2, 4, 4}, {1, 2, 7, 6});
         m.output(m.add<Resize>(
             resize(InterpolationMode::kLINEAR, {}, ResizeCoordinateTransformation::kHALF_PIXEL),
             {m.input("x", {1, 2, 4, 5}), shape}));
       }},
      {"transpose",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 3, 4, 5});
         m.output(m.transpose(x, {0, 2, 3, 1}));
         m.output(m.transpose(m.input("i", {3, -1}, DT::kINT64), {1, 0}));
         m.output(m.transpose(m.input("b", {3, 2, 2}, DT::kBOOL), {2, 0, 1}));
       },
       1, false, 1},
      {"reshape",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 4, 3, 3});
         m.output(m.relu(m.reshape(m.relu(x), {0, 36})));
         m.output(m.reshape(x, {-1, 6}));
       },
       2},
      {"reshape-hwc",
       [](Maker& m) {
         Tensor* x = m.input("x", {2, 3, 4, 5});
         m.format(x, TF::kHWC);
         m.output(m.reshape(x, {2, 60}));
         Tensor* y = m.input("y", {2, 60});
         Tensor* z = m.reshape(y, {2, 3, 4, 5});
         m.output(z);
         m.format(z, TF::kCHW16);
       }},
      {"fill",
       [](Maker& m) {
         Tensor* shape = m.values("shape", {1, 1}, {2, 3}, {4, 5});
         FillParams line;
         line.alpha = 1, line.beta = 2;
         m.output(m.add<Fill>(line, {shape, m.input("alpha", {}), m.input("beta", {2})}));
         FillParams random;
         random.operation = FillOperation::kRANDOM_UNIFORM;
         random.beta = 1;
         m.output(m.add<Fill>(random, {shape}));
         FillParams normal;
         normal.operation = FillOperation::kRANDOM_NORMAL;
         normal.beta = 1;
         normal.shape = {3, 4};
         m.output(m.add<Fill>(normal, {}));
         FillParams integers;
         integers.to_type = DT::kINT64;
         m.output(m.add<Fill>(
             integers, {shape, m.input("from", {}, DT::kINT64), m.input("step", {2}, DT::kINT64)}));
       }},
      {"pointwise",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 3, 4});
         Tensor* y = m.sum(m.unary(U::kEXP, x), m.weights({1, 3, 1}));
         Tensor* z = m.add<Activation>({ActivationType::kCLIP, -1, 1}, {m.binary(E::kPROD, y, x)});
         m.output(m.add<Select>(
             {}, {m.binary(E::kGREATER, x, m.weights({1, 1, 4})), z, m.unary(U::kNEG, x)}));
         m.output(z);
       },
       2, false, 2},
      {"pointwise-hwc",
       [](Maker& m) {
         Tensor* x = m.input("x", {2, 3, 4, 4});
         Tensor* y = m.input("y", {2, 3, 1, 1});
         for (Tensor* t : {x, y}) m.format(t, TF::kHWC);
         Tensor* z = m.add<ParametricRelu>({}, {m.sum(x, y), m.weights({1, 3, 1, 1})});
         m.output(z);
         m.format(z, TF::kHWC);
       }},
      {"pointwise-int",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 5}, DT::kINT64);
         Tensor* y = m.input("y", {1, 5}, DT::kINT64);
         m.output(m.binary(E::kFLOOR_DIV, m.binary(E::kPROD, x, y), m.unary(U::kABS, y)));
         Tensor* i = m.input("i", {7}, DT::kINT32);
         m.output(m.binary(E::kPOW, m.binary(E::kDIV, i, i), m.unary(U::kNEG, i)));
         Tensor* b = m.binary(E::kLESS, x, y);
         m.output(m.binary(E::kXOR, m.unary(U::kNOT, b), b));
       }},
      {"casts",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 6});
         for (const DT type :
              {DT::kHALF, DT::kBF16, DT::kINT8, DT::kUINT8, DT::kINT32, DT::kINT64, DT::kBOOL})
           m.output(m.cast(m.relu(x), type));
         m.output(m.cast(m.input("i", {5}, DT::kINT32), DT::kHALF));
         m.output(m.cast(m.input("b", {5}, DT::kBOOL), kF32));
       },
       1, true},
      {"pointwise-half",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 9}, DT::kHALF);
         m.output(m.sum(m.unary(U::kSQRT, m.unary(U::kABS, x)), x));
         Tensor* y = m.input("y", {3, 1}, DT::kBF16);
         m.output(m.binary(E::kMAX, y, m.weights({3, 4}, DT::kBF16)));
         m.output(m.unary(U::kISNAN, x));
       },
       1, true},
      {"half-mix",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 4, 4, 4}, DT::kHALF);
         m.output(m.add<Softmax>({.axes = 2}, {x}));
         m.output(m.add<Reduce>({R::kSUM, 12, false}, {x}));
         m.output(m.add<Pooling>(pooling(PoolingType::kMAX, {2, 2}, {2, 2}), {x}));
         m.output(m.add<Lrn>({}, {x}));
         m.output(m.network.add<TopK>({TopKOperation::kMAX, 2, 8, DT::kINT32}, {x})->output(0));
         m.output(m.add<Resize>(resize(InterpolationMode::kLINEAR, {1, 1, 2, 2},
                                       ResizeCoordinateTransformation::kHALF_PIXEL),
                                {x}));
         m.output(m.transpose(x, {3, 2, 1, 0}));
       },
       1, true},
      {"reformat",
       [](Maker& m) {
         int number = 0;
         for (const TF format :
              {TF::kHWC, TF::kCHW16, TF::kCHW32, TF::kCHW4, TF::kHWC8, TF::kHWC16, TF::kCHW2}) {
           Tensor* x = m.input(("x" + std::to_string(number)).c_str(), {-1, 3, 2, 3});
           m.format(x, format);
           Tensor* y = m.relu(x);
           m.output(y);
           m.format(y, number++ % 2 == 0 ? TF::kLINEAR : TF::kCHW32);
         }
       }},
      {"reformat-types",
       [](Maker& m) {
         Tensor* x = m.input("x", {2, 5, 3, 3}, DT::kINT64);
         m.format(x, TF::kCHW4);
         m.output(m.unary(U::kABS, x));
         Tensor* y = m.input("y", {2, 5, 3, 3}, DT::kHALF);
         m.format(y, TF::kCHW16);
         m.output(m.unary(U::kABS, y));
         Tensor* v = m.input("v", {1, 5, 2, 3, 3});
         m.format(v, TF::kDHWC);
         m.output(m.unary(U::kABS, v));
       },
       1, true},
      {"sizes",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 3});
         Tensor* y = m.plugin(size_plugin(), {x}, 2);
         Tensor* z = m.relu(y);
         m.output(z);
         m.output(m.reshape(m.sum(z, y), {1, -1}));
       },
       2},
      {"sizes-end",
       [](Maker& m) {
         m.output(m.plugin(size_plugin(), {m.relu(m.input("x", {-1, 3}))}, 2));
       }},
      {"plugin-v2",
       [](Maker& m) {
         m.output(m.relu(m.plugin(v2_plugin(), {m.relu(m.input("x", {-1, 3, 2, 2}))})));
       }},
      {"plugin-v3",
       [](Maker& m) {
         m.output(m.relu(m.plugin(v3_plugin(), {m.relu(m.input("x", {-1, 3, 2, 2}))})));
       },
       2, false, 2},
      {"plugin-in-place",
       [](Maker& m) {
         m.output(m.plugin(in_place_plugin(), {m.input("x", {-1, 3})}));
       }},
      {"plugin-in-place-inner",
       [](Maker& m) {
         m.output(m.relu(m.plugin(in_place_plugin(), {m.relu(m.input("x", {-1, 3}))})));
       }},
      {"plugin-shape-input",
       [](Maker& m) {
         m.output(m.plugin(shape_plugin(),
                           {m.relu(m.input("x", {-1, 3})), m.values("times", {1}, {2}, {3})}));
       }},
      {"plugin-function-and-quick",
       [](Maker& m) {
         Tensor* y = m.plugin(function_plugin(), {m.input("x", {-1, 3})});
         m.output(m.plugin(quick_plugin(), {y}));
       }},
      {"refit",
       [](Maker& m) {
         m.config.flags.set(BuilderFlag::kREFIT);
         Tensor* x = m.input("x", {-1, 3, 4, 4});
         Tensor* y = m.relu(
             m.add<Convolution>(padded({1, 1}), {x, m.weights({4, 3, 3, 3}), m.weights({4})}));
         m.output(m.sum(y, m.transpose(m.weights({4, 1, 1, 1}), {1, 0, 2, 3})));
       }},
      {"refit-identical",
       [](Maker& m) {
         m.config.flags.set(BuilderFlag::kREFIT_IDENTICAL);
         m.output(m.add<MatrixMultiply>({}, {m.input("x", {-1, 8}), m.weights({8, 5})}));
       }},
      {"stripped",
       [](Maker& m) {
         m.config.flags.set(BuilderFlag::kREFIT);
         m.config.flags.set(BuilderFlag::kSTRIP_PLAN);
         m.output(m.add<MatrixMultiply>({}, {m.input("x", {-1, 64}), m.weights({64, 64})}));
       }},
      {"debug",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 6});
         Tensor* y = m.add<Softmax>({.axes = 2}, {x});
         Tensor* z = m.relu(y);
         for (Tensor* t : {x, y, z}) m.network.mark_debug(*t);
         m.network.set_unfused_debug(true);
         m.output(m.add<Reduce>({R::kSUM, 2, true}, {z}));
       },
       2},
      {"copies",
       [](Maker& m) {
         Tensor* x = m.input("x", {-1, 3});
         m.output(m.add<Identity>({}, {x}));
         m.output(m.add<Identity>({}, {m.weights({2, 3})}));
         m.output(m.add<ShapeOf>({}, {x}));
         m.output(m.relu(x));
         Tensor* v = m.input("v", {3, -1}, DT::kINT64);
         m.output(m.binary(E::kPROD, m.add<ShapeOf>({}, {v}), m.list<int64_t>(DT::kINT64, {2, 3})));
       },
       2},
      {"shapes",
       [](Maker& m) {
         m.low = 0;
         Tensor* a = m.input("a", {-1, 3, -1});
         Tensor* b = m.input("b", {-1, 3, -1});
         for (Tensor* t : {a, b}) {
           t->set_dimension_name(0, "n");
           t->set_dimension_name(2, "w");
         }
         Tensor* c = m.add<Concatenation>({2}, {a, b});
         Tensor* d = m.reshape(m.transpose(c, {0, 2, 1}), {-1, 3});
         m.output(m.add<Softmax>({.axes = 2}, {d}));
         m.output(m.add<Reduce>({R::kMAX, 4, false}, {m.sum(a, b)}));
       },
       2},
      {"mlp",
       [](Maker& m) {
         Tensor* h = m.input("x", {-1, 6});
         for (int i = 0; i < 3; ++i) {
           h = m.relu(m.sum(m.add<MatrixMultiply>({}, {h, m.weights({6, 6})}), m.weights({1, 6})));
           h = m.add<Normalization>({.axes = 2}, {h, m.weights({1, 6}), m.weights({1, 6})});
         }
         m.output(m.add<Softmax>({.axes = 2}, {h}));
       },
       1, false, 1},
  };
  return list;
}

[[noreturn]] void die(const std::string& text) {
  std::fprintf(stderr, "fuzz: %s\n", text.c_str());
  std::abort();
}

Plan compiled(const Recipe& recipe, const std::shared_ptr<TimingCache>& cache, bool timing) {
  Maker maker(recipe.strong);
  maker.network.set_name(recipe.name);
  recipe.make(maker);
  maker.finish(recipe.profiles);
  BuilderConfig& config = maker.config;
  config.timing = timing;
  config.timing_cache = cache;
  config.avg_timing_iterations = 1;
  if (!recipe.strong && cache != nullptr)
    for (const BuilderFlag type : {BuilderFlag::kFP16, BuilderFlag::kBF16}) config.flags.set(type);
  return compile(maker.network, config);
}

/// Other candidates than the first ones: those that are the fastest by chance.
std::vector<Plan> variants(const Recipe& recipe) {
  std::vector<Plan> plans;
  if (recipe.variants == 0) return plans;
  const auto cache = std::make_shared<TimingCache>(get_device(DeviceType::kCPU).identity());
  compiled(recipe, cache, true);
  Random random(std::hash<std::string_view>()(recipe.name));
  for (int i = 0; i < recipe.variants; ++i) {
    for (const std::string& key : cache->keys())
      cache->insert(key, static_cast<float>(1 + random.below(1000)));
    plans.push_back(compiled(recipe, cache, false));
  }
  return plans;
}

}  // namespace

const std::vector<Seed>& seeds() {
  static const std::vector<Seed>* const made = [] {
    seed_registry();
    auto* list = new std::vector<Seed>();
    for (const Recipe& recipe : recipes()) {
      try {
        list->push_back({recipe.name, compiled(recipe, nullptr, false)});
        int number = 0;
        for (Plan& plan : variants(recipe))
          list->push_back({str(recipe.name, "/", ++number), std::move(plan)});
      } catch (const Error& error) {
        die(str("the seed '", recipe.name, "' does not compile: ", error.what()));
      }
    }
    for (Seed& seed : *list) {
      for (Schedule& schedule : seed.plan.schedules) spread_arena(schedule);
      validate(seed.plan);
    }
    return list;
  }();
  return *made;
}

void check_seeds() {
  std::set<std::string> kinds;
  for (const Seed& seed : seeds())
    for (const Schedule& schedule : seed.plan.schedules)
      for (const PlanStep& step : schedule.steps) kinds.insert(step.kind);
  for (const char* kind :
       {"ChannelShuffle", "Concatenation", "Convolution",    "Deconvolution", "Fill",
        "Gather",         "LRN",           "MatrixMultiply", "Normalization", "Pointwise",
        "Pooling",        "Reduce",        "Reformat",       "Reshape",       "Resize",
        "Slice",          "Softmax",       "TopK",           "Transpose",     "PluginV2",
        "PluginV3",       "FunctionPlugin"})
    if (!kinds.contains(kind)) die(str("no seed has a step of the kind ", kind));
  std::string problems;
  for (const Seed& seed : seeds()) {
    try {
      check_plan(seed.plan);
    } catch (const Error& error) {
      problems += str("\nthe seed '", seed.name, "' does not run: ", error.what());
    }
  }
  if (!problems.empty()) die(problems);
}

}  // namespace opwright::fuzz
