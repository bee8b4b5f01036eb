#include "backend/gpu/convolution.h"

#include <algorithm>
#include <numeric>

#include "backend/candidates.h"
#include "backend/device.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/product.h"
#include "backend/gpu/product_cost.h"
#include "backend/gpu/row_product.h"
#include "base/types.h"
#include "operators/infer.h"
#include "operators/type_rules.h"

namespace opwright::gpu {
namespace {

/// Products per element up to which a thread per element may be as fast as tiles.
constexpr int64_t kFewProducts = 64;
/// Instructions of a thread that computes an element, for each multiply-add of a channel.
constexpr double kDirectOverhead = 6;
/// Number of tactics timed for linear tensors where another format exists: windows of a linear
/// tensor are read element by element.
constexpr size_t kLinearTactics = 3;
/// Up to this number of channels, as in images, x stays linear where its windows can be copied in
/// pieces.
constexpr int64_t kFewChannels = 4;
/// Bytes that a thread copies to shared memory in one access.
constexpr int64_t kLeastPieceBytes = 4, kMostPieceBytes = 16;
/// With fewer channels in a group, tiles are mostly empty.
constexpr int64_t kNarrowGroup = 16;
/// Prefixes of the names of tactics; see kConvolutionByTaps.
constexpr std::string_view kByTaps = "by taps, ", kByPhases = "by phases, ";
/// The most phases of a transposed convolution that are computed as convolutions.
constexpr int64_t kMostPhases = 4096;

void find_epilogue_inputs(ConvolutionShape& shape, const ConvolutionParams& params,
                          std::span<const PortDesc> inputs) {
  const int count = static_cast<int>(inputs.size()) - params.fused.inputs();
  if (params.has_residual) shape.residual = count - 1;
  if (count > 2 && shape.residual != 2 && inputs[2].present) shape.bias = 2;
}

/// Whether each window is one element of x, in the same place.
bool is_pointwise(const Windows& windows) {
  for (size_t i = 0; i < windows.axes.size(); ++i)
    if (windows.window[i] != Expr(1) || windows.axes[i].stride != 1 ||
        windows.padding[i] != Expr(0) || windows.y[i] != windows.x[i])
      return false;
  return true;
}

/// The number of neighbours in a window's row that one access copies, if x is linear and every
/// window lies inside of it. 0 if windows may reach beyond x, or if the neighbours have fewer than
/// 4 bytes.
int64_t patch_piece(const ConvolutionShape& shape, const ConvolutionParams& params, DataType type) {
  const Windows& windows = shape.windows;
  const PaddingMode mode = params.padding_mode;
  if (windows.is_transposed || shape.groups != Expr(1) || mode == PaddingMode::kSAME_UPPER ||
      mode == PaddingMode::kSAME_LOWER || !is_constant(windows.window))
    return 0;
  for (const WindowAxis& axis : windows.axes)
    if (axis.dilation != 1 || axis.pre != 0 || axis.post != 0) return 0;
  const int64_t piece =
      std::gcd(std::gcd(windows.window.back().constant(), windows.axes.back().stride),
               kMostPieceBytes * 8 / bits(type));
  return piece * bits(type) / 8 >= kLeastPieceBytes ? piece : 0;
}

/// Whether a transposed convolution can be computed by taps: each pixel of y takes one tap.
/// The kernel's extents are constant. For other extents of x, y and x * stride grow alike.
bool can_go_by_taps(const Windows& windows) {
  if (!windows.is_transposed || !is_constant(windows.window)) return false;
  for (size_t i = 0; i < windows.axes.size(); ++i) {
    const Expr stride = windows.axes[i].stride, &cut = windows.padding[i];
    const bool is_dense = windows.axes[i].dilation == 1 || stride == Expr(1);
    if (windows.window[i] != stride || !is_dense || cut.constant() < 0 ||
        (windows.y[i] + cut).constant() > (windows.x[i] * stride).constant())
      return false;
  }
  return true;
}

/// Whether a transposed convolution can be computed by phases. The kernel's extents are constant.
bool can_go_by_phases(const Windows& windows) {
  if (!windows.is_transposed || !is_constant(windows.window)) return false;
  int64_t phases = 1;
  for (size_t i = 0; i < windows.axes.size(); ++i) {
    if ((windows.axes[i].dilation != 1 && windows.window[i] != Expr(1)) ||
        windows.padding[i].constant() < 0)
      return false;
    if (__builtin_mul_overflow(phases, windows.axes[i].stride, &phases) || phases > kMostPhases)
      return false;
  }
  return true;
}

/// The windows in x of the first phase of a transposed convolution.
Windows windows_of_phase(const Windows& windows) {
  Windows phase = windows;
  phase.is_transposed = false;
  for (size_t i = 0; i < windows.axes.size(); ++i) {
    const Expr stride = windows.axes[i].stride;
    phase.axes[i] = {};
    phase.window[i] = ceil_div(windows.window[i], stride);
    phase.y[i] = ceil_div(windows.y[i], stride);
    phase.padding[i] = phase.window[i] - Expr(1) - floor_div(windows.padding[i], stride);
  }
  return phase;
}

/// Writes a convolution as a matrix product. With channels last, rows are pixels and columns are
/// maps. With linear tensors, rows are maps and columns are pixels.
class ConvolutionWriter {
 public:
  ConvolutionWriter(const ConvolutionParams& params, bool is_transposed, const KernelArgs& args)
      : args_(args),
        writer_(is_transposed ? "deconvolution" : "convolution", args,
                args.candidate->tactic % kProductTacticsEnd),
        source_(writer_.source()),
        shape_(params, is_transposed, source_.dims(0), source_.dims(1)),
        all_(shape_.windows),
        k_(shape_.channels * shape_.taps()) {
    shape_.is_channels_last = args.inputs[0].type.format != TensorFormat::kLINEAR;
    find_epilogue_inputs(shape_, params, args.inputs);
    if (shape_.windows.reaches_far()) source_.widen();
    const int64_t tactic = args.candidate->tactic;
    by_taps_ = tactic >= kConvolutionByTaps && tactic < kConvolutionByPhases;
    if (tactic >= kConvolutionByPhases) begin_phases();
    epilogue_.bias = shape_.bias, epilogue_.residual = shape_.residual;
    epilogue_.activation = params.activation, epilogue_.program = params.fused;
    if (!shape_.is_channels_last && args.outputs[0].type.format != TensorFormat::kLINEAR)
      piece_ = patch_piece(shape_, params, args.inputs[0].type.dtype);
  }

