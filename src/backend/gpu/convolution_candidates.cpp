#include <algorithm>

#include "backend/candidates.h"
#include "backend/device.h"
#include "backend/gpu/convolution.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/product_cost.h"
#include "backend/gpu/row_product.h"
#include "base/types.h"
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
/// With fewer channels in a group, tiles are mostly empty.
constexpr int64_t kNarrowGroup = 16;
/// The most phases of a transposed convolution that are computed as convolutions.
constexpr int64_t kMostPhases = 4096;
/// Prefixes of the names of tactics; see kConvolutionByTaps.
constexpr std::string_view kByTaps = "by taps, ", kByPhases = "by phases, ";
constexpr std::string_view kPatches = "patches, ";
constexpr std::string_view kDirectName = "a thread per element", kImageName = "image, 4 warps";

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

/// Sets how tiles of the convolution's operands get to shared memory. `piece`: patch_piece(), for
/// linear x and channels-last results; else 0.
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

/// A convolution at the profile's optimum, where all extents are constant.
struct ConvolutionQuery {
  const ConvolutionParams& params;
  const CandidateQuery& query;
  ConvolutionShape shape;
  int architecture;
  int64_t images, pixels, maps, channels, groups, k;
  bool is_fixed, has_fixed_kernel;  ///< whether all extents, and those of the kernel, are fixed
  bool is_product;                  ///< whether it is a matrix product of pixels and maps
  bool by_taps, by_phases;          ///< ways in which it can be computed; see kConvolutionByTaps
  bool is_narrow;                   ///< whether its groups have few channels

  ConvolutionQuery(const ConvolutionParams& of, bool is_transposed, const CandidateQuery& asked)
      : params(of),
        query(asked),
        shape(of, is_transposed, sym_shape(asked.inputs[0].opt), sym_shape(asked.inputs[1].opt)),
        architecture(target_architecture(asked)),
        images(shape.images.constant()),
        pixels(shape.pixels().constant()),
        maps(shape.maps.constant()),
        channels(shape.channels.constant()),
        groups(shape.groups.constant()),
        k((shape.channels * shape.taps()).constant()),
        is_fixed(has_fixed_shapes(asked)),
        has_fixed_kernel(asked.inputs[1].min == asked.inputs[1].max),
        is_product(!is_transposed && is_pointwise(shape.windows)),
        by_taps(has_fixed_kernel && can_go_by_taps(shape.windows)),
        by_phases(has_fixed_kernel && can_go_by_phases(shape.windows)),
        is_narrow(groups > 1 && std::min(maps, channels) < kNarrowGroup) {
    find_epilogue_inputs(shape, of, asked.inputs);
  }

  bool is_transposed() const { return shape.windows.is_transposed; }
  bool is_image(DataType type) const {
    return !is_transposed() && is_fixed && is_image_convolution(shape, params, type, architecture);
  }
};

/// Lists the candidates of a convolution that have one type and one format.
class FormatLister {
 public:
  /// `has_other_format`: whether candidates of this type may have another format.
  FormatLister(const ConvolutionQuery& of, DataType type, TensorFormat format,
               bool has_other_format, std::vector<Candidate>& found)
      : of_(of),
        all_(of.query.all_tactics),
        type_(type),
        format_(format),
        is_last_(format != TensorFormat::kLINEAR),
        has_other_format_(has_other_format),
        rates_(gpu_rates(of.architecture)),
        found_(found) {}

  void list() {
    if (!set_ports()) return;
    set_work();
    if (add_depthwise() && !all_) return;
    add_patches();
    add_image();
    // Tiles would pad with 0, not with the zero point.
    const bool has_tiles =
        of_.params.zero_point == 0 && (all_ || !of_.is_narrow || of_.k > kFewProducts);
    const bool is_direct_fast =
        (of_.is_narrow && !of_.is_transposed()) || of_.k <= kFewProducts / 4;
    if (all_ || !has_tiles || is_direct_fast)
      add(kDirectConvolution, kDirectName, direct_ms(kDirectOverhead));
    if (!has_tiles) return;
    if (add_row_products() && !all_) return;
    if (add_scattered_products() && !all_) return;
    add_products();
  }

 private:
  bool set_ports() {
    const CandidateQuery& query = of_.query;
    for (const PortDesc& port : query.inputs)
      candidate_.inputs.push_back({port.present && port.is_constant ? port.type.dtype : type_});
    candidate_.inputs[0] = {type_, format_};
    candidate_.inputs[1] = {is_quantized(type_) ? query.inputs[1].type.dtype : type_, format_};
    if (of_.shape.residual >= 0) candidate_.inputs[of_.shape.residual] = {type_, format_};
    candidate_.outputs = {{type_of_product(type_), format_}};
    return set_fused_types(candidate_, of_.params.fused, query, type_, format_);
  }

