#include "backend/gpu/convolution.h"

#include <numeric>

#include "backend/gpu/kernels.h"
#include "backend/gpu/product.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

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
  return list_convolutions(static_cast<const Convolution&>(op).params(), false, query);
}
std::optional<GeneratedKernel> generate_convolution(const Operator& op, const KernelArgs& args) {
  return write_convolution(static_cast<const Convolution&>(op).params(), false, args);
}
std::vector<Candidate> deconvolution_candidates(const Operator& op, const CandidateQuery& query) {
  return list_convolutions(static_cast<const Deconvolution&>(op).params(), true, query);
}
std::optional<GeneratedKernel> generate_deconvolution(const Operator& op, const KernelArgs& args) {
  return write_convolution(static_cast<const Deconvolution&>(op).params(), true, args);
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
