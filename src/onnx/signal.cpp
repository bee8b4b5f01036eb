// Fourier transforms and related operators, and random numbers that depend on inputs.

#include <cmath>
#include <numbers>

#include "onnx/importer.h"
#include "operators/fourier_transform.h"
#include "operators/matrix.h"
#include "operators/reduce.h"

namespace opwright::onnx {
namespace {

/// The most elements of constants that are computed here.
constexpr int64_t kMostElements = int64_t{1} << 28;

int64_t constant_extent(NodeImporter& node, Tensor* x, int axis) {
  const Expr& extent = x->dims()[static_cast<size_t>(axis)];
  if (!extent.is_constant())
    node.error("axis ", axis, " of '", x->name(), "' must have a constant extent");
  if (extent.constant() > kMostElements)
    node.error("axis ", axis, " of '", x->name(), "' has ", extent, " elements; at most ",
               kMostElements, " are transformed");
  return extent.constant();
}

/// Returns the numbers of an element: 1 or 2.
int64_t require_parts(NodeImporter& node, Tensor* x) {
  const int64_t parts = constant_extent(node, x, x->rank() - 1);
  if (parts != 1 && parts != 2)
    node.error("the last axis of '", x->name(), "' has extent ", parts,
               "; expected 1 for real numbers or 2 for complex ones");
  return parts;
}

void dft(NodeImporter& node) {
  Tensor* x = node.input(0);
  node.require_rank(x, 2);
  const int rank = x->rank();
  int64_t given = node.opset() < 20 ? node.get_int("axis", 1) : -2;
  if (node.opset() >= 20)
    if (Tensor* input = node.optional_input(2)) given = node.constant_int(input, "axis");
  const int axis = node.axis(given, rank);
  if (axis == rank - 1) node.error("axis is the last one, which has real and imaginary parts");
  FourierTransformParams t;
  t.is_inverse = node.get_int("inverse", 0) != 0;
  t.is_onesided = node.get_int("onesided", 0) != 0;
  const int64_t from = constant_extent(node, x, axis);
  require_parts(node, x);
  t.length = t.is_inverse && t.is_onesided ? 2 * (from - 1) : from;
  if (Tensor* length = node.optional_input(1)) t.length = node.constant_int(length, "dft_length");
  if (t.is_inverse && t.length > 0) t.scale = 1 / static_cast<double>(t.length);
  Ints permutation;
  for (int i = 0; i < rank; ++i)
    if (i != axis && i != rank - 1) permutation.push_back(i);
  permutation.push_back(axis), permutation.push_back(rank - 1);
  const bool moves = axis != rank - 2;
  Tensor* y = node.add<FourierTransform>(t, {moves ? node.transpose(x, permutation) : x});
  if (moves) {
    Ints back(permutation.size());
    for (size_t i = 0; i < permutation.size(); ++i)
      back[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
    y = node.transpose(y, back);
  }
  node.set_output(0, y);
}

/// The transforms of windows that begin every `frame_step` elements.
void stft(NodeImporter& node) {
  Tensor* signal = node.input(0);
  node.require_rank(signal, 2, 3);
  if (signal->rank() == 2) signal = node.unsqueeze(signal, {2});
  Tensor* window = node.optional_input(2);
  const int64_t step = node.constant_int(node.input(1), "frame_step");
  int64_t length = 0;
  if (Tensor* given = node.optional_input(3))
    length = node.constant_int(given, "frame_length");
  else if (window != nullptr)
    length = constant_extent(node, window, 0);
  else
    length = constant_extent(node, signal, 1);
  if (step < 1 || length < 1)
    node.error("frame_step is ", step, " and the frame's length ", length,
               "; expected at least 1 each");
  FourierTransformParams t;
  t.length = length;
  t.is_onesided = node.get_int("onesided", 1) != 0;
  if (require_parts(node, signal) == 2 && t.is_onesided)
    node.error("onesided=1 is for real signals, but '", signal->name(), "' is complex");
  const Expr frames = max(floor_div(signal->dims()[1] - length, step) + 1, 0);
  Tensor* starts =
      node.elementwise(ElementWiseOperation::kPROD, node.count_up(frames, DataType::kINT64),
                       static_cast<double>(step));
  Tensor* index =
      node.elementwise(ElementWiseOperation::kSUM, node.reshape(starts, SymShape{frames, 1}),
                       node.reshape(node.count_up(length, DataType::kINT64), SymShape{1, length}));
  GatherParams gather;
  gather.axis = 1;
  Tensor* cut = node.add<Gather>(gather, {signal, index});
  if (window != nullptr) {
    node.require_rank(window, 1, 1);
    const int64_t extent = constant_extent(node, window, 0);
    if (extent != length)
      node.error("the window has ", extent, " elements, but a frame has ", length);
    cut = node.elementwise(ElementWiseOperation::kPROD, cut,
                           node.reshape(window, SymShape{1, 1, length, 1}));
  }
  node.set_output(0, node.add<FourierTransform>(t, {cut}));
}

/// Computes constant + first * cos(turn) + second * cos(2 turn) over a period.
void window(NodeImporter& node, double constant, double first, double second) {
  const Expr size = node.single_value(node.input(0), "size");
  const int64_t dtype = node.get_int("output_datatype", static_cast<int64_t>(ElementType::kFloat));
  const Expr period = node.get_int("periodic", 1) != 0 ? size : size - 1;
  Tensor* divisor = node.reshape(node.scalar_of(period, DataType::kFLOAT), SymShape{1});
  const auto cosine = [&](double turns, double factor) {
    Tensor* angle =
        node.elementwise(ElementWiseOperation::kPROD, node.count_up(size, DataType::kFLOAT),
                         turns * 2 * std::numbers::pi);
    angle = node.elementwise(ElementWiseOperation::kDIV, angle, divisor);
    return node.elementwise(ElementWiseOperation::kPROD, node.unary(UnaryOperation::kCOS, angle),
                            factor);
  };
  Tensor* y = node.elementwise(ElementWiseOperation::kSUM, cosine(1, first), constant);
  if (second != 0) y = node.elementwise(ElementWiseOperation::kSUM, y, cosine(2, second));
  node.set_output(0, node.cast(y, node.element_type("output_datatype", dtype)));
}

double mel_of(double hertz) { return 2595 * std::log10(1 + hertz / 700); }

/// Triangles over the bins of a spectrum. Their corners are equally far apart on the mel scale.
void mel_weight_matrix(NodeImporter& node) {
  const int64_t bins = node.constant_int(node.input(0), "num_mel_bins");
  const int64_t length = node.constant_int(node.input(1), "dft_length");
  const int64_t rate = node.constant_int(node.input(2), "sample_rate");
  const double low = mel_of(node.constant_float(node.input(3), "lower_edge_hertz"));
  const double high = mel_of(node.constant_float(node.input(4), "upper_edge_hertz"));
  if (bins < 0 || length < 0 || rate < 1 || bins > kMostElements || length > kMostElements ||
      (length / 2 + 1) * bins > kMostElements || !std::isfinite(low) || !std::isfinite(high))
    node.error("num_mel_bins is ", bins, ", dft_length ", length, ", sample_rate ", rate,
               "; expected positive numbers, ", kMostElements,
               " elements at most, and edges above -700 Hz");
  const int64_t rows = length / 2 + 1;
  const double step = (high - low) / static_cast<double>(bins + 2);
  const auto corner = [&](int64_t i) {
    const double hertz = 700 * (std::pow(10, (static_cast<double>(i) * step + low) / 2595) - 1);
    const double bin =
        std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate));
    if (!(bin >= 0 && bin < static_cast<double>(rows)))
      node.error("the edges reach bin ", bin, " of a spectrum of ", rows,
                 " bins; expected edges between 0 and half of the sample rate");
    return static_cast<int64_t>(bin);
  };
  std::vector<float> weights(static_cast<size_t>(rows * bins), 0);
  const auto weight = [&](int64_t row, int64_t column) -> float& {
    return weights[static_cast<size_t>(row * bins + column)];
  };
  for (int64_t i = 0; i < bins; ++i) {
    const int64_t left = corner(i), center = corner(i + 1), right = corner(i + 2);
    if (left == center) weight(center, i) = 1;
    for (int64_t j = left; left < center && j <= center; ++j)
      weight(j, i) = static_cast<float>(j - left) / static_cast<float>(center - left);
    for (int64_t j = center; j < right; ++j)
      weight(j, i) = static_cast<float>(right - j) / static_cast<float>(right - center);
  }
  const int64_t dtype = node.get_int("output_datatype", static_cast<int64_t>(ElementType::kFloat));
  node.set_output(
      0, node.constant_of({rows, bins}, weights, node.element_type("output_datatype", dtype)));
}

Tensor* uniform(NodeImporter& node, std::span<const Expr> dims) {
  FillParams params;
  params.operation = FillOperation::kRANDOM_UNIFORM;
  params.beta = 1;
  const float seed = node.get_float("seed", 0);
  if (!(std::abs(seed) < 0x1p63f)) node.error("seed is ", seed);
  params.seed = static_cast<int64_t>(seed);
  return node.fill(params, dims);
}

/// 1 with the input's probability, else 0.
void bernoulli(NodeImporter& node) {
  Tensor* x = node.input(0);
  const int64_t dtype = node.get_int("dtype", 0);
  const DataType type = dtype == 0 ? x->dtype() : node.element_type("dtype", dtype);
  const SymShape dims = x->dims();
  Tensor* hit = node.elementwise(ElementWiseOperation::kLESS, uniform(node, dims),
                                 node.cast(x, DataType::kFLOAT));
  node.set_output(0, node.cast(hit, type));
}

/// Draws classes whose logarithmic probabilities, up to a constant, are the input's rows: the class
/// into which a random number falls when the probabilities lie next to each other.
void multinomial(NodeImporter& node) {
  Tensor* x = node.input(0);
  node.require_rank(x, 2, 2);
  const int64_t samples = node.get_int("sample_size", 1);
  if (samples < 1) node.error("sample_size is ", samples, "; expected at least 1");
  const int64_t dtype = node.get_int("dtype", static_cast<int64_t>(ElementType::kInt32));
  const Expr rows = x->dims()[0], classes = x->dims()[1];
  Tensor* share = node.add<Softmax>({int64_t{1} << 1, false}, {node.cast(x, DataType::kFLOAT)});
  CumulativeParams sums;
  sums.axis = 1;
  share = node.add<Cumulative>(sums, {share});
  Tensor* number = uniform(node, SymShape{rows, samples});
  Tensor* is_above =
      node.elementwise(ElementWiseOperation::kLESS, node.reshape(share, SymShape{rows, 1, classes}),
                       node.reshape(number, SymShape{rows, samples, 1}));
  Tensor* found =
      node.reduce(ReduceOperation::kSUM, node.cast(is_above, DataType::kINT64), {2}, false);
  // Rounding may leave the sum below 1.
  Tensor* last = node.reshape(node.scalar_of(classes - 1), SymShape{1, 1});
  found = node.elementwise(ElementWiseOperation::kMIN, found, last);
  node.set_output(0, node.cast(found, node.element_type("dtype", dtype)));
}

}  // namespace

void add_signal(NodeTable& table) {
  table["DFT"] = dft;
  table["STFT"] = stft;
  table["HannWindow"] = [](NodeImporter& node) { window(node, 0.5, -0.5, 0); };
  table["HammingWindow"] = [](NodeImporter& node) { window(node, 25.0 / 46, -21.0 / 46, 0); };
  table["BlackmanWindow"] = [](NodeImporter& node) { window(node, 0.42, -0.5, 0.08); };
  table["MelWeightMatrix"] = mel_weight_matrix;
  table["Bernoulli"] = bernoulli;
  table["Multinomial"] = multinomial;
}

}  // namespace opwright::onnx
