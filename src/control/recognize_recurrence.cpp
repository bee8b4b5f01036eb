#include "control/recognize_recurrence.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "base/half.h"
#include "base/types.h"
#include "operators/recurrence.h"

namespace opwright {
namespace {

constexpr int64_t kMostTerms = 64;
constexpr int kMostDepth = 64;

/// What columns of a tensor inside are, whose rows are the elements of the batch.
struct Node {
  enum class Kind : uint8_t {
    kState,       ///< columns of a state
    kElement,     ///< columns of an element
    kFixed,       ///< the same in all iterations
    kProduct,     ///< an operand times weights
    kSum,         ///< of the operands, some of them negative
    kMultiply,    ///< element by element
    kActivation,  ///< of the operand
    kSelect,      ///< the first operand where the condition is true, else the second
    kConcat,      ///< operands beside each other
  };
  Kind kind = Kind::kFixed;
  int64_t start = 0, size = 0;     ///< the columns of a state, an element or what is fixed
  int index = -1;                  ///< of the state or the element
  const Tensor* tensor = nullptr;  ///< what is fixed, weights, a condition
  std::vector<const Node*> operands{};
  std::vector<bool> is_negative{};  ///< of the operands of a sum
  ActivationParams activation{};
  /// Where in the weights the product begins, and whether rows are what it gives.
  int64_t weight_in = 0, weight_out = 0;
  bool by_output = false;
};
using Kind = Node::Kind;

template <class Op>
const typename Op::Params* params_of(const Layer* layer) {
  if (layer == nullptr || layer->op()->kind() != Op::kKind) return nullptr;
  return &static_cast<const Op&>(*layer->op()).params();
}

/// The number that all elements of a constant are.
std::optional<double> number_of(const Tensor& tensor) {
  const TensorInfo& info = tensor.info();
  if (!info.constant || !is_floating(info.dtype) || !is_constant(info.dims)) return std::nullopt;
  const int64_t count = constant_shape(info.dims).numel();
  if (count < 1 || count > int64_t{1} << 20) return std::nullopt;
  std::vector<float> values(static_cast<size_t>(count));
  convert(info.constant.data(), info.dtype, values.data(), DataType::kFLOAT, count);
  for (const float value : values)
    if (value != values[0]) return std::nullopt;
  return values[0];
}

/// The integers of a small tensor that is known.
std::optional<Ints> known_integers(const Tensor* tensor) {
  if (tensor == nullptr) return std::nullopt;
  const TensorInfo& info = tensor->info();
  Ints result;
  if (info.values) {
    for (const Expr& value : *info.values) {
      if (!value.is_constant()) return std::nullopt;
      result.push_back(value.constant());
    }
    return result;
  }
  if (!info.constant || !is_constant(info.dims)) return std::nullopt;
  const int64_t count = constant_shape(info.dims).numel();
  if (count > int64_t{1} << 20) return std::nullopt;
  for (int64_t i = 0; i < count; ++i)
    if (info.dtype == DataType::kINT32)
      result.push_back(info.constant.as<int32_t>()[i]);
    else if (info.dtype == DataType::kINT64)
      result.push_back(info.constant.as<int64_t>()[i]);
    else
      return std::nullopt;
  return result;
}

bool is_number(DataType type) { return type == DataType::kINT32 || type == DataType::kINT64; }

/// The layer's only floating result, of layers that hand on what they get.
bool hands_on(const Layer& layer) {
  const std::string_view kind = layer.op()->kind();
  return kind == Squeeze::kKind || kind == Unsqueeze::kKind || kind == Reshape::kKind ||
         kind == Identity::kKind;
}

/// Reads the layers of a loop as sums, products and activations of columns.
class CellReader {
 public:
  CellReader(const RepeatedLayers& loop, Expr rows) : loop_(loop), rows_(std::move(rows)) {
    for (size_t i = 0; i < loop.states.size(); ++i)
      leaves_[loop.states[i]] = {Kind::kState, static_cast<int>(i)};
    for (size_t i = 0; i < loop.elements.size(); ++i)
      leaves_[loop.elements[i].inside] = {Kind::kElement, static_cast<int>(i)};
  }

  /// How many columns a tensor has; nothing where it has other rows.
  std::optional<int64_t> columns(const Tensor& tensor) const {
    const Expr all = numel(tensor.dims());
    const Expr each = floor_div(all, rows_);
    if (!each.is_constant() || !(each * rows_ == all)) return std::nullopt;
    return each.constant();
  }
  const Node* whole(const Tensor& tensor) {
    const std::optional<int64_t> count = columns(tensor);
    return count ? read(tensor, 0, *count) : nullptr;
  }
  bool is_inside(const Tensor& tensor) const {
    return leaves_.contains(&tensor) ||
           (tensor.producer() != nullptr && loop_.layers.contains(tensor.producer()));
  }

 private:
  using Key = std::tuple<const Tensor*, int64_t, int64_t>;

  /// Null for what is none of these.
  const Node* read(const Tensor& tensor, int64_t start, int64_t size) {
    const Key key(&tensor, start, size);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    if (depth_ >= kMostDepth || nodes_.size() > 4096) return nullptr;
    ++depth_;
    const Node* const node = make(tensor, start, size);
    --depth_;
    return known_[key] = node;
  }
  const Node* keep(Node node) {
    nodes_.push_back(std::move(node));
    return &nodes_.back();
  }

  const Node* make(const Tensor& tensor, int64_t start, int64_t size) {
    if (const auto leaf = leaves_.find(&tensor); leaf != leaves_.end())
      return keep(
          {.kind = leaf->second.first, .start = start, .size = size, .index = leaf->second.second});
    const Layer* const layer = tensor.producer();
    if (layer == nullptr || layer->num_outputs() != 1 || layer->precision() || tensor.is_debug())
      return nullptr;
    if (hands_on(*layer)) return view(*layer, start, size);
    if (const auto* shuffle = params_of<Shuffle>(layer)) {
      if (!keeps_order(shuffle->first_transpose, layer->input(0)->dims()) ||
          !keeps_order(shuffle->second_transpose, tensor.dims()))
        return nullptr;
      return view(*layer, start, size);
    }
    if (const auto* transpose = params_of<Transpose>(layer))
      return keeps_order(transpose->permutation, layer->input(0)->dims())
                 ? view(*layer, start, size)
                 : nullptr;
    if (const auto* cast = params_of<Cast>(layer))
      return cast->to == layer->input(0)->dtype() ? view(*layer, start, size) : nullptr;
    if (const auto* slice = params_of<Slice>(layer)) return part(*layer, *slice, start, size);
    if (const auto* joined = params_of<Concatenation>(layer))
      return concatenation(*layer, joined->axis, start, size);
    if (const auto* product = params_of<MatrixMultiply>(layer))
      return multiplication(*layer, *product, start, size);
    if (const auto* op = params_of<ElementWise>(layer))
      return elementwise(*layer, op->op, start, size);
    if (const auto* activation = params_of<Activation>(layer)) {
      const Node* const x = read(*layer->input(0), start, size);
      if (x == nullptr) return nullptr;
      return keep(
          {.kind = Kind::kActivation, .size = size, .operands = {x}, .activation = *activation});
    }
    if (params_of<Select>(layer)) return selection(*layer, start, size);
    return nullptr;
  }