  GeneratedKernel write() {
    if (by_taps_) return shape_.is_channels_last ? taps_channels_last() : taps_linear();
    if (piece_ > 0) return patches();
    return shape_.is_channels_last ? channels_last() : linear();
  }

 private:
  ProductOperand windows(bool is_a, const std::string& x, const Expr& count, const Expr& image,
                         const Expr& channel, const Expr& pixel, const std::string& is_aligned) {
    if (!by_phases_) shape_.windows.configure(writer_.config());
    writer_.add_reader(include("window_reader.cuh"));
    const auto value = [&](const Expr& number) { return source_.value(number); };
    ProductOperand operand = {
        is_a, args_.inputs[0].type.dtype,
        str("WindowReader<", ProductWriter::side(is_a), ", Config>"),
        str("{", x, ", ", by_phases_ ? "phase.shifted(" : "", shape_.windows.make(source_),
            by_phases_ ? "), " : ", ", is_a ? "task.first_row" : "task.first_column", ", ",
            value(count), ", ", value(image), ", ", value(shape_.channels), ", ",
            value(shape_.taps()), ", ", value(channel), ", ", value(pixel), ", ", is_aligned, "}")};
    if (is_a) add_boxes(operand);
    return operand;
  }

  /// Lets TMA read windows along k, if it can read a tile's windows as one box. That needs two
  /// axes, whole vectors of channels, and taps and corners within TMA's limits.
  void add_boxes(ProductOperand& operand) {
    constexpr int64_t kNearest = -128, kFarthest = 127, kMostReach = 255, kMostStride = 8;
    constexpr int kHeight = 0, kWidth = 1;
    const Windows& windows = shape_.windows;
    const int64_t vector = KernelLaunch::TensorMap::kBytes * 8 / bits(operand.type);
    const auto is_multiple = [](const Expr& number, int64_t of) {
      return number.is_constant() && number.constant() > 0 && number.constant() % of == 0;
    };
    if (windows.is_transposed || windows.axes.size() != 2 || shape_.groups != Expr(1) ||
        !is_multiple(shape_.channels, vector) || !is_multiple(k_, writer_.tile().k))
      return;
    KernelTensorMap map;
    map.type = operand.type;
    map.extents = {shape_.channels, windows.x[kWidth], windows.x[kHeight], shape_.images};
    map.strides = {shape_.channels, shape_.channels * windows.x[kWidth],
                   shape_.channels * windows.x[kWidth] * windows.x[kHeight]};
    map.box = {static_cast<int32_t>(vector), writer_.tile().m};
    map.steps = {1, 1, 1, 1};
    const auto is_within = [](const Expr& number) {
      return number.is_constant() && number.constant() >= kNearest &&
             number.constant() <= kFarthest;
    };
    for (const int axis : {kWidth, kHeight}) {
      const int64_t stride = windows.axes[axis].stride;
      const Expr reach = (windows.window[axis] - Expr(1)) * Expr(windows.axes[axis].dilation);
      const Expr lower = Expr(0) - windows.padding[axis];
      const Expr upper = (windows.y[axis] - Expr(1)) * Expr(stride) - windows.padding[axis] -
                         (windows.x[axis] - Expr(1));
      if (!reach.is_constant() || reach.constant() + shifts_ > kMostReach || stride > kMostStride ||
          !is_within(lower) || !is_within(upper))
        return;
      map.steps[axis == kWidth ? 1 : 2] = static_cast<int32_t>(stride);
      map.lower.push_back(lower), map.upper.push_back(upper);
    }
    writer_.add_box_reader(include("window_boxes.cuh"));
    const auto value = [&](const Expr& number) { return source_.value(number); };
    const std::string width = value(windows.y[kWidth]), height = value(windows.y[kHeight]);
    const auto start = [&](const std::string& number, int axis) {
      return str("(", number, ") * ", windows.axes[axis].stride, " - ",
                 value(windows.padding[axis]));
    };
    operand.map = std::move(map);
    operand.box_reader = "WindowBoxes<A>";
    operand.make_boxes = str(
        "{a_map, ", value(shape_.channels), ", ", value(windows.window[kWidth]), ", ",
        windows.axes[kHeight].dilation, ", ", windows.axes[kWidth].dilation, ", task.first_row / (",
        width, " * ", height, "), ", start(str("task.first_row / ", width, " % ", height), kHeight),
        ", ", start(str("task.first_row % ", width), kWidth),
        by_phases_ ? str(", phase.shift[", kHeight, "], phase.shift[", kWidth, "]}") : ", 0, 0}");
  }

