// Slicing, joining, padding, gathering, resizing: operators that move elements.

#include "operators/movement.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "onnx/importer.h"

namespace opwright::onnx {
namespace {

/// Index `at` of ONNX Slice, which may be negative or far out of bounds, clamped to [low, high] of
/// an axis.
Expr clamp_index(const Expr& at, const Expr& extent, const Expr& low, const Expr& high) {
  Expr index = at;
  if (at.is_constant()) {
    // Exporters write the largest and smallest integers for "to the end".
    constexpr int64_t kFar = std::numeric_limits<int32_t>::max();
    if (at.constant() >= kFar) return high;
    if (at.constant() <= -kFar) return low;
    if (at.constant() < 0) index = extent + at;
  } else {
    // Clamping to the neighbourhood of the axis first keeps sums from overflowing.
    const Expr near = max(Expr(-1) - extent, min(at, extent));
    index = Expr::select(Expr::make(ExprOp::kLess, near, 0), extent + near, near);
  }
  return max(low, min(index, high));
}

/// Clamps the bounds of Slice by layers of scalars.
class ComputedBounds {
 public:
  ComputedBounds(NodeImporter& node, const Expr& extent, bool is_forward)
      : node_(node), extent_(extent), is_forward_(is_forward), length_(node.scalar_of(extent)) {}

  /// Clamps bound `i` of the node's input `input`; `low` is its least value.
  Tensor* clamped(int input, int64_t i, int64_t low) {
    const Expr high = is_forward_ ? extent_ : extent_ - 1;
    if (const std::optional<Expr> known = node_.known_element(node_.input(input), i))
      return node_.scalar_of(clamp_index(*known, extent_, low, high));
    Tensor* index = node_.elements_of(node_.input(input))[static_cast<size_t>(i)];
    Tensor* is_negative = node_.elementwise(ElementWiseOperation::kLESS, index, 0.0);
    index = node_.select(is_negative, node_.elementwise(ElementWiseOperation::kSUM, index, length_),
                         index);
    index = node_.elementwise(ElementWiseOperation::kMIN, index, node_.scalar_of(high));
    return node_.elementwise(ElementWiseOperation::kMAX, index, static_cast<double>(low));
  }

 private:
  NodeImporter& node_;
  const Expr extent_;
  const bool is_forward_;
  Tensor* const length_;
};

/// Slices by bounds that data decides. Steps are constant.
void slice_computed(NodeImporter& node, Tensor* x, const Ints& axes, const Ints& steps) {
  using Op = ElementWiseOperation;
  for (const int bounds : {1, 2})
    if (node.input(bounds)->dims() != SymShape{static_cast<int64_t>(axes.size())})
      node.error("starts, ends, axes and steps differ in length");
  if (steps.size() != axes.size()) node.error("starts, ends, axes and steps differ in length");
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t step = steps[i], place = static_cast<int64_t>(i);
    if (step == 0) node.error("a step is 0");
    const Expr extent = x->dims()[static_cast<size_t>(axes[i])];
    ComputedBounds bounds(node, extent, step > 0);
    Tensor* start = bounds.clamped(1, place, 0);
    Tensor* end = bounds.clamped(2, place, step > 0 ? 0 : -1);
    Tensor* count = node.elementwise(Op::kSUB, start, end);
    count = node.elementwise(Op::kFLOOR_DIV, count, static_cast<double>(step));
    count = node.elementwise(Op::kMAX, node.unary(UnaryOperation::kNEG, count), 0.0);
    const Expr most = ceil_div(extent, step > 0 ? Expr(step) : Expr(0) - step);
    Tensor* indices = node.count_up(node.extent(count, "the number of elements", most));
    indices = node.elementwise(Op::kPROD, indices, static_cast<double>(step));
    GatherParams params;
    params.axis = axes[i];
    x = node.add<Gather>(params, {x, node.elementwise(Op::kSUM, indices, start)});
  }
  node.set_output(0, x);
}

void slice_node(NodeImporter& node) {
  Tensor* x = node.input(0);
  const int rank = x->rank();
  std::vector<Expr> starts, ends;
  Ints axes, steps;
  if (node.opset() < 10) {
    for (int64_t v : node.get_ints("starts")) starts.emplace_back(v);
    for (int64_t v : node.get_ints("ends")) ends.emplace_back(v);
    axes = node.get_ints("axes");
  } else {
    if (Tensor* given = node.optional_input(3)) axes = node.constant_ints(given, "axes");
    if (Tensor* given = node.optional_input(4)) steps = node.constant_ints(given, "steps");
    if (!node.is_known(node.input(1)) || !node.is_known(node.input(2))) {
      const Expr count = numel(node.input(1)->dims());
      const auto slices = static_cast<size_t>(count.is_constant() ? count.constant() : 0);
      if (axes.empty()) {
        axes.resize(slices);
        std::iota(axes.begin(), axes.end(), 0);
      }
      if (steps.empty()) steps.assign(slices, 1);
      return slice_computed(node, x, node.axes(axes, rank), steps);
    }
    starts = node.values(node.input(1), "starts");
    ends = node.values(node.input(2), "ends");
  }
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (starts.size() != ends.size() || starts.size() != axes.size() || starts.size() != steps.size())
    node.error("starts, ends, axes and steps differ in length");
  axes = node.axes(axes, rank);
  std::vector<Expr> start(rank, 0), size(x->dims().begin(), x->dims().end());
  Ints stride(rank, 1);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = axes[i], step = steps[i];
    const Expr& extent = x->dims()[axis];
    if (step == 0) node.error("a step is 0");
    if (step > 0) {
      start[axis] = clamp_index(starts[i], extent, 0, extent);
      const Expr end = clamp_index(ends[i], extent, 0, extent);
      size[axis] = max(ceil_div(end - start[axis], step), 0);
    } else {
      start[axis] = clamp_index(starts[i], extent, 0, extent - 1);
      const Expr end = clamp_index(ends[i], extent, -1, extent - 1);
      // An empty axis has no element 0 at which to start.
      size[axis] = min(max(ceil_div(start[axis] - end, Expr(0) - step), 0), extent);
    }
    stride[axis] = step;
  }
  node.set_output(0, node.slice(x, start, size, stride));
}