  const Node* view(const Layer& layer, int64_t start, int64_t size) {
    const Tensor &from = *layer.input(0), &to = *layer.output(0);
    if (columns(from) != columns(to) || !columns(to)) return nullptr;
    return read(from, start, size);
  }
  /// Whether a transpose moves axes of extent 1 alone. The dimensions before or behind it.
  static bool keeps_order(const Ints& order, const SymShape& dims) {
    int64_t last = -1;
    for (size_t i = 0; i < std::min(order.size(), dims.size()); ++i) {
      const auto axis = static_cast<size_t>(order[i]);
      if (axis >= dims.size()) return false;
      if (order[i] == static_cast<int64_t>(i)) {
        last = std::max(last, order[i]);
        continue;
      }
      if (dims[axis] == Expr(1)) continue;
      if (order[i] < last) return false;
      last = order[i];
    }
    return true;
  }

  /// How many leading axes are the rows.
  std::optional<size_t> row_axes(const SymShape& dims) const {
    Expr product(1);
    for (size_t i = 0;; ++i) {
      if (product == rows_) return i;
      if (i == dims.size()) return std::nullopt;
      product = product * dims[i];
    }
  }
  static int64_t behind(const SymShape& dims, size_t axis) {
    int64_t product = 1;
    for (size_t i = axis + 1; i < dims.size(); ++i) product *= dims[i].constant();
    return product;
  }
  /// Whether what lies before the axis in a row has one element, so that parts of it are columns
  /// beside each other.
  bool is_outermost(const SymShape& dims, size_t axis) const {
    const std::optional<size_t> first = row_axes(dims);
    if (!first || axis < *first) return false;
    for (size_t i = *first; i < dims.size(); ++i)
      if (!dims[i].is_constant() || (i < axis && dims[i].constant() != 1)) return false;
    return true;
  }

  const Node* part(const Layer& layer, const SliceParams& params, int64_t start, int64_t size) {
    if (params.mode != SampleMode::kSTRICT_BOUNDS || layer.num_inputs() > 4) return nullptr;
    const Tensor& from = *layer.input(0);
    const SymShape &in = from.dims(), &out = layer.output(0)->dims();
    const auto per_axis = [&](int input, const Ints& given,
                              int64_t otherwise) -> std::optional<Ints> {
      Ints own = given;
      if (layer.num_inputs() > input && layer.input(input) != nullptr) {
        // What does not depend on the iteration, but may not be known, keeps a whole axis.
        const std::optional<Ints> known = known_integers(layer.input(input));
        if (!known) return std::nullopt;
        own = *known;
      }
      if (params.axes.empty()) {
        own.resize(in.size(), otherwise);
        return own;
      }
      Ints all(in.size(), otherwise);
      for (size_t i = 0; i < params.axes.size() && i < own.size(); ++i) {
        int64_t axis = params.axes[i];
        if (axis < 0) axis += static_cast<int64_t>(in.size());
        if (axis < 0 || axis >= static_cast<int64_t>(in.size())) return std::nullopt;
        all[static_cast<size_t>(axis)] = own[i];
      }
      return all;
    };
    const std::optional<Ints> starts = per_axis(1, params.start, 0);
    const std::optional<Ints> strides = per_axis(3, params.stride, 1);
    if (!starts || !strides || in.size() != out.size()) return nullptr;
    std::optional<size_t> cut;
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i] == out[i] && (*starts)[i] == 0 && ((*strides)[i] == 1 || in[i] == Expr(1)))
        continue;
      if (cut || (*strides)[i] != 1 || (*starts)[i] < 0) return nullptr;
      cut = i;
    }
    if (!cut) return view(layer, start, size);
    if (!is_outermost(in, *cut)) return nullptr;
    return read(from, start + (*starts)[*cut] * behind(in, *cut), size);
  }

  const Node* concatenation(const Layer& layer, int64_t axis, int64_t start, int64_t size) {
    const SymShape& dims = layer.output(0)->dims();
    if (axis < 0) axis += static_cast<int64_t>(dims.size());
    if (!is_outermost(dims, static_cast<size_t>(axis))) return nullptr;
    Node whole{.kind = Kind::kConcat, .size = size};
    int64_t begin = 0;
    for (const Tensor* input : layer.inputs()) {
      const std::optional<int64_t> count = columns(*input);
      if (!count) return nullptr;
      const int64_t first = std::max(begin, start), end = std::min(begin + *count, start + size);
      if (first < end) {
        whole.operands.push_back(read(*input, first - begin, end - first));
        if (whole.operands.back() == nullptr) return nullptr;
      }
      begin += *count;
    }
    return whole.operands.size() == 1 ? whole.operands[0] : keep(std::move(whole));
  }

  const Node* multiplication(const Layer& layer, const MatrixMultiplyParams& params, int64_t start,
                             int64_t size) {
    if (params.has_bias || params.activation.present() || params.fused.present()) return nullptr;
    const Tensor &a = *layer.input(0), &b = *layer.input(1);
    const bool weights_first = !is_inside(a);
    const Tensor &x = weights_first ? b : a, &weights = weights_first ? a : b;
    if (!is_inside(x) || is_inside(weights)) return nullptr;
    const MatrixOperation of_x = weights_first ? params.op1 : params.op0;
    const MatrixOperation of_weights = weights_first ? params.op0 : params.op1;
    // A product from the left is one of columns, which lie in a row where it is of a vector.
    if (of_x == MatrixOperation::kTRANSPOSE || of_weights == MatrixOperation::kVECTOR ||
        (weights_first && of_x != MatrixOperation::kVECTOR) || x.rank() < 1)
      return nullptr;
    const SymShape& dims = weights.dims();
    if (dims.size() < 2 || !is_constant(dims)) return nullptr;
    for (size_t i = 0; i + 2 < dims.size(); ++i)
      if (dims[i].constant() != 1) return nullptr;
    const bool by_output = weights_first == (of_weights == MatrixOperation::kNONE);
    const int64_t rows = dims[dims.size() - 2].constant(), last = dims.back().constant();
    const int64_t inner = by_output ? last : rows, outer = by_output ? rows : last;
    if (columns(x) != inner || !(x.dims().back() == Expr(inner)) ||
        columns(*layer.output(0)) != outer)
      return nullptr;
    const Node* const operand = read(x, 0, inner);
    if (operand == nullptr) return nullptr;
    std::vector<const Node*> pieces = {operand};
    if (operand->kind == Kind::kConcat) pieces = operand->operands;
    Node sum{.kind = Kind::kSum, .size = size};
    int64_t place = 0;
    for (const Node* piece : pieces) {
      sum.operands.push_back(keep({.kind = Kind::kProduct,
                                   .size = size,
                                   .tensor = &weights,
                                   .operands = {piece},
                                   .weight_in = place,
                                   .weight_out = start,
                                   .by_output = by_output}));
      place += piece->size;
    }
    if (sum.operands.size() == 1) return sum.operands[0];
    sum.is_negative.resize(sum.operands.size());
    return keep(std::move(sum));
  }

  /// An operand of an element-wise layer, which may repeat rows where it is fixed.
  const Node* operand_of(const Layer& layer, const Tensor& operand, int64_t start, int64_t size) {
    const SymShape& out = layer.output(0)->dims();
    if (is_inside(operand))
      return numel(operand.dims()) == numel(out) ? read(operand, start, size) : nullptr;
    const SymShape& dims = operand.dims();
    if (!is_constant(dims)) return nullptr;
    Node fixed{.kind = Kind::kFixed, .start = start, .size = size, .tensor = &operand};
    if (numel(dims) == Expr(1)) {
      fixed.start = 0, fixed.size = 1;
      return keep(std::move(fixed));
    }
    const std::optional<size_t> first = row_axes(out);
    if (!first || dims.size() > out.size()) return nullptr;
    const size_t missing = out.size() - dims.size();
    for (size_t i = 0; i < out.size(); ++i) {
      const Expr extent = i < missing ? Expr(1) : dims[i - missing];
      if (!(extent == (i < *first ? Expr(1) : out[i]))) return nullptr;
    }
    return keep(std::move(fixed));
  }

  const Node* elementwise(const Layer& layer, ElementWiseOperation op, int64_t start,
                          int64_t size) {
    const bool is_sum = op == ElementWiseOperation::kSUM || op == ElementWiseOperation::kSUB;
    if (!is_sum && op != ElementWiseOperation::kPROD) return nullptr;
    const Node* const a = operand_of(layer, *layer.input(0), start, size);
    const Node* const b = operand_of(layer, *layer.input(1), start, size);
    if (a == nullptr || b == nullptr) return nullptr;
    Node made{.kind = is_sum ? Kind::kSum : Kind::kMultiply, .size = size, .operands = {a, b}};
    if (is_sum) made.is_negative = {false, op == ElementWiseOperation::kSUB};
    return keep(std::move(made));
  }

  const Node* selection(const Layer& layer, int64_t start, int64_t size) {
    const Tensor& condition = *layer.input(0);
    // One for each row.
    if (!is_inside(condition) || columns(condition) != 1) return nullptr;
    const SymShape &out = layer.output(0)->dims(), &given = condition.dims();
    const std::optional<size_t> first = row_axes(out);
    if (!first || given.size() != out.size()) return nullptr;
    for (size_t i = 0; i < out.size(); ++i)
      if (!(given[i] == (i < *first ? out[i] : Expr(1)))) return nullptr;
    const Node* const a = operand_of(layer, *layer.input(1), start, size);
    const Node* const b = operand_of(layer, *layer.input(2), start, size);
    if (a == nullptr || b == nullptr) return nullptr;
    return keep({.kind = Kind::kSelect, .size = size, .tensor = &condition, .operands = {a, b}});
  }

  const RepeatedLayers& loop_;
  const Expr rows_;
  std::unordered_map<const Tensor*, std::pair<Kind, int>> leaves_;
  std::map<Key, const Node*> known_;
  std::deque<Node> nodes_;
  int depth_ = 0;
};