  /// Returns the operand for the kernel tensor of a transposed convolution, from the tile's first
  /// map on.
  ProductOperand transposed_kernel(bool is_a, const MatrixStackPlace& place) {
    writer_.add_reader(include("kernel_reader.cuh"));
    const std::string from = shape_.groups == Expr(1) ? std::string("in1")
                                                      : str("(in1 + ", place.number, " * ",
                                                            source_.value(place.stride), ")");
    const std::string first = is_a ? "task.first_row" : "task.first_column";
    const Expr taps = numel(all_.window);
    const std::string type = by_phases_ ? "WindowPhase<Config>" : "EveryTap";
    const std::string of = by_phases_ ? "phase" : str("EveryTap{", source_.value(taps), "}");
    ProductOperand operand = {
        is_a, args_.inputs[1].type.dtype,
        str("KernelReader<", ProductWriter::side(is_a), ", ", type, ">"),
        str("{", from, " + ", first, is_a ? " * " + source_.value(taps) : std::string(), ", ",
            source_.value(shape_.maps), ", ", source_.value(shape_.maps), " - ", first, ", ",
            source_.value(taps), ", ", source_.value(shape_.channels), ", ",
            writer_.alignment(1, {shape_.maps}), ", ", of, "}"),
        args_.inputs[1].is_constant};
    // A step of TMA has channels of one tap.
    const int vector = vector_of(operand.type);
    const auto is_multiple = [](const Expr& number, int of) {
      return number.is_constant() && number.constant() > 0 && number.constant() % of == 0;
    };
    if (is_a || !by_phases_ || shape_.groups != Expr(1) || !is_multiple(shape_.maps, vector) ||
        !is_multiple(shape_.channels, writer_.tile().k))
      return operand;
    KernelTensorMap map;
    map.input = 1, map.type = operand.type;
    map.extents = {shape_.maps, taps, shape_.channels};
    map.strides = {shape_.maps, shape_.maps * taps};
    map.box = {8 * vector, 1, writer_.tile().k};
    map.steps = {1, 1, 1};
    operand.map = std::move(map);
    writer_.add_box_reader(include("kernel_boxes.cuh"));
    operand.box_reader = str("KernelBoxes<B, ", type, ">");
    operand.make_boxes =
        str("{b_map, ", first, ", ", source_.value(shape_.channels), ", ", of, "}");
    return operand;
  }

  /// Replaces the windows by those of a phase. Batches are groups, and phases of each.
  void begin_phases() {
    shape_.windows = windows_of_phase(all_);
    k_ = shape_.channels * shape_.taps();
    by_phases_ = true;
    std::string lists[4];
    for (size_t i = 0; i < all_.axes.size(); ++i) {
      const int64_t stride = all_.axes[i].stride;
      phases_ *= stride;
      shifts_ = shifts_ || all_.padding[i].constant() % stride != 0;
      const Expr numbers[] = {all_.padding[i].constant() % stride, stride, all_.window[i],
                              shape_.windows.window[i]};
      for (int list = 0; list < 4; ++list)
        lists[list] += str(i == 0 ? "{" : ", ", source_.value(numbers[list]));
    }
    for (const std::string& list : lists) phase_ += str(", ", list, "}");
    shape_.windows.configure(writer_.config());
    const std::string reader = include("window_phases.cuh");
    writer_.add_reader(reader), writer_.add_box_reader(reader);
  }
  /// The statement that defines the phase of a task.
  std::string phase() const {
    return !by_phases_
               ? std::string()
               : str("const WindowPhase<Config> phase(task.batch % ", phases_, phase_, ");\n");
  }
  /// The batch without the phase.
  std::string batch() const {
    return phases_ > 1 ? str("(task.batch / ", phases_, ")") : std::string("task.batch");
  }

  /// Stores results at the pixels of y that pixels of `extents` have with taps, from `cut` on.
  void scatter(const SymShape& extents, bool cuts) {
    const int vector = vector_of(args_.outputs[0].type.dtype);
    ScatteredResults results;
    results.type =
        str("ScatteredPlaces<", all_.axes.size(), ", ", shape_.is_channels_last ? "true" : "false",
            ", ", by_taps_ ? "true" : "false", ", ", phases_, ">");
    const auto add = [&](auto&& number) {
      results.make += results.make.empty() ? "{" : ", {";
      for (size_t i = 0; i < all_.axes.size(); ++i)
        results.make += str(i == 0 ? "" : ", ", source_.value(Expr(number(i))));
      results.make += "}";
    };
    add([&](size_t i) { return extents[i]; });
    add([&](size_t i) { return all_.y[i]; });
    add([&](size_t i) { return all_.axes[i].stride; });
    add([&](size_t i) { return cuts ? all_.padding[i] : Expr(0); });
    results.make += str(", ", source_.value(shape_.maps), ", ", source_.value(numel(all_.window)));
    results.row_length = shape_.maps;
    if (shape_.is_channels_last)
      results.pack = !by_taps_ ? vector
                     : shape_.maps.is_constant()
                         ? static_cast<int>(std::gcd(shape_.maps.constant(), int64_t{vector}))
                         : 1;
    writer_.scatter(std::move(results));
  }