void concat(NodeImporter& node) {
  std::vector<Tensor*> inputs;
  for (int i = 0; i < node.num_inputs(); ++i) inputs.push_back(node.input(i));
  const AttributeProto* axis = node.attribute("axis", AttributeProto::Type::kInt);
  if (axis == nullptr) node.error("attribute 'axis' is missing");
  node.set_output(0, node.concatenate(inputs, node.axis(axis->i, node.input(0)->rank())));
}

void split(NodeImporter& node) {
  Tensor* x = node.input(0);
  const int axis = node.axis(node.get_int("axis", 0), x->rank());
  const int count = node.num_outputs();
  std::vector<Expr> extents;
  if (node.opset() >= 13) {
    if (Tensor* given = node.optional_input(1)) {
      const std::vector<Expr> most(static_cast<size_t>(count), x->dims()[axis]);
      extents = node.extents(given, "split", most);
    }
  } else {
    for (int64_t v : node.get_ints("split")) extents.emplace_back(v);
  }
  if (extents.empty()) {
    // The parts are equal, or the last one is smaller if the extent does not divide (opset 18).
    const Expr part = ceil_div(x->dims()[axis], count);
    for (int i = 0; i + 1 < count; ++i) extents.push_back(part);
    extents.push_back(x->dims()[axis] - part * (count - 1));
  }
  if (static_cast<int>(extents.size()) != count)
    node.error("split has ", extents.size(), " parts for ", count, " outputs");
  Expr offset = 0;
  for (int i = 0; i < count; ++i) {
    if (!node.is_read(i)) {  // skips unread parts; there may be very many
      offset = offset + extents[i];
      node.set_output(i, Value());
      continue;
    }
    std::vector<Expr> start(x->rank(), 0), size(x->dims().begin(), x->dims().end());
    start[axis] = offset;
    size[axis] = extents[i];
    offset = offset + extents[i];
    node.set_output(i, node.slice(x, start, size, Ints(x->rank(), 1)));
  }
  if (offset.is_constant() && x->dims()[axis].is_constant() && offset != x->dims()[axis])
    node.error("the parts have ", offset, " elements along axis ", axis, "; expected ",
               x->dims()[axis], " as in the input");
}

void gather(NodeImporter& node, GatherMode mode) {
  GatherParams params;
  params.mode = mode;
  Tensor* data = node.input(0);
  if (mode == GatherMode::kND)
    params.num_elementwise_dims = node.get_int("batch_dims", 0);
  else
    params.axis = node.axis(node.get_int("axis", 0), data->rank());
  node.set_output(0, node.add<Gather>(params, {data, node.input(1)}));
}