/// A sum as the sum of products of factors.
struct Monomial {
  bool is_negative = false;
  std::vector<const Node*> factors;
};

bool append_monomials(const Node* node, bool is_negative, std::vector<Monomial>& to) {
  if (static_cast<int64_t>(to.size()) > kMostTerms) return false;
  if (node->kind == Kind::kSum) {
    for (size_t i = 0; i < node->operands.size(); ++i)
      if (!append_monomials(node->operands[i], is_negative != node->is_negative[i], to))
        return false;
    return true;
  }
  if (node->kind == Kind::kMultiply) {
    std::vector<Monomial> a, b;
    if (!append_monomials(node->operands[0], false, a) ||
        !append_monomials(node->operands[1], false, b) ||
        static_cast<int64_t>(a.size() * b.size()) > kMostTerms)
      return false;
    for (const Monomial& left : a)
      for (const Monomial& right : b) {
        Monomial both{(left.is_negative != right.is_negative) != is_negative, left.factors};
        both.factors.insert(both.factors.end(), right.factors.begin(), right.factors.end());
        to.push_back(std::move(both));
      }
    return true;
  }
  if (node->kind == Kind::kFixed) {
    const std::optional<double> number = number_of(*node->tensor);
    if (number && (*number == 1 || *number == -1)) {
      to.push_back({is_negative != (*number < 0), {}});
      return true;
    }
  }
  to.push_back({is_negative, {node}});
  return true;
}

/// The terms of a sum, all of them positive.
bool append_terms(const Node* node, std::vector<const Node*>& to) {
  if (static_cast<int64_t>(to.size()) > kMostTerms) return false;
  if (node->kind != Kind::kSum) {
    to.push_back(node);
    return true;
  }
  for (size_t i = 0; i < node->operands.size(); ++i)
    if (node->is_negative[i] || !append_terms(node->operands[i], to)) return false;
  return true;
}

/// Weights times columns of an input or a state.
struct Term {
  int source = 0;  ///< of Cell::sources; of a state 0
  int64_t column = 0, columns = 0;
  const Tensor* inside = nullptr;  ///< the weights
  Tensor* outside = nullptr;       ///< the same where they are multiplied before the loop
  int64_t weight_in = 0, weight_out = 0;
  bool by_output = false;
};
/// Something that is added to a gate in all iterations.
struct Bias {
  const Tensor* inside = nullptr;
  Tensor* outside = nullptr;
  int64_t start = 0;
};
struct Gate {
  std::vector<Term> inputs, states;
  std::vector<Bias> biases;
  std::vector<Bias> recurrent_biases;  ///< those that the reset gate multiplies
  const Node* peephole = nullptr;
  bool is_negated = false;
};

struct Cell {
  RecurrentCell kind = RecurrentCell::kRNN;
  std::vector<Gate> gates;  ///< in ONNX's order
  std::vector<ActivationParams> activations;
  int hidden = -1, memory = -1;  ///< which states h and c are
  bool input_forget = false, linear_before_reset = false;
  /// What the input is put together from: tensors whose elements are iterated over.
  struct Source {
    Tensor* whole = nullptr;
    int axis = 0;
    bool is_reverse = false;
    int64_t columns = 0;
  };
  std::vector<Source> sources;
  const Tensor* lengths = nullptr;  ///< inside: of the sequences
};