  GeneratedKernel taps_channels_last() {
    const Expr pixel = shape_.channels * shape_.groups, row = shape_.maps * shape_.groups;
    const Expr count = shape_.images * numel(all_.x), columns = shape_.maps * shape_.taps();
    const ProductOperand a =
        writer_.matrix(true, 0, true, {"task.batch", shape_.groups, shape_.channels}, count, pixel,
                       shape_.channels, writer_.alignment(0, {shape_.channels, pixel}));
    const ProductOperand b =
        writer_.matrix(false, 1, false, kernel_of("task.batch"), columns, columns, shape_.channels,
                       writer_.alignment(1, {columns}));
    scatter(all_.x, true);
    const std::string map = str("column % ", source_.value(shape_.maps));
    epilogue_.bias_element = epilogue_.channel_element =
        shape_.groups == Expr(1) ? map
                                 : str("task.batch * ", source_.value(shape_.maps), " + ", map);
    epilogue_.has_channel_rows = true;
    return writer_.write(count, columns, shape_.channels, shape_.groups, {}, a, b, shape_.maps, row,
                         epilogue_);
  }

  GeneratedKernel taps_linear() {
    const Expr pixels = numel(all_.x), rows = shape_.maps * shape_.taps();
    const Expr batches = shape_.images * shape_.groups;
    const std::string places[] = {"image", "group"};
    const Expr extents[] = {shape_.images, shape_.groups};
    const std::string of_batch = source_.decompose("task.batch", places, extents);
    const ProductOperand a = writer_.matrix(true, 1, false, kernel_of("group"), rows, rows,
                                            shape_.channels, writer_.alignment(1, {rows}));
    const ProductOperand b =
        writer_.matrix(false, 0, false, {"task.batch", batches, shape_.channels * pixels}, pixels,
                       pixels, shape_.channels, writer_.alignment(0, {pixels}));
    scatter(all_.x, true);
    epilogue_.bias_element = epilogue_.channel_element =
        str("group * ", source_.value(shape_.maps), " + row / ", source_.value(shape_.taps()));
    epilogue_.row_axes = static_cast<int>(all_.axes.size());
    return writer_.write(rows, pixels, shape_.channels, batches, of_batch, a, b,
                         shape_.maps * numel(all_.y), pixels, epilogue_);
  }

  /// Whether each window is one element of x, in the same place.
  bool are_pixels() const { return !shifts_ && is_pointwise(shape_.windows); }

  /// Whether the results of a phase have gaps between them.
  bool has_gaps() const { return phases_ > 1; }

  /// Returns a group's part of the kernel tensor, whose outermost axis has the groups.
  MatrixStackPlace kernel_of(std::string group) const {
    return {std::move(group), shape_.groups, shape_.channels * shape_.maps * numel(all_.window)};
  }

  GeneratedKernel channels_last() {
    const Expr pixel = shape_.channels * shape_.groups, row = shape_.maps * shape_.groups;
    const Expr count = shape_.images * shape_.pixels();
    const bool is_grouped = shape_.groups != Expr(1);
    const std::string group = batch();
    const std::string x =
        is_grouped ? str("(in0 + ", group, " * ", source_.value(shape_.channels), ")") : "in0";
    const std::string is_aligned = writer_.alignment(0, {shape_.channels, pixel});
    const ProductOperand a =
        are_pixels()
            ? writer_.matrix(true, 0, true, {group, shape_.groups, shape_.channels}, count, pixel,
                             k_, is_aligned)
            : windows(true, x, count, numel(shape_.windows.x) * pixel, 1, pixel, is_aligned);
    const MatrixStackPlace kernel = kernel_of(group);
    const ProductOperand b = all_.is_transposed
                                 ? transposed_kernel(false, kernel)
                                 : writer_.matrix(false, 1, true, kernel, shape_.maps, k_, k_,
                                                  writer_.alignment(1, {k_}));
    epilogue_.bias_element =
        is_grouped ? str(group, " * ", source_.value(shape_.maps), " + column") : "column";
    epilogue_.channel_element = epilogue_.bias_element;
    if (has_gaps()) scatter(shape_.windows.y, false);
    return writer_.write(count, shape_.maps, k_, shape_.groups * Expr(phases_), phase(), a, b,
                         shape_.maps, row, epilogue_);
  }

