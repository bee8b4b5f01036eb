// Reductions, softmax, top-k.

#include "operators/reduce.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "onnx/importer.h"

namespace opwright::onnx {
namespace {

Ints all_axes(int rank) {
  Ints axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

/// A function that a Reduce* node applies before or after the reduction itself.
using Map = Tensor* (*)(NodeImporter&, Tensor*);
Tensor* keep(NodeImporter&, Tensor* x) { return x; }
Tensor* absolute(NodeImporter& node, Tensor* x) { return node.unary(UnaryOperation::kABS, x); }
Tensor* square(NodeImporter& node, Tensor* x) {
  return node.elementwise(ElementWiseOperation::kPROD, x, x);
}
/// A function of real numbers. Results for integers are truncated.
Tensor* real(NodeImporter& node, UnaryOperation op, Tensor* x) {
  if (is_floating(x->dtype())) return node.unary(op, x);
  return node.cast(node.unary(op, node.cast(x, DataType::kFLOAT)), x->dtype());
}
Tensor* root(NodeImporter& node, Tensor* x) { return real(node, UnaryOperation::kSQRT, x); }
Tensor* logarithm(NodeImporter& node, Tensor* x) { return real(node, UnaryOperation::kLOG, x); }

/// The axes of a Reduce* node, from the opset `since` on an input; nullopt where nothing is
/// reduced.
std::optional<Ints> reduced_axes(NodeImporter& node, int rank, int64_t since) {
  const Tensor* given = node.opset() >= since ? node.optional_input(1) : nullptr;
  const bool is_empty = given != nullptr && numel(given->dims()) == Expr(0);
  std::optional<Ints> axes = is_empty ? Ints() : node.axes_of(rank, since, 1);
  if (axes && !axes->empty()) return axes;
  if (rank == 0 || (node.opset() >= since && node.get_int("noop_with_empty_axes", 0) != 0))
    return std::nullopt;
  return all_axes(rank);
}

/// Reduces along the axes.
using Reduction = std::function<Tensor*(Tensor* x, const Ints& axes, bool keep_dims)>;

/// The axes of a Reduce* node if data decides them; else null.
Tensor* axes_from_data(NodeImporter& node, int64_t since) {
  Tensor* axes = node.opset() >= since ? node.optional_input(1) : nullptr;
  if (axes == nullptr || !node.known_elements(axes).empty() || numel(axes->dims()) == Expr(0))
    return nullptr;
  const auto is_constant = [](const Expr& value) { return value.is_constant(); };
  const auto& values = axes->info().values;
  if (values && std::ranges::all_of(*values, is_constant)) return nullptr;
  if (is_floating(axes->dtype()) || axes->rank() > 1)
    node.error("axes ('", axes->name(), "') has the type ", opwright::name(axes->dtype()),
               " and rank ", axes->rank(), "; expected a vector of integers");
  return axes;
}

/// Reduces along axes that data decides. Along each axis, the result of a reduction replaces all
/// elements, if the axis is one of these. The repeated results are cut off in the end.
class ReductionByData {
 public:
  ReductionByData(NodeImporter& node, Tensor* x, Tensor* axes)
      : node_(node),
        x_(x),
        rank_(x->rank()),
        count_(numel(axes->dims())),
        dims_(node.network().add_values({x->dims().begin(), x->dims().end()})) {
    const SymShape row = {1, count_};
    axes = node.reshape(node.cast(axes, DataType::kINT64), row);
    Tensor* from_front = node.elementwise(Op::kSUM, axes, static_cast<double>(rank_));
    axes = node.select(node.elementwise(Op::kLESS, axes, 0.0), from_front, axes);
    Tensor* hits = node.elementwise(Op::kEQUAL, node.unsqueeze(node.count_up(rank_), {1}), axes);
    is_reduced_ = is_any(hits, 1);
    if (!count_.is_constant() && node.get_int("noop_with_empty_axes", 0) == 0)
      is_reduced_ = node.elementwise(
          Op::kOR, is_reduced_,
          node.elementwise(Op::kEQUAL, node.unsqueeze(node.scalar_of(count_), {0}), 0.0));
    is_wrong_ = is_any(node.elementwise(Op::kOR, node.elementwise(Op::kLESS, axes, 0.0),
                                        node.elementwise(Op::kGREATER, axes, rank_ - 1.0)),
                       1);
  }

  /// Rounds only the final result, as with constant axes. Between the axes, 16-bit types are FP32,
  /// and a mean of integers is a sum that is divided in the end.
  Tensor* run(ReduceOperation op, bool keep_dims) {
    const DataType type = x_->dtype();
    const bool is_divided = op == ReduceOperation::kAVG && !is_floating(type);
    if (is_divided) op = ReduceOperation::kSUM;
    Tensor* x = node_.cast(x_, is_floating(type) ? DataType::kFLOAT
                               : is_divided      ? DataType::kINT64
                                                 : type);
    Tensor* y = repeated(x, [&](Tensor* each, const Ints& axes, bool keep) {
      return node_.reduce(op, each, axes, keep);
    });
    if (is_divided) y = node_.elementwise(Op::kDIV, y, elements_of_each());
    return cut(node_.cast(y, type), keep_dims);
  }
  Tensor* run(const Reduction& along, bool keep_dims) {
    return cut(repeated(x_, along), keep_dims);
  }

 private:
  using Op = ElementWiseOperation;

  /// As many elements as x has. Along reduced axes all of them are the same.
  Tensor* repeated(Tensor* y, const Reduction& along) {
    const SymShape dims = x_->dims();
    for (int i = 0; i < rank_; ++i) {
      if (dims[static_cast<size_t>(i)] == Expr(1)) continue;
      Tensor* is_here = node_.reshape(node_.slice_at(is_reduced_, 0, i), scalar());
      y = node_.select(is_here, along(y, {i}, true), with_room(y, i));
    }
    return y;
  }

  /// The number of elements per result; 1 where a result has none.
  Tensor* elements_of_each() {
    Tensor* extents = node_.select(is_reduced_, dims_, one());
    Tensor* count = node_.reduce(ReduceOperation::kPROD, extents, {0}, true);
    return node_.reshape(node_.elementwise(Op::kMAX, count, 1.0), scalar());
  }

  Tensor* cut(Tensor* y, bool keep_dims) {
    const SymShape dims = x_->dims();
    // A wrong axis becomes an extent that no run has.
    Tensor* extents = node_.select(is_reduced_, one(), dims_);
    extents = node_.select(is_wrong_, node_.unsqueeze(node_.scalar_of(-1), {0}), extents);
    std::vector<Expr> size = dims;
    for (int i = 0; i < rank_; ++i)
      if (Expr& extent = size[static_cast<size_t>(i)]; !(extent == Expr(1)))
        extent = node_.extent(node_.slice_at(extents, 0, i), "axes", max(extent, 1));
    y = node_.slice(y, std::vector<Expr>(size.size(), 0), size);
    return keep_dims ? y : squeezed(y, extents);
  }

  /// Adds an element to an empty axis, for the result of reducing nothing.
  Tensor* with_room(Tensor* y, int axis) {
    std::vector<Expr> size(y->dims().begin(), y->dims().end());
    Expr& extent = size[static_cast<size_t>(axis)];
    if (extent.is_constant() && extent.constant() > 0) return y;
    extent = max(extent, 1);
    return node_.slice(y, std::vector<Expr>(size.size(), 0), size, {}, SampleMode::kFILL);
  }

  SymShape scalar() const { return SymShape(static_cast<size_t>(rank_), 1); }
  Tensor* one() { return node_.unsqueeze(node_.scalar_of(1), {0}); }
  /// Whether any element along an axis is set. Removes the axis.
  Tensor* is_any(Tensor* x, int axis) {
    Tensor* sum =
        node_.reduce(ReduceOperation::kSUM, node_.cast(x, DataType::kINT64), {axis}, false);
    return node_.elementwise(Op::kGREATER, sum, 0.0);
  }

  /// Removes the reduced axes. Their number is the number of given axes.
  Tensor* squeezed(Tensor* y, Tensor* extents) {
    if (!count_.is_constant())
      node_.error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_INPUT, "there are ", count_.str(),
                     " axes, which decide the rank of the result (keepdims is 0), and a rank has "
                     "to be known: give axes a fixed extent, or set keepdims to 1");
    const int64_t left = rank_ - count_.constant();
    if (left < 0) node_.error("there are ", count_.str(), " axes, but the input has rank ", rank_);
    SymShape shape;
    if (left > 0) {
      // The remaining axes, in their order.
      TopKParams first;
      first.k = left, first.axes = 1, first.indices_type = DataType::kINT64;
      Tensor* stays = node_.cast(node_.unary(UnaryOperation::kNOT, is_reduced_), DataType::kINT32);
      Tensor* places = node_.network().add<TopK>(first, {stays}, node_.next_name())->output(1);
      Expr most = 1;
      for (const Expr& extent : x_->dims()) most = max(most, extent);
      const std::vector<Expr> bounds(static_cast<size_t>(left), most);
      shape = node_.extents(node_.add<Gather>({}, {extents, places}), "axes", bounds);
    }
    return node_.reshape(y, shape);
  }

  NodeImporter& node_;
  Tensor* const x_;
  const int rank_;
  const Expr count_;
  Tensor* const dims_;
  Tensor *is_reduced_ = nullptr, *is_wrong_ = nullptr;
};

bool keeps_dims(NodeImporter& node) { return node.get_int("keepdims", 1) != 0; }

template <ReduceOperation op, int since, Map before = keep, Map after = keep>
void reduce(NodeImporter& node) {
  Tensor* y = before(node, node.input(0));
  if (Tensor* by_data = axes_from_data(node, since))
    y = ReductionByData(node, y, by_data).run(op, keeps_dims(node));
  else if (const std::optional<Ints> axes = reduced_axes(node, y->rank(), since))
    y = node.reduce(op, y, *axes, keeps_dims(node));
  node.set_output(0, after(node, y));
}

/// m + log(sum(exp(x - m))) with the maximum m, so that nothing overflows.
Tensor* log_sum_exp(NodeImporter& node, Tensor* x, const Ints& axes, bool keep_dims) {
  Tensor* peak = node.reduce(ReduceOperation::kMAX, x, axes, true);
  // Infinity minus infinity is NaN, so an infinite maximum is not subtracted.
  peak = node.select(node.unary(UnaryOperation::kISINF, peak), node.scalar(0, x->dtype()), peak);
  Tensor* scaled =
      node.unary(UnaryOperation::kEXP, node.elementwise(ElementWiseOperation::kSUB, x, peak));
  Tensor* sum =
      node.unary(UnaryOperation::kLOG, node.reduce(ReduceOperation::kSUM, scaled, axes, true));
  Tensor* y = node.elementwise(ElementWiseOperation::kSUM, peak, sum);
  return keep_dims ? y : node.squeeze(y, axes);
}

/// Computes in FP32 for any type, and rounds once: the standard's function casts the operand of the
/// exponential, and casts the logarithm back.
void reduce_log_sum_exp(NodeImporter& node) {
  const DataType type = node.input(0)->dtype();
  const Reduction along = [&](Tensor* x, const Ints& axes, bool keep_dims) {
    return log_sum_exp(node, x, axes, keep_dims);
  };
  Tensor* y = node.cast(node.input(0), DataType::kFLOAT);
  if (Tensor* by_data = axes_from_data(node, 18))
    y = ReductionByData(node, y, by_data).run(along, keeps_dims(node));
  else if (const std::optional<Ints> axes = reduced_axes(node, y->rank(), 18))
    y = along(y, *axes, keeps_dims(node));
  node.set_output(0, node.cast(y, type));
}

void softmax(NodeImporter& node, bool log) {
  Tensor* x = node.input(0);
  const int rank = x->rank();
  const int axis = node.axis(node.get_int("axis", node.opset() < 13 ? 1 : -1), rank);
  const SymShape dims = x->dims();
  bool last = true;  // whether all extents behind the axis are 1
  for (int i = axis + 1; i < rank; ++i) last &= dims[i] == Expr(1);
  if (node.opset() >= 13 || last) {
    node.set_output(0, node.add<Softmax>({int64_t{1} << axis, log}, {x}));
    return;
  }
  // Before opset 13 the axes from `axis` on are joined.
  const Expr outer = numel(std::span(dims).first(axis)),
             inner = numel(std::span(dims).subspan(axis));
  const SymShape flat = {outer, inner};
  Tensor* y = node.add<Softmax>({int64_t{1} << 1, log}, {node.reshape(x, flat)});
  node.set_output(0, node.reshape(y, dims));
}

void cumulative(NodeImporter& node, bool product) {
  CumulativeParams params{CumulativeOperation::kSUM, node.get_int("exclusive", 0) != 0,
                          node.get_int("reverse", 0) != 0};
  params.product = product;
  node.constant_int(node.input(1), "axis");
  Tensor* const inputs[] = {node.input(0), node.input(1)};
  node.set_output(0, node.network().add<Cumulative>(params, inputs, node.next_name())->output(0));
}

void top_k(NodeImporter& node) {
  Tensor* x = node.input(0);
  TopKParams params;
  params.op = node.get_int("largest", 1) != 0 ? TopKOperation::kMAX : TopKOperation::kMIN;
  params.axes = int64_t{1} << node.axis(node.get_int("axis", -1), x->rank());
  params.indices_type = DataType::kINT64;
  std::vector<Tensor*> inputs = {x};
  if (node.opset() < 10) {
    params.k = node.get_int("k", 1);
  } else {
    const auto axis = static_cast<size_t>(node.axis(node.get_int("axis", -1), x->rank()));
    const Expr k = node.extent(node.input(1), "k", x->dims()[axis]);
    // A layer's own k is not 0; a k from a tensor may be.
    if (k.is_constant() && k.constant() != 0)
      params.k = k.constant();
    else
      inputs.push_back(node.scalar_of(k));
  }
  Layer* layer = node.network().add<TopK>(params, inputs, node.next_name());
  node.set_output(0, layer->output(0));
  node.set_output(1, layer->output(1));
}

void arg(NodeImporter& node, TopKOperation op) {
  Tensor* x = node.input(0);
  const bool last = node.get_int("select_last_index", 0) != 0;
  const int axis = node.axis(node.get_int("axis", 0), x->rank());
  const Expr extent = x->dims()[axis];
  // The first NaN is the least and the greatest here, as in NumPy and PyTorch. A sort makes it the
  // greatest.
  if (op == TopKOperation::kMIN && is_floating(x->dtype())) {
    x = node.unary(UnaryOperation::kNEG, x);
    op = TopKOperation::kMAX;
  }
  if (last) {
    // The last one is the first from the end.
    std::vector<Expr> start(x->rank(), 0);
    Ints stride(x->rank(), 1);
    start[axis] = extent - 1, stride[axis] = -1;
    x = node.slice(x, start, {x->dims().begin(), x->dims().end()}, stride);
  }
  TopKParams params;
  params.op = op;
  params.axes = int64_t{1} << axis;
  params.indices_type = DataType::kINT64;
  Layer* layer = node.network().add<TopK>(params, {x}, node.next_name());
  Tensor* indices = layer->output(1);
  if (last) {
    Tensor* end = node.reshape(node.scalar_of(extent - 1), SymShape(indices->rank(), 1));
    indices = node.elementwise(ElementWiseOperation::kSUB, end, indices);
  }
  node.set_output(0, node.get_int("keepdims", 1) != 0 ? indices : node.squeeze(indices, {axis}));
}

}  // namespace

void add_reductions(NodeTable& table) {
  table["ReduceSum"] = reduce<ReduceOperation::kSUM, 13>;
  table["ReduceMean"] = reduce<ReduceOperation::kAVG, 18>;
  table["ReduceMax"] = reduce<ReduceOperation::kMAX, 18>;
  table["ReduceMin"] = reduce<ReduceOperation::kMIN, 18>;
  table["ReduceProd"] = reduce<ReduceOperation::kPROD, 18>;
  table["ReduceL1"] = reduce<ReduceOperation::kSUM, 18, absolute>;
  table["ReduceL2"] = reduce<ReduceOperation::kSUM, 18, square, root>;
  table["ReduceSumSquare"] = reduce<ReduceOperation::kSUM, 18, square>;
  table["ReduceLogSum"] = reduce<ReduceOperation::kSUM, 18, keep, logarithm>;
  table["ReduceLogSumExp"] = reduce_log_sum_exp;
  table["Softmax"] = [](NodeImporter& node) { softmax(node, false); };
  table["LogSoftmax"] = [](NodeImporter& node) { softmax(node, true); };
  table["CumSum"] = [](NodeImporter& node) { cumulative(node, false); };
  table["CumProd"] = [](NodeImporter& node) { cumulative(node, true); };
  table["TopK"] = top_k;
  table["ArgMax"] = [](NodeImporter& node) { arg(node, TopKOperation::kMAX); };
  table["ArgMin"] = [](NodeImporter& node) { arg(node, TopKOperation::kMIN); };
}

}  // namespace opwright::onnx