std::optional<RecurrentActivation> recurrent_activation(const ActivationParams& f) {
  switch (f.type) {
    case ActivationType::kRELU:
      return RecurrentActivation::kRELU;
    case ActivationType::kTANH:
      return RecurrentActivation::kTANH;
    case ActivationType::kSIGMOID:
      return RecurrentActivation::kSIGMOID;
    case ActivationType::kLEAKY_RELU:
      return RecurrentActivation::kLEAKY_RELU;
    case ActivationType::kSCALED_TANH:
      return RecurrentActivation::kSCALED_TANH;
    case ActivationType::kHARD_SIGMOID:
      return RecurrentActivation::kHARD_SIGMOID;
    case ActivationType::kELU:
      return RecurrentActivation::kELU;
    case ActivationType::kSOFTSIGN:
      return RecurrentActivation::kSOFTSIGN;
    case ActivationType::kSOFTPLUS:
      if (f.alpha == 1 && f.beta == 1) return RecurrentActivation::kSOFTPLUS;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}
bool same(const ActivationParams& a, const ActivationParams& b) {
  return a.type == b.type && a.alpha == b.alpha && a.beta == b.beta;
}

class Recognizer {
 public:
  Recognizer(const RepeatedLayers& loop, LayerWriter& writer)
      : loop_(loop), writer_(writer), kinds_(loop.states.size(), StateKind::kOther) {}

  std::optional<RecurrentCellLayers> run() {
    // What does more than computing, or has a loop of its own, has to run.
    if (std::ranges::any_of(loop_.layers,
                            [](const Layer* layer) { return !layer->op()->is_pure(); }))
      return std::nullopt;
    if (loop_.limit == nullptr || !sort_states()) return std::nullopt;
    const auto& dims = loop_.states[floats_[0]]->dims();
    reader_.emplace(loop_, numel(std::span(dims).first(dims.size() - 1)));
    type_ = loop_.first[floats_[0]]->dtype();
    size_ = dims.back().constant();
    for (const size_t i : floats_) {
      const SymShape& other = loop_.states[i]->dims();
      if (!other.back().is_constant() || other.back().constant() != size_ ||
          reader_->columns(*loop_.states[i]) != size_ || loop_.first[i]->dtype() != type_)
        return std::nullopt;
    }
    if (!read_next() || !match() || !check_input() || !check_outputs() || !check_fixed())
      return std::nullopt;
    return write();
  }

 private:
  enum class StateKind : uint8_t { kOther, kFloat, kCounter };

  /// Which states are numbers of iterations, and which are a cell's.
  bool sort_states() {
    for (size_t i = 0; i < loop_.states.size(); ++i) {
      const Tensor& state = *loop_.states[i];
      if (state.is_debug()) return false;
      if (is_floating(state.dtype())) {
        if (state.rank() < 1 || !state.dims().back().is_constant() ||
            state.dims().back().constant() < 1)
          return false;
        kinds_[i] = StateKind::kFloat;
        floats_.push_back(i);
        continue;
      }
      const Layer* const made = loop_.next[i]->producer();
      const auto* op = params_of<ElementWise>(made);
      if (!is_number(state.dtype()) || op == nullptr || op->op != ElementWiseOperation::kSUM)
        return false;
      const bool is_first = made->input(0) == &state;
      if (!is_first && made->input(1) != &state) return false;
      const std::optional<Ints> step = known_integers(made->input(is_first ? 1 : 0));
      if (!step || step->size() != 1 || (*step)[0] != 1 ||
          !(numel(loop_.next[i]->dims()) == Expr(1)))
        return false;
      kinds_[i] = StateKind::kCounter;
    }
    return floats_.size() == 1 || floats_.size() == 2;
  }

  /// What states become. Where a condition keeps them it is the same one of all.
  bool read_next() {
    next_.resize(loop_.states.size());
    const Tensor* condition = nullptr;
    size_t conditional = 0;
    for (const size_t i : floats_) {
      const Node* node = reader_->whole(*loop_.next[i]);
      if (node == nullptr || node->size != size_) return false;
      stored_[i] = node;
      if (node->kind == Kind::kSelect) {
        if (!is_state(node->operands[1], i) || (condition && condition != node->tensor))
          return false;
        condition = node->tensor, node = node->operands[0];
        ++conditional;
      }
      next_[i] = node;
    }
    if (condition == nullptr) return true;
    condition_ = condition;
    return conditional == floats_.size() && read_condition(*condition);
  }

  /// Whether the condition is that the place lies within the sequence, whose lengths are kept.
  bool read_condition(const Tensor& condition) {
    const Tensor* tensor = &condition;
    while (tensor->producer() != nullptr && reader_->is_inside(*tensor) && is_view(*tensor))
      tensor = tensor->producer()->input(0);
    const auto* op = params_of<ElementWise>(tensor->producer());
    if (op == nullptr) return false;
    const bool is_less = op->op == ElementWiseOperation::kLESS;
    if (!is_less && op->op != ElementWiseOperation::kGREATER) return false;
    const Tensor *place = tensor->producer()->input(is_less ? 0 : 1),
                 *lengths = tensor->producer()->input(is_less ? 1 : 0);
    if (reader_->is_inside(*lengths) || !is_number(lengths->dtype()) ||
        reader_->columns(*lengths) != 1 || reader_->columns(*tensor) != 1 || !is_place(*place))
      return false;
    cell_.lengths = lengths;
    return true;
  }
  static bool is_view(const Tensor& tensor) {
    const Layer& layer = *tensor.producer();
    return layer.num_outputs() == 1 && (hands_on(layer) || params_of<Shuffle>(&layer));
  }
  /// Whether it is the number of the place in what is iterated over.
  bool is_place(const Tensor& given) {
    const Tensor* tensor = &given;
    const auto is_converted = [&] {
      const auto* cast = params_of<Cast>(tensor->producer());
      return cast != nullptr && is_number(cast->to);
    };
    while (tensor->producer() != nullptr && reader_->is_inside(*tensor) &&
           loop_.layers.contains(tensor->producer()) && tensor->producer()->num_inputs() > 0 &&
           (is_view(*tensor) || is_converted()) && is_no_element(tensor))
      tensor = tensor->producer()->input(0);
    if (tensor == loop_.iteration) {
      place_ = Place::kForward;
      return true;
    }
    for (size_t i = 0; i < loop_.states.size(); ++i)
      if (loop_.states[i] == tensor && kinds_[i] == StateKind::kCounter) {
        place_ = Place::kForward;
        const std::optional<Ints> first = known_integers(loop_.first[i]);
        return first && first->size() == 1 && (*first)[0] == 0;
      }
    for (const RepeatedLayers::Element& element : loop_.elements) {
      if (element.inside != tensor || !is_number(tensor->dtype())) continue;
      place_ = element.is_reverse ? Place::kReverse : Place::kForward;
      const std::optional<Ints> numbers = known_integers(element.whole);
      if (!numbers) return false;
      for (size_t i = 0; i < numbers->size(); ++i)
        if ((*numbers)[i] != static_cast<int64_t>(i)) return false;
      return true;
    }
    return false;
  }
  bool is_no_element(const Tensor* tensor) const {
    return std::ranges::none_of(loop_.elements,
                                [&](const auto& element) { return element.inside == tensor; });
  }

  bool is_state(const Node* node, size_t state) const {
    return node->kind == Kind::kState && node->index == static_cast<int>(state) &&
           node->start == 0 && node->size == size_;
  }

  bool match() {
    if (floats_.size() == 2)
      return match_lstm(floats_[0], floats_[1]) || match_lstm(floats_[1], floats_[0]);
    return match_rnn(floats_[0]) || match_gru(floats_[0]);
  }
  void begin(RecurrentCell kind, size_t hidden, size_t gates) {
    cell_.kind = kind, cell_.hidden = static_cast<int>(hidden);
    cell_.gates.assign(gates, {});
    cell_.activations.clear(), cell_.sources.clear();
    cell_.input_forget = cell_.linear_before_reset = false;
  }
  static const Node* as_activation(const Node* node) {
    return node->kind == Kind::kActivation && recurrent_activation(node->activation) ? node
                                                                                     : nullptr;
  }

  bool match_rnn(size_t h) {
    const Node* const f = as_activation(next_[h]);
    if (f == nullptr) return false;
    begin(RecurrentCell::kRNN, h, 1);
    cell_.activations = {f->activation};
    return read_gate(f->operands[0], cell_.gates[0]);
  }

  /// (1 - z) n + z h, or with z and 1 - z exchanged.
  bool match_gru(size_t h) {
    std::vector<Monomial> terms;
    if (!append_monomials(next_[h], false, terms) || terms.size() != 3) return false;
    const Node *n = nullptr, *z = nullptr;
    bool keeps = false;
    const auto negative = std::ranges::find_if(terms, &Monomial::is_negative);
    if (negative == terms.end() || negative->factors.size() != 2) return false;
    for (const Monomial& term : terms)
      if (term.factors.size() == 1 && !term.is_negative) {
        keeps = is_state(term.factors[0], h);
        n = keeps ? nullptr : term.factors[0];
      }
    const auto other_of = [](const Monomial& term, const Node* factor) -> const Node* {
      if (term.factors.size() != 2) return nullptr;
      if (term.factors[0] == factor) return term.factors[1];
      return term.factors[1] == factor ? term.factors[0] : nullptr;
    };
    const auto other_of_state = [&](const Monomial& term) -> const Node* {
      if (term.factors.size() != 2) return nullptr;
      if (is_state(term.factors[0], h)) return term.factors[1];
      return is_state(term.factors[1], h) ? term.factors[0] : nullptr;
    };
    if (keeps) {
      // h - z h + z n
      z = other_of_state(*negative);
      for (const Monomial& term : terms)
        if (z != nullptr && !term.is_negative && term.factors.size() == 2) n = other_of(term, z);
    } else if (n != nullptr) {
      // n - z n + z h
      z = other_of(*negative, n);
      bool has_state = false;
      for (const Monomial& term : terms)
        if (!term.is_negative && term.factors.size() == 2)
          has_state = z != nullptr && other_of_state(term) == z;
      if (!has_state) return false;
    }
    if (z == nullptr || n == nullptr || as_activation(z) == nullptr || as_activation(n) == nullptr)
      return false;
    begin(RecurrentCell::kGRU, h, 3);
    // 1 - sigmoid(x) = sigmoid(-x)
    if (keeps && z->activation.type != ActivationType::kSIGMOID) return false;
    cell_.gates[0].is_negated = keeps;
    cell_.activations = {z->activation, n->activation};
    return read_gate(z->operands[0], cell_.gates[0]) && read_candidate(n->operands[0]);
  }

  /// The sum of the candidate's gate, in which the reset gate multiplies the state or its product.
  bool read_candidate(const Node* sum) {
    std::vector<const Node*> terms;
    if (!append_terms(sum, terms)) return false;
    const Node* reset = nullptr;
    Gate& gate = cell_.gates[2];
    const auto set_reset = [&](const Node* r) {
      if (as_activation(r) == nullptr || (reset != nullptr && reset != r) ||
          !same(r->activation, cell_.activations[0]))
        return false;
      reset = r;
      return true;
    };
    const auto multiplied_state = [&](const Node* node) -> const Node* {
      if (node->kind != Kind::kMultiply || node->size != size_) return nullptr;
      for (int i = 0; i < 2; ++i)
        if (is_state(node->operands[static_cast<size_t>(i)], h()))
          return node->operands[static_cast<size_t>(1 - i)];
      return nullptr;
    };
    bool is_before = false, is_behind = false;
    for (const Node* term : terms) {
      if (term->kind == Kind::kProduct && multiplied_state(term->operands[0]) != nullptr) {
        is_behind = true;
        if (!set_reset(multiplied_state(term->operands[0]))) return false;
        gate.states.push_back(term_of(*term, 0, 0, size_));
        continue;
      }
      if (term->kind == Kind::kMultiply && !is_before && read_reset_product(*term, set_reset)) {
        is_before = true;
        continue;
      }
      if (!read_term(term, gate, /*takes_state=*/false)) return false;
    }
    cell_.linear_before_reset = is_before;
    return is_before != is_behind && read_gate(reset->operands[0], cell_.gates[1]);
  }
  /// r (U h + c)
  template <class SetReset>
  bool read_reset_product(const Node& product, const SetReset& set_reset) {
    for (size_t i = 0; i < 2; ++i) {
      std::vector<const Node*> terms;
      Gate inner;
      if (as_activation(product.operands[i]) == nullptr ||
          !append_terms(product.operands[1 - i], terms))
        continue;
      bool fits = true;
      for (const Node* term : terms) fits = fits && read_term(term, inner, true);
      if (!fits || !inner.inputs.empty() || inner.states.empty() || inner.peephole != nullptr ||
          !set_reset(product.operands[i]))
        continue;
      cell_.gates[2].states = std::move(inner.states);
      cell_.gates[2].recurrent_biases = std::move(inner.biases);
      return true;
    }
    return false;
  }

  /// h' = o act(c'), c' = f c + i g
  bool match_lstm(size_t h, size_t c) {
    const Node* const hidden = next_[h];
    if (hidden->kind != Kind::kMultiply) return false;
    begin(RecurrentCell::kLSTM, h, 4);
    cell_.memory = static_cast<int>(c);
    const Node *output = nullptr, *of_memory = nullptr;
    for (size_t i = 0; i < 2; ++i) {
      const Node *const a = hidden->operands[i], *const b = hidden->operands[1 - i];
      if (as_activation(a) && as_activation(b) && a->operands[0] == next_[c]) {
        of_memory = a, output = b;
        break;
      }
    }
    std::vector<Monomial> terms;
    if (output == nullptr || !append_monomials(next_[c], false, terms)) return false;
    const Node *forget = nullptr, *first = nullptr, *second = nullptr, *coupled = nullptr;
    bool keeps = false;
    for (const Monomial& term : terms) {
      const auto& factors = term.factors;
      const auto state =
          std::ranges::find_if(factors, [&](const Node* f) { return is_state(f, c); });
      if (state != factors.end()) {
        if (factors.size() == 1 && !term.is_negative && !keeps) {
          keeps = true;
          continue;
        }
        if (factors.size() != 2) return false;
        const Node*& gate = term.is_negative ? coupled : forget;
        if (gate != nullptr) return false;
        gate = factors[state == factors.begin() ? 1 : 0];
      } else {
        if (factors.size() != 2 || term.is_negative || first != nullptr) return false;
        first = factors[0], second = factors[1];
      }
    }
    // c - i c + i g, or f c + i g
    cell_.input_forget = keeps;
    if (first == nullptr ||
        (keeps ? coupled == nullptr || forget != nullptr : forget == nullptr || coupled != nullptr))
      return false;
    const Node* const like = keeps ? coupled : forget;
    for (const Node* gate : {like, first, second, output})
      if (as_activation(gate) == nullptr) return false;
    const ActivationParams& f = like->activation;
    if (!same(output->activation, f)) return false;
    const auto is_input = [&](const Node* gate) {
      return keeps ? gate == coupled : same(gate->activation, f);
    };
    if (!is_input(first)) std::swap(first, second);
    if (!is_input(first)) return false;
    cell_.activations = {f, second->activation, of_memory->activation};
    const bool all = read_gate(first->operands[0], cell_.gates[0]) &&
                     read_gate(output->operands[0], cell_.gates[1]) &&
                     read_gate(second->operands[0], cell_.gates[3]);
    if (!all) return false;
    if (keeps)
      cell_.gates[2] = cell_.gates[0];
    else if (!read_gate(forget->operands[0], cell_.gates[2]))
      return false;
    return cell_.gates[3].peephole == nullptr;
  }

  size_t h() const { return static_cast<size_t>(cell_.hidden); }
  static Term term_of(const Node& product, int source, int64_t column, int64_t columns) {
    Term term;
    term.source = source, term.column = column, term.columns = columns;
    term.inside = product.tensor;
    term.weight_in = product.weight_in, term.weight_out = product.weight_out;
    term.by_output = product.by_output;
    return term;
  }

  bool read_gate(const Node* sum, Gate& gate) {
    std::vector<const Node*> terms;
    if (!append_terms(sum, terms)) return false;
    for (const Node* term : terms)
      if (!read_term(term, gate, true)) return false;
    return true;
  }
  bool read_term(const Node* term, Gate& gate, bool takes_state) {
    if (term->kind == Kind::kFixed) {
      gate.biases.push_back({term->tensor, nullptr, term->size == 1 ? -1 : term->start});
      return true;
    }
    if (term->kind == Kind::kElement) return read_projected(*term, gate);
    if (term->kind == Kind::kMultiply && cell_.kind == RecurrentCell::kLSTM) {
      for (size_t i = 0; i < 2; ++i) {
        const Node *const weights = term->operands[i], *const memory = term->operands[1 - i];
        const bool is_output = &gate == &cell_.gates[1];
        const auto c = static_cast<size_t>(cell_.memory);
        if (weights->kind != Kind::kFixed || gate.peephole != nullptr ||
            !(is_output ? memory == next_[c] : is_state(memory, c)))
          continue;
        gate.peephole = weights;
        return true;
      }
      return false;
    }
    if (term->kind != Kind::kProduct) return false;
    const Node& x = *term->operands[0];
    if (x.kind == Kind::kState && takes_state && x.index == cell_.hidden) {
      gate.states.push_back(term_of(*term, 0, x.start, x.size));
      return true;
    }
    if (x.kind != Kind::kElement) return false;
    const RepeatedLayers::Element& element = loop_.elements[static_cast<size_t>(x.index)];
    const std::optional<int64_t> columns = reader_->columns(*element.inside);
    if (!columns) return false;
    const int source = source_of(element.whole, element.axis, element.is_reverse, *columns);
    gate.inputs.push_back(term_of(*term, source, x.start, x.size));
    return true;
  }

  int source_of(Tensor* whole, int axis, bool is_reverse, int64_t columns) {
    for (size_t i = 0; i < cell_.sources.size(); ++i) {
      const Cell::Source& source = cell_.sources[i];
      if (source.whole == whole && source.axis == axis && source.is_reverse == is_reverse)
        return static_cast<int>(i);
    }
    cell_.sources.push_back({whole, axis, is_reverse, columns});
    return static_cast<int>(cell_.sources.size()) - 1;
  }

  /// What is iterated over may be the product with the weights of all steps.
  bool read_projected(const Node& node, Gate& gate) {
    const RepeatedLayers::Element& element = loop_.elements[static_cast<size_t>(node.index)];
    Tensor* tensor = element.whole;
    const SymShape& dims = tensor->dims();
    if (dims.empty() || !dims.back().is_constant() ||
        reader_->columns(*element.inside) != dims.back().constant() ||
        element.axis + 1 >= static_cast<int>(dims.size()))
      return false;
    for (int depth = 0; depth < kMostDepth; ++depth) {
      const Layer* const layer = tensor->producer();
      if (layer == nullptr || layer->precision() || tensor->is_debug()) return false;
      if (const auto* op = params_of<ElementWise>(layer)) {
        if (op->op != ElementWiseOperation::kSUM) return false;
        Tensor *a = layer->input(0), *b = layer->input(1);
        if (a->dims() != dims) std::swap(a, b);
        if (a->dims() != dims || !is_constant(b->dims())) return false;
        const int64_t count = numel(b->dims()).constant();
        if (count != 1 && (count != dims.back().constant() || !(b->dims().back() == dims.back())))
          return false;
        gate.biases.push_back({nullptr, b, count == 1 ? -1 : node.start});
        tensor = a;
        continue;
      }
      const auto* product = params_of<MatrixMultiply>(layer);
      if (product == nullptr || product->op0 != MatrixOperation::kNONE ||
          product->op1 == MatrixOperation::kVECTOR)
        return false;
      Tensor *const x = layer->input(0), *const weights = layer->input(1);
      SymShape expected = dims;
      expected.back() = x->dims().back();
      const SymShape& shape = weights->dims();
      if (x->dims() != expected || !expected.back().is_constant() || !is_constant(shape) ||
          numel(shape).constant() != expected.back().constant() * dims.back().constant())
        return false;
      const bool by_output = product->op1 == MatrixOperation::kTRANSPOSE;
      Term term;
      term.source = source_of(x, element.axis, element.is_reverse, expected.back().constant());
      term.columns = expected.back().constant();
      term.outside = weights;
      term.weight_out = node.start;
      term.by_output = by_output;
      gate.inputs.push_back(term);
      return true;
    }
    return false;
  }

  /// Whether sums cover each column once, directions and extents agree.
  bool check_input() {
    if (cell_.sources.empty()) return false;
    for (Gate& gate : cell_.gates)
      for (std::vector<Term>* terms : {&gate.inputs, &gate.states}) {
        std::ranges::sort(*terms, [](const Term& a, const Term& b) {
          return std::pair(a.source, a.column) < std::pair(b.source, b.column);
        });
        for (size_t i = 1; i < terms->size(); ++i) {
          const Term &before = (*terms)[i - 1], &term = (*terms)[i];
          if (before.source == term.source && before.column + before.columns > term.column)
            return false;
        }
      }
    const Cell::Source& first = cell_.sources[0];
    steps_ = first.whole->dims()[static_cast<size_t>(first.axis)];
    for (const Cell::Source& source : cell_.sources) {
      const Expr& extent = source.whole->dims()[static_cast<size_t>(source.axis)];
      if (source.is_reverse != first.is_reverse || source.whole->dtype() != type_) return false;
      if (!loop_.count) {
        if (!(extent == steps_)) return false;
      } else if (!(extent == *loop_.count)) {
        if (!extent.is_constant() || !loop_.count->is_constant() ||
            loop_.count->constant() > extent.constant())
          return false;
      }
    }
    if (loop_.count) steps_ = *loop_.count;
    if (cell_.lengths != nullptr) {
      if (!loop_.count || (place_ == Place::kReverse) != first.is_reverse) return false;
    }
    return true;
  }

  bool check_outputs() {
    const bool is_reverse = cell_.sources[0].is_reverse;
    for (size_t i = 0; i < loop_.stacked.size(); ++i) {
      const Tensor& tensor = *loop_.stacked[i];
      if (tensor.dtype() != type_) return false;
      const Node* node = reader_->whole(tensor);
      if (node == nullptr) return false;
      if (cell_.lengths != nullptr) {
        // Zeros behind the end of a sequence, as the operator has them.
        if (node->kind != Kind::kSelect || node->tensor != condition_ ||
            node->operands[1]->kind != Kind::kFixed || number_of(*node->operands[1]->tensor) != 0.0)
          return false;
        node = node->operands[0];
        if (node == stored_[h()]) node = next_[h()];
      }
      if (node != next_[h()] || !outer_dims(tensor)) return false;
      if (!loop_.count && is_reverse) return false;
      const std::optional<Expr>& length = loop_.lengths[i];
      if (!length && !loop_.count) return false;
      if (!length || *length == steps_) continue;
      if (!length->is_constant() || !steps_.is_constant() || is_reverse ||
          length->constant() > steps_.constant())
        return false;
    }
    return true;
  }
  bool check_fixed() const {
    const auto may = [&](const Tensor* inside) {
      return inside == nullptr || !loop_.may_leave || loop_.may_leave(*inside);
    };
    for (const Gate& gate : cell_.gates) {
      for (const std::vector<Term>* terms : {&gate.inputs, &gate.states})
        for (const Term& term : *terms)
          if (!may(term.inside)) return false;
      for (const std::vector<Bias>* biases : {&gate.biases, &gate.recurrent_biases})
        for (const Bias& bias : *biases)
          if (!may(bias.inside)) return false;
      if (gate.peephole != nullptr && !may(gate.peephole->tensor)) return false;
    }
    return may(cell_.lengths);
  }
  /// The extents of a tensor inside that is a view of the state, as the states outside have them.
  std::optional<SymShape> outer_dims(const Tensor& tensor) const {
    const SymShape &inside = loop_.states[h()]->dims(), &outside = loop_.first[h()]->dims();
    SymShape dims;
    for (const Expr& extent : tensor.dims()) {
      const auto place = std::ranges::find(inside, extent);
      if (extent.is_constant())
        dims.push_back(extent);
      else if (place != inside.end())
        dims.push_back(outside[static_cast<size_t>(place - inside.begin())]);
      else
        return std::nullopt;
    }
    return dims;
  }

  // From here on it is known what is written.

  Tensor* given(const Tensor* inside, Tensor* outside) {
    return outside != nullptr ? outside : loop_.outside(*inside);
  }
  Tensor* zeros(int64_t rows, int64_t columns) {
    const std::vector<float> values(static_cast<size_t>(rows * columns));
    return writer_.constant_of({rows, columns}, values, type_);
  }
  Tensor* negative(Tensor* x) { return writer_.elementwise(ElementWiseOperation::kPROD, x, -1.0); }
  Tensor* reshaped(Tensor* x, const SymShape& dims) {
    return x->dims() == dims ? x : writer_.reshape(x, dims);
  }

  /// Rows of units, columns of what they are multiplied by.
  Tensor* weights_of(const std::vector<Term>& terms, bool is_input, bool is_negated) {
    std::vector<Tensor*> parts;
    int64_t at = 0;
    const auto fill_up = [&](int64_t to) {
      if (to > at) parts.push_back(zeros(size_, to - at));
      at = to;
    };
    for (const Term& term : terms) {
      fill_up((is_input ? offsets_[static_cast<size_t>(term.source)] : 0) + term.column);
      Tensor* weights = given(term.inside, term.outside);
      const size_t rank = weights->dims().size();
      if (rank > 2)
        weights = writer_.reshape(weights, {weights->dims().end() - 2, weights->dims().end()});
      const int in = term.by_output ? 1 : 0;
      const auto cut = [&](int axis, int64_t start, int64_t size) {
        if (!(weights->dims()[static_cast<size_t>(axis)] == Expr(size)))
          weights = writer_.slice_axis(weights, axis, start, size);
      };
      cut(in, term.weight_in, term.columns);
      cut(1 - in, term.weight_out, size_);
      if (!term.by_output) weights = writer_.transpose(weights, {1, 0});
      parts.push_back(is_negated ? negative(weights) : weights);
      at += term.columns;
    }
    fill_up(is_input ? offsets_.back() : size_);
    return parts.size() == 1 ? parts[0] : writer_.concatenate(parts, 1);
  }
  Tensor* all_weights(bool is_input) {
    std::vector<Tensor*> parts;
    for (const Gate& gate : cell_.gates)
      parts.push_back(weights_of(is_input ? gate.inputs : gate.states, is_input, gate.is_negated));
    Tensor* const all = parts.size() == 1 ? parts[0] : writer_.concatenate(parts, 0);
    return writer_.unsqueeze(all, {0});
  }
  /// [1, hidden]
  Tensor* bias_of(const std::vector<Bias>& biases, bool is_negated) {
    Tensor* sum = nullptr;
    for (const Bias& bias : biases) {
      Tensor* const part = row_of(given(bias.inside, bias.outside), bias.start);
      sum = sum == nullptr ? part : writer_.elementwise(ElementWiseOperation::kSUM, sum, part);
    }
    if (sum == nullptr) return zeros(1, size_);
    return is_negated ? negative(sum) : sum;
  }
  /// [1, hidden] of a tensor's columns, or of its only element.
  Tensor* row_of(Tensor* x, int64_t start) {
    x = reshaped(x, {Expr(1), numel(x->dims())});
    if (start < 0) return size_ == 1 ? x : writer_.expand(x, SymShape{Expr(1), Expr(size_)});
    return x->dims()[1] == Expr(size_) ? x : writer_.slice_axis(x, 1, start, size_);
  }
  Tensor* all_biases() {
    std::vector<Tensor*> parts;
    bool is_there = false;
    for (const Gate& gate : cell_.gates)
      is_there |= !gate.biases.empty() || !gate.recurrent_biases.empty();
    if (!is_there) return nullptr;
    for (const Gate& gate : cell_.gates) parts.push_back(bias_of(gate.biases, gate.is_negated));
    for (const Gate& gate : cell_.gates) parts.push_back(bias_of(gate.recurrent_biases, false));
    return writer_.concatenate(parts, 1);
  }
  Tensor* all_peepholes() {
    std::vector<Tensor*> parts;
    bool is_there = false;
    for (size_t i = 0; cell_.kind == RecurrentCell::kLSTM && i < 3; ++i) {
      const Node* const weights = cell_.gates[i].peephole;
      is_there |= weights != nullptr;
    }
    if (!is_there) return nullptr;
    for (size_t i = 0; i < 3; ++i) {
      const Node* const weights = cell_.gates[i].peephole;
      parts.push_back(weights == nullptr ? zeros(1, size_)
                                         : row_of(given(weights->tensor, nullptr),
                                                  weights->size == 1 ? -1 : weights->start));
    }
    return writer_.concatenate(parts, 1);
  }

  /// [steps, batch, input]
  Tensor* input() {
    std::vector<Tensor*> parts;
    for (const Cell::Source& source : cell_.sources) {
      Tensor* x = source.whole;
      if (source.axis != 0) {
        Ints order = {source.axis};
        for (int i = 0; i < x->rank(); ++i)
          if (i != source.axis) order.push_back(i);
        x = writer_.transpose(x, order);
      }
      if (loop_.count && !(x->dims()[0] == steps_)) x = writer_.slice_axis(x, 0, 0, steps_);
      parts.push_back(reshaped(x, {steps_, batch_, Expr(source.columns)}));
    }
    return parts.size() == 1 ? parts[0] : writer_.concatenate(parts, 2);
  }
  /// [batch], or null
  Tensor* lengths() {
    Tensor* given = nullptr;
    if (cell_.lengths != nullptr)
      given = reshaped(loop_.outside(*cell_.lengths), {batch_});
    else if (!loop_.count)
      given = writer_.expand(reshaped(loop_.limit, {Expr(1)}), SymShape{batch_});
    return given == nullptr ? nullptr : writer_.cast(given, DataType::kINT32);
  }

  RecurrentCellLayers write() {
    const SymShape& dims = loop_.first[h()]->dims();
    batch_ = numel(std::span(dims).first(dims.size() - 1));
    offsets_ = {0};
    for (const Cell::Source& source : cell_.sources)
      offsets_.push_back(offsets_.back() + source.columns);
    RecurrenceParams params;
    params.cell = cell_.kind;
    const bool is_reverse = cell_.sources[0].is_reverse;
    params.direction = is_reverse ? RecurrentDirection::kREVERSE : RecurrentDirection::kFORWARD;
    for (const ActivationParams& activation : cell_.activations) {
      params.activations.push_back(static_cast<int64_t>(*recurrent_activation(activation)));
      params.alphas.push_back(activation.alpha);
      params.betas.push_back(activation.beta);
    }
    params.input_forget = cell_.input_forget;
    params.linear_before_reset = cell_.linear_before_reset;
    const auto state = [&](int index) -> Tensor* {
      if (index < 0) return nullptr;
      return writer_.reshape(loop_.first[static_cast<size_t>(index)],
                             SymShape{Expr(1), batch_, Expr(size_)});
    };
    std::vector<Tensor*> inputs = {input(),      all_weights(true), all_weights(false),
                                   all_biases(), lengths(),         state(cell_.hidden)};
    if (cell_.kind == RecurrentCell::kLSTM) {
      inputs.push_back(state(cell_.memory));
      inputs.push_back(all_peepholes());
    }
    while (inputs.back() == nullptr) inputs.pop_back();
    Layer* const layer =
        writer_.network().add<Recurrence>(std::move(params), inputs, writer_.next_name());
    RecurrentCellLayers made;
    made.is_reverse = is_reverse;
    for (size_t i = 0; i < loop_.states.size(); ++i) made.last.push_back(last_of(i, *layer));
    for (size_t i = 0; i < loop_.stacked.size(); ++i) {
      SymShape shape = *outer_dims(*loop_.stacked[i]);
      shape.insert(shape.begin(), steps_);
      Tensor* y = writer_.reshape(layer->output(0), shape);
      if (const std::optional<Expr>& length = loop_.lengths[i]; length && !(*length == steps_))
        y = writer_.slice_axis(y, 0, 0, *length);
      made.stacked.push_back(y);
    }
    return made;
  }
  Tensor* last_of(size_t state, const Layer& layer) {
    Tensor* const first = loop_.first[state];
    if (kinds_[state] == StateKind::kFloat)
      return reshaped(layer.output(state == h() ? 1 : 2), first->dims());
    Tensor* const count = writer_.cast(reshaped(loop_.limit, first->dims()), first->dtype());
    return writer_.elementwise(ElementWiseOperation::kSUM, first,
                               writer_.elementwise(ElementWiseOperation::kMAX, count, 0.0));
  }

  enum class Place : uint8_t { kForward, kReverse };

  const RepeatedLayers& loop_;
  LayerWriter& writer_;
  std::vector<StateKind> kinds_;
  std::vector<size_t> floats_;
  std::optional<CellReader> reader_;
  std::vector<const Node*> next_;
  std::map<size_t, const Node*> stored_;  ///< with the condition that keeps the state
  const Tensor* condition_ = nullptr;
  Place place_ = Place::kForward;
  DataType type_ = DataType::kFLOAT;
  int64_t size_ = 0;
  Cell cell_;
  Expr steps_, batch_;
  std::vector<int64_t> offsets_;  ///< of the sources in the input, and their sum
};

}  // namespace

std::optional<RecurrentCellLayers> recognize_recurrence(const RepeatedLayers& loop,
                                                        LayerWriter& writer) {
  return Recognizer(loop, writer).run();
}

}  // namespace opwright