  /// Writes the kernel for a linear x and channels-last results.
  GeneratedKernel patches() {
    const Windows& windows = shape_.windows;
    const Expr count = shape_.images * shape_.pixels(), &row = windows.x.back();
    const auto value = [&](const Expr& number) { return source_.value(number); };
    windows.configure(writer_.config());
    // Rows of the kernel tensor begin at multiples of this number of elements.
    const int64_t vector = kMostPieceBytes * 8 / bits(args_.inputs[1].type.dtype);
    const int64_t row_piece = std::gcd(k_.constant(), vector);
    writer_.add_reader(include("patch_reader.cuh"));
    const auto aligned = [&](int input, int64_t piece) {
      return str("is_aligned<", storage_type(args_.inputs[input].type.dtype), ", ", piece, ">(in",
                 input, ")");
    };
    std::string is_aligned = aligned(0, piece_);
    if (!row.is_constant() || row.constant() % piece_ != 0)
      is_aligned += str(" && ", value(row), " % ", piece_, " == 0");
    const ProductOperand a = {
        true, args_.inputs[0].type.dtype,
        str("PatchReader<", ProductWriter::side(true), ", Config, ", piece_, ">"),
        str("{in0, ", windows.make(source_), ", task.first_row, ", value(count), ", ",
            value(shape_.channels * numel(windows.x)), ", ", value(k_), ", ", is_aligned, "}")};
    ProductOperand b = writer_.matrix(false, 1, true, kernel_of("task.batch"), shape_.maps, k_, k_,
                                      writer_.alignment(1, {k_}));
    if (row_piece < vector && row_piece * bits(b.type) / 8 >= kLeastPieceBytes) {
      b.reader = str("PieceReader<", ProductWriter::side(false), ", ", row_piece, ">");
      b.make = str("{in1 + task.first_column * ", value(k_), ", ", value(k_), ", ",
                   value(shape_.maps), " - task.first_column, ", aligned(1, row_piece), "}");
    }
    epilogue_.bias_element = epilogue_.channel_element = "column";
    return writer_.write(count, shape_.maps, k_, shape_.groups, {}, a, b, 0, shape_.maps,
                         epilogue_);
  }

  GeneratedKernel linear() {
    const Expr pixels = shape_.pixels(), plane = numel(shape_.windows.x);
    const Expr image = shape_.channels * shape_.groups * plane;
    const bool is_grouped = shape_.groups != Expr(1);
    std::string of_batch = str("const Index image = ", batch(), ", group = 0;\n(void)group;\n");
    if (is_grouped) {
      const std::string places[] = {"image", "group"};
      const Expr extents[] = {shape_.images, shape_.groups};
      of_batch = source_.decompose(batch(), places, extents);
    }
    of_batch += phase();
    std::string x = str("in0 + image * ", source_.value(image));
    if (is_grouped) x += str(" + group * ", source_.value(shape_.channels * plane));
    const MatrixStackPlace kernel = kernel_of("group");
    const ProductOperand a = all_.is_transposed
                                 ? transposed_kernel(true, kernel)
                                 : writer_.matrix(true, 1, true, kernel, shape_.maps, k_, k_,
                                                  writer_.alignment(1, {k_}));
    const ProductOperand b =
        are_pixels()
            ? writer_.matrix(false, 0, false,
                             {batch(), shape_.images * shape_.groups, shape_.channels * plane},
                             pixels, pixels, k_, writer_.alignment(0, {pixels}))
            : windows(false, x, pixels, image, plane, 1, "false");
    epilogue_.bias_element =
        is_grouped ? str("group * ", source_.value(shape_.maps), " + row") : "row";
    epilogue_.row_axes = static_cast<int>(shape_.windows.axes.size());
    epilogue_.channel_element = epilogue_.bias_element;
    if (has_gaps()) scatter(shape_.windows.y, false);
    return writer_.write(shape_.maps, pixels, k_, shape_.images * shape_.groups * Expr(phases_),
                         of_batch, a, b, shape_.maps * numel(all_.y), pixels, epilogue_);
  }

  const KernelArgs& args_;
  ProductWriter writer_;
  KernelSource& source_;
  ConvolutionShape shape_;
  const Windows all_;  ///< those of the whole convolution; shape_ may have those of a phase
  Expr k_;
  bool by_taps_ = false, by_phases_ = false;
  int64_t phases_ = 1;
  std::string phase_;    ///< arguments of WindowPhase
  bool shifts_ = false;  ///< whether the windows of some phases lie further than those of phase 0
  int64_t piece_ = 0;    ///< elements of a window copied at once, for linear x and channels-last
                         ///< results; else 0
  ProductEpilogue epilogue_;
};

/// How tiles of the convolution's operands get to shared memory. `piece`: patch_piece(), for linear
/// x and channels-last results; else 0.
void set_copies(ProductWork& work, const ConvolutionShape& shape, bool is_last, int64_t piece) {
  const int64_t vector = vector_of(work.type), channels = shape.channels.constant();
  const bool is_product = is_pointwise(shape.windows);
  const bool has_whole_k = work.size.k % vector == 0;
  const auto copy = [](bool is_whole) {
    return is_whole ? OperandCopy::kVectors : OperandCopy::kElements;
  };
  if (!is_last) {
    const bool has_whole_rows = shape.pixels().constant() % vector == 0;
    work.a = copy(has_whole_k), work.b = copy(is_product && has_whole_rows);
    work.has_boxes = is_product && has_whole_k && has_whole_rows;
    return;
  }
  const bool has_whole_pixels = channels % vector == 0;
  work.b = copy(has_whole_k);
  if (is_product || !has_whole_pixels)
    work.a = copy(has_whole_pixels);
  else
    work.a = OperandCopy::kWindows;
  if (piece > 1) work.a = OperandCopy::kWindows;
  // A step of a warpgroup's tile has 128 bytes along k.
  const bool has_whole_steps = work.size.k % (8 * vector) == 0;
  const bool has_boxes =
      is_product || (shape.groups == Expr(1) && shape.windows.axes.size() == 2 && has_whole_steps);
  work.has_boxes = has_boxes && piece == 0 && has_whole_pixels && !shape.windows.is_transposed;
}

/// Lists the candidates of a convolution, or of a transposed one.
class ConvolutionLister {
 public:
  ConvolutionLister(const ConvolutionParams& params, bool is_transposed,
                    const CandidateQuery& query)
      : params_(params),
        is_transposed_(is_transposed),
        query_(query),
        architecture_(target_architecture(query)),
        rates_(gpu_rates(architecture_)),
        shape_(params, is_transposed, sym_shape(query.inputs[0].opt),
               sym_shape(query.inputs[1].opt)),
        k_((shape_.channels * shape_.taps()).constant()),
        is_fixed_(has_fixed_shapes(query)),
        has_fixed_kernel_(query.inputs[1].min == query.inputs[1].max),
        is_product_(!is_transposed && is_pointwise(shape_.windows)) {
    find_epilogue_inputs(shape_, params, query.inputs);
    is_narrow_ = groups() > 1 && std::min(maps(), shape_.channels.constant()) < kNarrowGroup;
    by_taps_ = is_transposed && has_fixed_kernel_ && can_go_by_taps(shape_.windows);
    by_phases_ = is_transposed && has_fixed_kernel_ && can_go_by_phases(shape_.windows);
  }