void pad(NodeImporter& node) {
  Tensor* x = node.input(0);
  const int rank = x->rank();
  const std::string mode = node.get_text("mode", "constant");
  const std::unordered_map<std::string, SampleMode> modes = {{"constant", SampleMode::kFILL},
                                                             {"reflect", SampleMode::kREFLECT},
                                                             {"edge", SampleMode::kCLAMP},
                                                             {"wrap", SampleMode::kWRAP}};
  auto found = modes.find(mode);
  if (found == modes.end())
    node.error("mode is '", mode, "'; expected constant, reflect, edge or wrap");
  std::vector<Expr> pads;
  Tensor* fill = nullptr;
  Ints axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (node.opset() < 11) {
    for (int64_t v : node.get_ints("pads")) pads.emplace_back(v);
    const float value = node.get_float("value", 0);
    if (value != 0) fill = node.scalar(value, x->dtype());
  } else {
    pads = node.extents(node.input(1), "pads");
    fill = node.optional_input(2);
    if (Tensor* given = node.optional_input(3))
      axes = node.axes(node.constant_ints(given, "axes"), rank);
  }
  if (pads.size() != 2 * axes.size())
    node.error("pads has ", pads.size(), " values; expected ", 2 * axes.size());
  std::vector<Expr> start(rank, 0), size(x->dims().begin(), x->dims().end());
  const auto takes_away = [](const Expr& pad) { return !pad.is_constant() || pad.constant() < 0; };
  if (found->second == SampleMode::kWRAP && std::ranges::any_of(pads, takes_away)) {
    // As in ONNX Runtime, wrapping does not reach elements that negative pads remove.
    for (size_t i = 0; i < pads.size(); ++i) {
      if (!takes_away(pads[i])) continue;
      const auto axis = static_cast<size_t>(axes[i % axes.size()]);
      const Expr less = max(Expr(0) - pads[i], 0);
      size[axis] = max(size[axis] - less, 0);
      if (i < axes.size()) start[axis] = less;
      pads[i] = max(pads[i], 0);
    }
    x = node.slice(x, start, size, Ints(rank, 1), SampleMode::kFILL);
    start.assign(static_cast<size_t>(rank), 0);
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    start[axes[i]] = Expr(0) - pads[i];
    size[axes[i]] = size[axes[i]] + pads[i] + pads[i + axes.size()];
  }
  if (found->second != SampleMode::kFILL) fill = nullptr;
  node.set_output(0, node.slice(x, start, size, Ints(rank, 1), found->second, fill));
}

void tile(NodeImporter& node) {
  Tensor* x = node.input(0);
  const std::vector<Expr> repeats = node.extents(node.input(1), "repeats");
  if (static_cast<int>(repeats.size()) != x->rank())
    node.error("repeats has ", repeats.size(), " values; expected ", x->rank());
  std::vector<Expr> size;
  for (int i = 0; i < x->rank(); ++i) size.push_back(x->dims()[i] * repeats[i]);
  node.set_output(0, node.slice(x, std::vector<Expr>(x->rank(), 0), size, Ints(x->rank(), 1),
                                SampleMode::kWRAP));
}

void depth_to_space(NodeImporter& node) {
  Tensor* x = node.input(0);
  if (x->rank() != 4) node.error("the input has rank ", x->rank(), "; expected 4");
  const int64_t block = node.get_int("blocksize", 0);
  if (block < 1 || block > INT32_MAX) node.error("blocksize is ", block, "; expected at least 1");
  const SymShape d = x->dims();
  const Expr channels = floor_div(d[1], block * block);
  const bool crd = node.get_text("mode", "DCR") == "CRD";
  const SymShape split = crd ? SymShape{d[0], channels, block, block, d[2], d[3]}
                             : SymShape{d[0], block, block, channels, d[2], d[3]};
  Tensor* y =
      node.transpose(node.reshape(x, split), crd ? Ints{0, 1, 4, 2, 5, 3} : Ints{0, 3, 4, 1, 5, 2});
  const SymShape joined = {d[0], channels, d[2] * block, d[3] * block};
  node.set_output(0, node.reshape(y, joined));
}

void space_to_depth(NodeImporter& node) {
  Tensor* x = node.input(0);
  if (x->rank() != 4) node.error("the input has rank ", x->rank(), "; expected 4");
  const int64_t block = node.get_int("blocksize", 0);
  if (block < 1 || block > INT32_MAX) node.error("blocksize is ", block, "; expected at least 1");
  const SymShape d = x->dims();
  const Expr height = floor_div(d[2], block), width = floor_div(d[3], block);
  const SymShape split = {d[0], d[1], height, block, width, block};
  const bool crd = node.get_text("mode", "DCR") == "CRD";
  Tensor* y =
      node.transpose(node.reshape(x, split), crd ? Ints{0, 1, 3, 5, 2, 4} : Ints{0, 3, 5, 1, 2, 4});
  const SymShape joined = {d[0], d[1] * (block * block), height, width};
  node.set_output(0, node.reshape(y, joined));
}

}  // namespace

void add_movement(NodeTable& table) {
  table["Slice"] = slice_node;
  table["Concat"] = concat;
  table["Split"] = split;
  table["Gather"] = [](NodeImporter& node) { gather(node, GatherMode::kDEFAULT); };
  table["GatherElements"] = [](NodeImporter& node) { gather(node, GatherMode::kELEMENT); };
  table["GatherND"] = [](NodeImporter& node) { gather(node, GatherMode::kND); };
  table["Pad"] = pad;
  table["Tile"] = tile;
  table["DepthToSpace"] = depth_to_space;
  table["SpaceToDepth"] = space_to_depth;
}

}  // namespace opwright::onnx