  void set_work() {
    const ProductSize over_pixels = {
        of_.images * of_.pixels, of_.maps, of_.k, of_.groups, of_.is_fixed, !of_.is_transposed()};
    const ProductSize over_maps = {of_.maps,     of_.pixels, of_.k, of_.images * of_.groups,
                                   of_.is_fixed, false};
    work_.size = is_last_ ? over_pixels : over_maps;
    work_.type = type_;
    set_copies(work_, of_.shape, is_last_, 0);
    set_bytes(work_, candidate_, of_.query);
    work_.operations = operations_of(of_.params.fused, of_.params.activation);
  }

  void add(int64_t tactic, std::string_view name, double milliseconds) {
    candidate_.tactic = tactic, candidate_.tactic_name = name;
    candidate_.estimated_ms = static_cast<float>(milliseconds);
    found_.push_back(candidate_);
  }

  double direct_ms(double overhead) const {
    const double elements = static_cast<double>(of_.query.outputs[0].opt.numel());
    return simple_ms(work_.bytes, overhead * elements * static_cast<double>(of_.k), rates_);
  }

  /// Returns whether there are such tactics. So do the functions below.
  bool add_depthwise() {
    if (!is_last_ || !of_.has_fixed_kernel) return false;
    const std::vector<NamedTactic> tactics = depthwise_tactics(of_.shape, type_, all_);
    for (const NamedTactic& tactic : tactics) add(tactic.number, tactic.name, direct_ms(1));
    return !tactics.empty();
  }

  void add_patches() {
    if (!is_last_ || !of_.has_fixed_kernel) return;
    for (const NamedTactic& tactic :
         patch_tactics(of_.shape, of_.params, type_, of_.architecture, all_))
      add(tactic.number, tactic.name, 0);
  }

  void add_image() {
    if (!is_last_ || !of_.is_image(type_)) return;
    Candidate image = candidate_;
    image.inputs[0].format = image.inputs[1].format = TensorFormat::kLINEAR;
    image.tactic = kImageConvolution, image.tactic_name = kImageName;
    image.estimated_ms = 0;
    found_.push_back(image);
  }

  bool add_row_products() {
    if (!is_last_ || !of_.is_fixed || !of_.is_product || of_.groups != 1) return false;
    const std::vector<int64_t> tactics = row_product_tactics(
        type_, candidate_.inputs[1].dtype, work_.size, true, true, false, of_.architecture, all_);
    for (const int64_t number : tactics) add_product(number, "", work_, 0);
    return !tactics.empty();
  }

  /// Adds the products whose results are scattered.
  bool add_scattered_products() {
    if (of_.by_taps) add_products_by_taps();
    if (of_.by_phases && (!of_.by_taps || all_)) add_products_by_phases();
    return of_.by_taps || of_.by_phases;
  }

  void add_products_by_taps() {
    const int64_t elements = numel(of_.shape.windows.x).constant();
    ProductWork work = work_;
    (is_last_ ? work.size.m : work.size.n) = is_last_ ? of_.images * elements : elements;
    (is_last_ ? work.size.n : work.size.m) = of_.maps * of_.shape.taps().constant();
    work.size.k = of_.channels;
    work.has_boxes = work.size.k % vector_of(type_) == 0;
    work.a = work.b = work.has_boxes ? OperandCopy::kVectors : OperandCopy::kElements;
    add_tiles(kByTaps, work, kConvolutionByTaps);
  }

  void add_products_by_phases() {
    ConvolutionShape phase = of_.shape;
    phase.windows = windows_of_phase(of_.shape.windows);
    const int64_t pixels = phase.pixels().constant();
    ProductWork work = work_;
    (is_last_ ? work.size.m : work.size.n) = is_last_ ? of_.images * pixels : pixels;
    work.size.k = (of_.shape.channels * phase.taps()).constant();
    for (const WindowAxis& axis : of_.shape.windows.axes) work.size.batches *= axis.stride;
    set_copies(work, phase, is_last_, 0);
    add_tiles(kByPhases, work, kConvolutionByPhases);
  }