  std::vector<Candidate> list() {
    for (const DataType type : product_types(query_)) {
      // A transposed convolution has no separate result type for the sums of a quantized type.
      if (is_transposed_ && is_quantized(type)) continue;
      const std::vector<TensorFormat> formats = formats_for(type);
      for (const TensorFormat format : formats)
        if (begin(type, format)) list_tactics(formats.size() > 1);
    }
    return std::move(found_);
  }

 private:
  int64_t images() const { return shape_.images.constant(); }
  int64_t pixels() const { return shape_.pixels().constant(); }
  int64_t maps() const { return shape_.maps.constant(); }
  int64_t groups() const { return shape_.groups.constant(); }
  /// Multiply-adds of all results.
  double products() const {
    return static_cast<double>(query_.outputs[0].opt.numel()) * static_cast<double>(k_);
  }
  bool is_image(DataType type) const {
    return !is_transposed_ && is_fixed_ &&
           is_image_convolution(shape_, params_, type, architecture_);
  }

  std::vector<TensorFormat> formats_for(DataType type) const {
    std::vector<TensorFormat> formats = formats_of(query_, query_.inputs[0].opt.rank());
    // A quantized convolution that tensor cores do not multiply lies between layers that are
    // converted anyway, so it needs only LINEAR.
    if (is_quantized(type) && !is_image(type) &&
        (params_.zero_point != 0 ||
         product_units(type, query_.inputs[1].type.dtype, query_).front() != ProductUnit::kTensor))
      formats.resize(1);
    return formats;
  }

  /// Sets the members for candidates of that type and format. Whether there are any.
  bool begin(DataType type, TensorFormat format) {
    type_ = type, is_last_ = format != TensorFormat::kLINEAR;
    candidate_ = {};
    for (const PortDesc& port : query_.inputs)
      candidate_.inputs.push_back({port.present && port.is_constant ? port.type.dtype : type});
    candidate_.inputs[0] = {type, format};
    candidate_.inputs[1] = {is_quantized(type) ? query_.inputs[1].type.dtype : type, format};
    if (shape_.residual >= 0) candidate_.inputs[shape_.residual] = {type, format};
    candidate_.outputs = {{type_of_product(type), format}};
    if (!set_fused_types(candidate_, params_.fused, query_, type, format)) return false;
    const ProductSize over_pixels = {images() * pixels(), maps(), k_, groups(), is_fixed_};
    const ProductSize over_maps = {maps(), pixels(), k_, images() * groups(), is_fixed_, false};
    work_ = {.size = is_last_ ? over_pixels : over_maps, .type = type};
    set_copies(work_, shape_, is_last_, 0);
    set_bytes(work_, candidate_, query_);
    work_.operations = operations_of(params_.fused, params_.activation);
    return true;
  }

  /// `has_formats`: whether there is a format besides LINEAR.
  void list_tactics(bool has_formats) {
    const bool all = query_.all_tactics;
    if (is_last_ && has_fixed_kernel_) {
      if (add_depthwise() && !all) return;
      add_patches();
    }
    if (is_last_ && is_image(type_)) add_image();
    // Tiles would pad with 0, not with the zero point.
    const bool has_tiles = params_.zero_point == 0 && (all || !is_narrow_ || k_ > kFewProducts);
    if (all || !has_tiles || (is_narrow_ && !is_transposed_) || k_ <= kFewProducts / 4)
      add(kDirectConvolution, "a thread per element",
          simple_ms(work_.bytes, kDirectOverhead * products(), rates_));
    if (!has_tiles || (add_rows() && !all)) return;
    const size_t most = !is_last_ && has_formats && !all ? kLinearTactics : SIZE_MAX;
    if (by_taps_) add_by_taps(most);
    if (by_phases_ && (!by_taps_ || all)) add_by_phases(most);
    if ((by_taps_ || by_phases_) && !all) return;
    const int64_t piece = is_last_ ? patch_piece(shape_, params_, type_) : 0;
    const bool has_pieces = piece > 0 && (all || shape_.channels.constant() <= kFewChannels);
    if (!has_pieces || all) add_tiles("", work_, most);
    if (has_pieces) {
      candidate_.inputs[0].format = candidate_.inputs[1].format = TensorFormat::kLINEAR;
      set_copies(work_, shape_, is_last_, piece);
      add_tiles("patches, ", work_, most);
    }
  }

  void add(int64_t tactic, std::string name, double milliseconds) {
    candidate_.tactic = tactic, candidate_.tactic_name = std::move(name);
    candidate_.estimated_ms = static_cast<float>(milliseconds);
    found_.push_back(candidate_);
  }

  /// Whether there are any, as of the following.
  bool add_depthwise() {
    const std::vector<NamedTactic> tactics = depthwise_tactics(shape_, type_, query_.all_tactics);
    for (const NamedTactic& tactic : tactics)
      add(tactic.number, tactic.name, simple_ms(work_.bytes, products(), rates_));
    return !tactics.empty();
  }

  void add_patches() {
    for (const NamedTactic& tactic :
         patch_tactics(shape_, params_, type_, architecture_, query_.all_tactics))
      add(tactic.number, tactic.name, 0);
  }

  void add_image() {
    const Candidate before = candidate_;
    candidate_.inputs[0].format = candidate_.inputs[1].format = TensorFormat::kLINEAR;
    add(kImageConvolution, "image, 4 warps", 0);
    candidate_ = before;
  }

  bool add_rows() {
    if (!is_last_ || !is_fixed_ || !is_product_ || groups() != 1) return false;
    const std::vector<int64_t> tactics =
        row_product_tactics(type_, candidate_.inputs[1].dtype, work_.size, true, true, false,
                            architecture_, query_.all_tactics);
    for (const int64_t number : tactics) {
      const ProductTactic tactic = product_tactic(number);
      add(number, tactic.name(type_), product_ms(tactic, work_, rates_));
    }
    return !tactics.empty();
  }

  /// Adds the tiles of products, but at most the `most` quickest of each unit. `first` is the
  /// number of the first tactic of this kind.
  void add_tiles(std::string_view prefix, const ProductWork& of, size_t most, int64_t first = 0) {
    for (const ProductUnit unit : product_units(type_, candidate_.inputs[1].dtype, query_)) {
      std::vector<int64_t> tactics =
          product_tactics(type_, unit, of.size, architecture_, query_.all_tactics);
      const auto estimate = [&](int64_t number) {
        return product_ms(product_tactic(number), of, rates_);
      };
      if (tactics.size() > most) {
        std::ranges::stable_sort(tactics, {}, estimate);
        tactics.resize(most);
      }
      for (const int64_t tactic : tactics)
        add(first + tactic, str(prefix, product_tactic(tactic).name(type_)), estimate(tactic));
    }
  }

  void add_by_taps(size_t most) {
    const int64_t elements = numel(shape_.windows.x).constant();
    ProductWork of = work_;
    (is_last_ ? of.size.m : of.size.n) = is_last_ ? images() * elements : elements;
    (is_last_ ? of.size.n : of.size.m) = maps() * shape_.taps().constant();
    of.size.k = shape_.channels.constant();
    of.has_boxes = of.size.k % vector_of(type_) == 0;
    of.a = of.b = of.has_boxes ? OperandCopy::kVectors : OperandCopy::kElements;
    add_tiles(kByTaps, of, most, kConvolutionByTaps);
  }

  void add_by_phases(size_t most) {
    ConvolutionShape phase = shape_;
    phase.windows = windows_of_phase(shape_.windows);
    const int64_t of_phase = phase.pixels().constant();
    ProductWork of = work_;
    (is_last_ ? of.size.m : of.size.n) = is_last_ ? images() * of_phase : of_phase;
    of.size.k = (shape_.channels * phase.taps()).constant();
    for (const WindowAxis& axis : shape_.windows.axes) of.size.batches *= axis.stride;
    set_copies(of, phase, is_last_, 0);
    add_tiles(kByPhases, of, most, kConvolutionByPhases);
  }

  const ConvolutionParams& params_;
  const bool is_transposed_;
  const CandidateQuery& query_;
  const int architecture_;
  const GpuRates& rates_;
  ConvolutionShape shape_;
  const int64_t k_;  ///< products per result
  const bool is_fixed_, has_fixed_kernel_;
  const bool is_product_;   ///< whether x is the matrix a as it is
  bool is_narrow_ = false;  ///< whether tiles of a group are mostly empty
  bool by_taps_ = false, by_phases_ = false;