  void add_products() {
    const int64_t piece = is_last_ ? patch_piece(of_.shape, of_.params, type_) : 0;
    const bool has_pieces = piece > 0 && (all_ || of_.channels <= kFewChannels);
    if (!has_pieces || all_) add_tiles("", work_, 0);
    if (!has_pieces) return;
    candidate_.inputs[0].format = candidate_.inputs[1].format = TensorFormat::kLINEAR;
    set_copies(work_, of_.shape, is_last_, piece);
    add_tiles(kPatches, work_, 0);
  }

  /// Adds the tiles of a product. `first` is added to the numbers of their tactics.
  void add_tiles(std::string_view prefix, const ProductWork& work, int64_t first) {
    for (const ProductUnit unit : product_units(type_, candidate_.inputs[1].dtype, of_.query)) {
      std::vector<int64_t> tactics =
          product_tactics(type_, unit, work.size, of_.architecture, all_);
      if (!is_last_ && has_other_format_ && tactics.size() > kLinearTactics && !all_) {
        std::ranges::stable_sort(tactics, {}, [&](int64_t number) {
          return product_ms(product_tactic(number), work, rates_);
        });
        tactics.resize(kLinearTactics);
      }
      for (const int64_t number : tactics) add_product(number, prefix, work, first);
    }
  }

  void add_product(int64_t number, std::string_view prefix, const ProductWork& work,
                   int64_t first) {
    const ProductTactic tactic = product_tactic(number);
    add(first + number, str(prefix, tactic.name(type_)), product_ms(tactic, work, rates_));
  }

  const ConvolutionQuery& of_;
  const bool all_;
  const DataType type_;
  const TensorFormat format_;
  const bool is_last_, has_other_format_;
  const GpuRates& rates_;
  std::vector<Candidate>& found_;
  Candidate candidate_;
  ProductWork work_;
};

/// The formats of x, the kernel tensor and y that may pay for a type.
std::vector<TensorFormat> formats_of_type(const ConvolutionQuery& of, DataType type) {
  std::vector<TensorFormat> formats = formats_of(of.query, of.query.inputs[0].opt.rank());
  // A quantized convolution that tensor cores do not multiply lies between layers that are
  // converted anyway, so it needs only LINEAR.
  const auto has_tensor_cores = [&] {
    return product_units(type, of.query.inputs[1].type.dtype, of.query).front() ==
           ProductUnit::kTensor;
  };
  if (is_quantized(type) && !of.is_image(type) &&
      (of.params.zero_point != 0 || !has_tensor_cores()))
    formats.resize(1);
  return formats;
}

void add_names(std::vector<std::string>& names, std::string_view prefix,
               const std::vector<std::string>& more) {
  for (const std::string& name : more) names.push_back(str(prefix, name));
}

}  // namespace

std::vector<Candidate> list_convolutions(const ConvolutionParams& params, bool is_transposed,
                                         const CandidateQuery& query) {
  const ConvolutionQuery of(params, is_transposed, query);
  std::vector<Candidate> found;
  for (const DataType type : product_types(query)) {
    // A transposed convolution has no separate result type for the sums of a quantized type.
    if (is_transposed && is_quantized(type)) continue;
    const std::vector<TensorFormat> formats = formats_of_type(of, type);
    for (const TensorFormat format : formats)
      FormatLister(of, type, format, formats.size() > 1, found).list();
  }
  return found;
}

std::vector<std::string> deconvolution_tactics() {
  // The kernel tensor lies along the maps. Warpgroups multiply TF32 along k only.
  std::vector<std::string> tiles =
      product_tactic_names({ProductUnit::kTensor, ProductUnit::kWarpGroup}, {DataType::kHALF});
  add_names(tiles, "",
            product_tactic_names({ProductUnit::kTensor, ProductUnit::kScalar}, {DataType::kFLOAT}));
  std::vector<std::string> names = tiles;
  names.emplace_back(kDirectName);
  add_names(names, kByTaps, tiles);
  add_names(names, kByPhases, tiles);
  return names;
}

std::vector<std::string> convolution_tactics() {
  const std::vector<std::string> tiles =
      product_tactic_names({ProductUnit::kTensor, ProductUnit::kScalar, ProductUnit::kWarpGroup},
                           {DataType::kHALF, DataType::kFP8, DataType::kINT8, DataType::kFLOAT});
  std::vector<std::string> names = tiles;
  names.emplace_back(kDirectName);
  add_names(names, kPatches, tiles);
  add_names(names, "", product_tactic_names({ProductUnit::kRows}, {}));
  names.emplace_back(kImageName);
  add_names(names, "", depthwise_names());
  add_names(names, "", patch_names());
  return names;
}

}  // namespace opwright::gpu