  // Of the type and the format that are listed.
  DataType type_ = DataType::kFLOAT;
  bool is_last_ = false;  ///< channels-last
  Candidate candidate_;
  ProductWork work_;
  std::vector<Candidate> found_;
};

GeneratedKernel write_convolution(const ConvolutionParams& params, bool is_transposed,
                                  const KernelArgs& args) {
  const int64_t tactic = args.candidate->tactic;
  if (tactic < kDirectConvolution || tactic >= kConvolutionByTaps)
    return ConvolutionWriter(params, is_transposed, args).write();
  KernelSource source(is_transposed ? "deconvolution" : "convolution", args);
  ConvolutionShape shape(params, is_transposed, source.dims(0), source.dims(1));
  shape.is_channels_last = args.inputs[0].type.format != TensorFormat::kLINEAR;
  find_epilogue_inputs(shape, params, args.inputs);
  if (tactic == kDirectConvolution) return generate_direct_convolution(source, shape, params, args);
  if (tactic == kImageConvolution) return generate_image_convolution(source, shape, params, args);
  if (tactic < kPatchConvolution)
    return generate_depthwise_convolution(source, shape, params, args);
  return generate_patch_convolution(source, shape, params, args);
}

std::vector<Candidate> convolution_candidates(const Operator& op, const CandidateQuery& query) {
  return ConvolutionLister(static_cast<const Convolution&>(op).params(), false, query).list();
}
std::optional<GeneratedKernel> generate_convolution(const Operator& op, const KernelArgs& args) {
  return write_convolution(static_cast<const Convolution&>(op).params(), false, args);
}
std::vector<Candidate> deconvolution_candidates(const Operator& op, const CandidateQuery& query) {
  return ConvolutionLister(static_cast<const Deconvolution&>(op).params(), true, query).list();
}
std::optional<GeneratedKernel> generate_deconvolution(const Operator& op, const KernelArgs& args) {
  return write_convolution(static_cast<const Deconvolution&>(op).params(), true, args);
}

}  // namespace

ConvolutionShape::ConvolutionShape(const ConvolutionParams& params, bool is_transposed,
                                   const SymShape& x, const SymShape& kernel)
    : images(x[0]), groups(params.groups) {
  const std::string_view who = is_transposed ? Deconvolution::kKind : Convolution::kKind;
  const int count = static_cast<int>(x.size()) - 2;
  channels = is_transposed ? floor_div(x[1], groups) : kernel[1];
  maps = is_transposed ? kernel[1] : floor_div(kernel[0], groups);
  windows.axes = window_axes(who, count, params.stride, params.dilation, params.pre_padding,
                             params.post_padding, params.padding_mode);
  windows.x.assign(x.begin() + 2, x.end());
  windows.window.assign(kernel.begin() + 2, kernel.end());
  windows.is_transposed = is_transposed;
  const Ints extra = per_axis(who, "output padding", params.output_padding, count, 0, 0);
  const PaddingMode mode = params.padding_mode;
  const bool is_same = mode == PaddingMode::kSAME_UPPER || mode == PaddingMode::kSAME_LOWER;
  for (int i = 0; i < count; ++i) {
    const WindowAxis& axis = windows.axes[i];
    const Expr &in = windows.x[i], &window = windows.window[i];
    if (!is_transposed) {
      const Expr extent = window_count(axis, mode, in, window);
      windows.y.push_back(extent);
      windows.padding.push_back(padding_before(axis, mode, in, window, extent));
      continue;
    }
    const Expr reach = dilated(window, axis.dilation);
    windows.y.push_back(is_same ? in * Expr(axis.stride)
                                : (in - Expr(1)) * Expr(axis.stride) + reach +
                                      Expr(extra[i] - axis.pre - axis.post));
    const Expr surplus = max(reach + Expr(extra[i] - axis.stride), Expr(0));
    const Expr less = floor_div(surplus, Expr(2));
    windows.padding.push_back(!is_same                           ? Expr(axis.pre)
                              : mode == PaddingMode::kSAME_UPPER ? less
                                                                 : surplus - less);
  }
}

namespace {

constexpr std::initializer_list<ProductUnit> kUnits = {ProductUnit::kTensor, ProductUnit::kScalar,
                                                       ProductUnit::kWarpGroup};

std::vector<std::string> deconvolution_tactics() {
  const std::vector<std::string> tiles =
      product_tactic_names(kUnits, {DataType::kHALF, DataType::kFLOAT});
  std::vector<std::string> names = tiles;
  names.emplace_back("a thread per element");
  for (const std::string_view prefix : {kByTaps, kByPhases})
    for (const std::string& name : tiles) names.push_back(str(prefix, name));
  return names;
}

std::vector<std::string> convolution_tactics() {
  const std::vector<std::string> tiles = product_tactic_names(
      kUnits, {DataType::kHALF, DataType::kFP8, DataType::kINT8, DataType::kFLOAT});
  std::vector<std::string> names = tiles;
  names.emplace_back("a thread per element");
  for (const std::string& name : tiles) names.push_back(str("patches, ", name));
  for (const std::string& name : product_tactic_names({ProductUnit::kRows}, {}))
    names.push_back(name);
  names.emplace_back("image, 4 warps");
  for (const std::string& name : depthwise_names()) names.push_back(name);
  for (const std::string& name : patch_names()) names.push_back(name);
  return names;
}

const RegisteredKernels<Convolution> kConvolutionKernels({.candidates = convolution_candidates,
                                                          .generate = generate_convolution,
                                                          .make = nullptr,
                                                          .tactics = convolution_tactics});
const RegisteredKernels<Deconvolution> kDeconvolutionKernels(
    {.candidates = deconvolution_candidates,
     .generate = generate_deconvolution,
     .make = nullptr,
     .tactics = deconvolution_tactics});

}  // namespace

}  // namespace opwright::gpu
