#include "compile/profile_ranges.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/did_you_mean.h"
#include "base/error.h"
#include "symbolic/expr_program.h"

namespace opwright {
namespace {

// The largest range whose values are all tried, and the most work for that: values times
// operations. An expression has at least as many operations as it is deep.
constexpr int64_t kMaxEnumerated = 4096;
constexpr int64_t kMaxEnumeration = int64_t{1} << 21;

/// The numbers as a Python tuple or, joined by x, as the program takes a shape.
std::string written(const Shape& shape, ShapeSource source) {
  const bool is_tuple = source != ShapeSource::kProgram;
  std::string text;
  for (int i = 0; i < shape.rank(); ++i) text += str(i == 0 ? "" : is_tuple ? ", " : "x", shape[i]);
  return !is_tuple ? text : str('(', text, shape.rank() == 1 ? ",)" : ")");
}

/// An example of a range that a caller may give: "shapes={"x": ((1, 8), (4, 8), (16, 8))} (min,
/// opt, max)".
std::string example_range(const Tensor& input, ShapeSource source) {
  std::string ends;
  for (const int64_t extent : {1, 4, 16}) {
    Shape shape = input.shape();
    for (int64_t& each : shape)
      if (each < 0) each = extent;
    ends += (ends.empty()                      ? ""
             : source == ShapeSource::kProgram ? ","
                                               : ", ") +
            written(shape, source);
  }
  switch (source) {
    case ShapeSource::kPython:
      return str("shapes={\"", input.name(), "\": (", ends, ")} (min, opt, max), or example={\"",
                 input.name(), "\": array} for the shape of an array");
    case ShapeSource::kProgram:
      return str("--shapes ", input.name(), ':', ends, " (MIN,OPT,MAX, or one shape)");
    default:
      return str("set_shape(\"", input.name(), "\", ", ends, ") (min, opt, max)");
  }
}

std::string example_values(const Tensor& input, ShapeSource source) {
  switch (source) {
    case ShapeSource::kPython:
      return str("values={\"", input.name(), "\": (min, opt, max)}, each a list of integers, or ",
                 "example={\"", input.name(), "\": array} for those of an array");
    case ShapeSource::kProgram:
      return str("--shapes ", input.name(), ":MIN,OPT,MAX, each its values with an x between them");
    default:
      return str("set_shape_input(\"", input.name(), "\", min, opt, max)");
  }
}

/// The source's name, which begins a message.
const char* name_of(ShapeSource source) {
  return source == ShapeSource::kPython    ? "shapes"
         : source == ShapeSource::kProgram ? "--shapes"
                                           : "Optimization profile";
}

std::string no_range(ShapeSource source) {
  return source == ShapeSource::kProfile ? "No optimization profile gives" : "Nothing gives";
}

ProfileInput range_of(const Tensor& input, bool is_values, const OptimizationProfile* profile,
                      ShapeSource source) {
  if (is_values) {
    const OptimizationProfile::Range* range = profile ? profile->values(input.name()) : nullptr;
    require(range != nullptr, no_range(source), " the values of shape input '", input.name(),
            "', which decide shapes; add them with ", example_values(input, source));
    const int64_t count = constant_shape(input.dims()).numel();
    require(range->min.rank() == count, name_of(source), ": shape input '", input.name(), "' has ",
            count, " elements, ", range->min.rank(), " values are given");
    return {range->min, range->opt, range->max, true};
  }
  const Shape declared = input.shape();
  const OptimizationProfile::Range* range = profile ? profile->shape(input.name()) : nullptr;
  if (range == nullptr) {
    require(std::find(declared.begin(), declared.end(), -1) == declared.end(), no_range(source),
            " the shape of input '", input.name(), "', which is ", declared.str(),
            " (-1: open); add it with ", example_range(input, source));
    return {declared, declared, declared, false};
  }
  const bool is_one = range->min == range->max;
  const std::string given =
      is_one ? str("the shape ", range->min)
             : str("the shapes ", range->min, ", ", range->opt, " and ", range->max);
  require(range->min.rank() == declared.rank(), name_of(source), ": input '", input.name(), "' is ",
          declared, " in the network, of rank ", declared.rank(), "; ", given, ", of rank ",
          range->min.rank(), is_one ? ", is given" : ", are given");
  for (int i = 0; i < declared.rank(); ++i)
    require(declared[i] == -1 || (range->min[i] == declared[i] && range->max[i] == declared[i]),
            name_of(source), ": input '", input.name(), "' is ", declared, " in the network; ",
            given, is_one ? " is given" : " are given", ", but its extent ", i, " is ", declared[i],
            " in every run");
  return {range->min, range->opt, range->max, false};
}

void require_inputs_exist(const Network& network, const OptimizationProfile& profile,
                          ShapeSource source) {
  for (const std::string& name : profile.inputs()) {
    const Tensor* tensor = network.find_tensor(name);
    if (tensor != nullptr && tensor->is_network_input()) continue;
    std::string list;
    std::vector<std::string> known;
    for (const Tensor* input : network.inputs()) {
      known.push_back(input->name());
      list += (list.empty() ? "'" : ", '") + input->name() + "'";
    }
    fail(name_of(source), ": the network has no input '", name, "'; it has ",
         list.empty() ? "none" : list, did_you_mean(name, known));
  }
}

}  // namespace

ProfileRanges::ProfileRanges(const Network& network, const OptimizationProfile* profile,
                             ShapeSource source) {
  if (profile) require_inputs_exist(network, *profile, source);
  const SymbolTable& symbols = network.symbols();
  std::vector<bool> is_values(network.inputs().size());
  for (size_t i = 0; i < network.inputs().size(); ++i)
    input_numbers_.try_emplace(network.inputs()[i]->name(), i);
  for (int id = 0; id < symbols.size(); ++id)
    if (symbols[id].kind == Symbol::Kind::kInputValue) is_values[input_of(symbols[id])] = true;
  for (size_t i = 0; i < network.inputs().size(); ++i)
    inputs_.push_back(range_of(*network.inputs()[i], is_values[i], profile, source));
  follow(symbols);
  // Inputs that share a dimension must agree in it.
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].values) continue;
    const Tensor& tensor = *network.inputs()[i];
    for (int axis = 0; axis < tensor.rank(); ++axis) {
      const Expr& extent = tensor.dims()[axis];
      if (extent.op() == ExprOp::kSymbol) {
        const Symbol& symbol = symbols[extent.symbol_id()];
        const Place own{i, axis}, first{input_of(symbol), symbol.index};
        if (own != first) shared_.emplace(first, own);
      }
      require(extent.evaluate(opt_) == inputs_[i].opt[axis] &&
                  extent.evaluate(min_) == inputs_[i].min[axis] &&
                  extent.evaluate(max_) == inputs_[i].max[axis],
              "Optimization profile: extent ", axis, " of input '", tensor.name(), "' ranges over ",
              inputs_[i].min[axis], ", ", inputs_[i].opt[axis], ", ", inputs_[i].max[axis],
              ", but other inputs with the dimension '", tensor.dimension_name(axis),
              "' have another range");
    }
  }
}

size_t ProfileRanges::input_of(const Symbol& symbol) const {
  if (const auto found = input_numbers_.find(symbol.tensor); found != input_numbers_.end())
    return found->second;
  fail_with(ErrorCode::kINTERNAL_ERROR, "The dimension '", symbol.name,
            "' belongs to no network input");
}

void ProfileRanges::follow(const SymbolTable& symbols) {
  for (auto* each : {&min_, &opt_, &max_, &unwritten_}) each->clear();
  varies_.clear(), known_bounds_.clear(), intervals_.clear();
  has_sizes_ = false;
  for (int id = 0; id < symbols.size(); ++id) {
    const Symbol& symbol = symbols[id];
    if (symbol.kind == Symbol::Kind::kSizeTensor) {
      has_sizes_ = true;
      // An upper bound is an expression of earlier symbols.
      const Bounds upper = bounds(symbol.upper_bound);
      const int64_t opt = symbol.opt.evaluate(opt_);
      min_.push_back(0);
      opt_.push_back(std::clamp<int64_t>(opt, 0, upper.high));
      // A plan counts one element at the smallest shapes, even where there may be none.
      max_.push_back(std::max<int64_t>(1, upper.high));
      unwritten_.push_back(std::max<int64_t>(0, symbol.upper_bound.evaluate(opt_)));
      varies_.push_back(true);
      continue;
    }
    const ProfileInput& input = inputs_[input_of(symbol)];
    min_.push_back(input.min[symbol.index]);
    opt_.push_back(input.opt[symbol.index]);
    unwritten_.push_back(opt_.back());
    max_.push_back(input.max[symbol.index]);
    varies_.push_back(min_.back() != max_.back());
  }
}

bool ProfileRanges::may_agree(int a, int b) const {
  const auto x = static_cast<size_t>(a), y = static_cast<size_t>(b);
  return std::max(min_.at(x), min_.at(y)) <= std::min(max_.at(x), max_.at(y));
}

void ProfileRanges::agree(const SymbolTable& symbols, int a, int b) {
  const auto x = static_cast<size_t>(a), y = static_cast<size_t>(b);
  const int64_t least = std::max(min_.at(x), min_.at(y)), most = std::min(max_.at(x), max_.at(y));
  const int64_t opt = std::clamp(opt_[x], least, most);
  narrow(symbols, std::array{a, b}, least, opt, most);
}

void ProfileRanges::fix(const SymbolTable& symbols, int id, int64_t extent) {
  narrow(symbols, std::array{id}, extent, extent, extent);
}

void ProfileRanges::narrow(const SymbolTable& symbols, std::span<const int> ids, int64_t least,
                           int64_t opt, int64_t most) {
  const auto set = [&](const Place& place) {
    ProfileInput& input = inputs_[place.input];
    input.min[place.axis] = least, input.opt[place.axis] = opt, input.max[place.axis] = most;
  };
  for (const int id : ids) {
    const Place own{input_of(symbols[id]), symbols[id].index};
    set(own);
    for (auto [at, end] = shared_.equal_range(own); at != end; ++at) set(at->second);
  }
  if (has_sizes_) return follow(symbols);  // a size tensor's bounds follow from the other symbols
  for (const int id : ids) {
    const auto at = static_cast<size_t>(id);
    min_[at] = least, opt_[at] = unwritten_[at] = opt, max_[at] = most;
    varies_[at] = least != most;
  }
  known_bounds_ = {}, intervals_ = {};  // frees the buckets, too, which clear() would visit each
                                        // time
}

void ProfileRanges::set_opt(int symbol, int64_t value) {
  const auto at = static_cast<size_t>(symbol);
  opt_.at(at) = std::clamp(value, min_[at], max_[at]);
}

bool ProfileRanges::is_fixed(std::span<const Expr> dims) const {
  return std::ranges::none_of(dims, [&](const Expr& dim) { return dim.depends_on(varies_); });
}

ProfileRanges::Bounds ProfileRanges::interval_of_operation(const Expr& expr) const {
  // An operation that is monotonic in each operand has its extremes at the corners.
  auto corners = [&](Bounds a, Bounds b) {
    Bounds result{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
    for (int64_t x : {a.low, a.high})
      for (int64_t y : {b.low, b.high}) {
        const int64_t value = Expr::make(expr.op(), x, y).constant();
        result = {std::min(result.low, value), std::max(result.high, value)};
      }
    return result;
  };
  switch (expr.op()) {
    case ExprOp::kConstant:
      return {expr.constant(), expr.constant()};
    case ExprOp::kSymbol:
      return {min_.at(expr.symbol_id()), max_.at(expr.symbol_id())};
    case ExprOp::kSelect: {
      const Bounds condition = intervals_.at(expr.operand(0));
      const Bounds then_value = intervals_.at(expr.operand(1)),
                   else_value = intervals_.at(expr.operand(2));
      if (condition.low > 0 || condition.high < 0) return then_value;
      if (condition.low == 0 && condition.high == 0) return else_value;
      return {std::min(then_value.low, else_value.low), std::max(then_value.high, else_value.high)};
    }
    case ExprOp::kEqual:
    case ExprOp::kLess: {
      const Bounds a = intervals_.at(expr.operand(0)), b = intervals_.at(expr.operand(1));
      const bool is_less = expr.op() == ExprOp::kLess;
      const bool never = is_less ? a.low >= b.high : a.high < b.low || b.high < a.low;
      const bool always =
          is_less ? a.high < b.low : a.low == a.high && b.low == b.high && a.low == b.low;
      return {always ? 1 : 0, never ? 0 : 1};
    }
    case ExprOp::kFloorDiv:
    case ExprOp::kCeilDiv: {
      Bounds divisor = intervals_.at(expr.operand(1));
      // A division by zero is an error at run time.
      if (divisor.low <= 0 && divisor.high > 0) divisor.low = 1;
      require(divisor.low > 0 || divisor.high < 0,
              "A shape divides by an extent that is zero: ", expr.str());
      return corners(intervals_.at(expr.operand(0)), divisor);
    }
    case ExprOp::kSum:
    case ExprOp::kSub:
    case ExprOp::kProd:
    case ExprOp::kMax:
    case ExprOp::kMin:
    case ExprOp::kBroadcast: {  // monotonic for extents, too
      Bounds result = intervals_.at(expr.operand(0));
      for (int i = 1; i < expr.arity(); ++i)
        result = corners(result, intervals_.at(expr.operand(i)));
      return result;
    }
  }
  fail_with(ErrorCode::kINTERNAL_ERROR, "Unknown operation in the expression ", expr.str());
}

ProfileRanges::Bounds ProfileRanges::interval(const Expr& expr) const {
  // Computes operands first, each once and without recursion, because models may nest and share
  // them at will.
  std::vector<Expr> pending = {expr};
  while (!pending.empty()) {
    const Expr next = pending.back();
    const size_t count = pending.size();
    if (!intervals_.contains(next))
      for (int i = 0; i < next.arity(); ++i)
        if (!intervals_.contains(next.operand(i))) pending.push_back(next.operand(i));
    if (pending.size() > count) continue;
    Bounds bounds = interval_of_operation(next);
    if (next.op() == ExprOp::kSymbol) bounds.symbol = next.symbol_id();
    for (int i = 0; i < next.arity(); ++i) {
      const Bounds& operand = intervals_.at(next.operand(i));
      bounds.depth = std::max(bounds.depth, operand.depth + 1);
      if (operand.symbol == kNoSymbol || operand.symbol == bounds.symbol) continue;
      bounds.symbol = bounds.symbol == kNoSymbol ? operand.symbol : kSeveralSymbols;
    }
    intervals_.try_emplace(next, bounds);
    pending.pop_back();
  }
  return intervals_.at(expr);
}

ProfileRanges::Bounds ProfileRanges::bounds(const Expr& expr) const {
  if (expr.is_constant()) return {expr.constant(), expr.constant()};
  auto [known, added] = known_bounds_.try_emplace(expr);
  if (added) known->second = compute_bounds(expr);
  return known->second;
}

ProfileRanges::Bounds ProfileRanges::compute_bounds(const Expr& expr) const {
  const Bounds outer = interval(expr);
  if (outer.low == outer.high) return outer;
  const int symbol = outer.symbol;
  if (symbol < 0) return outer;
  int64_t range = 0;
  if (__builtin_sub_overflow(max_[symbol], min_[symbol], &range) || range > kMaxEnumerated ||
      range * outer.depth > kMaxEnumeration)
    return outer;
  ExprProgramBuilder program;
  const auto result = static_cast<size_t>(program.add(expr));
  const std::span<const ExprInstruction> instructions = program.instructions();
  if (range * static_cast<int64_t>(instructions.size()) > kMaxEnumeration) return outer;
  std::vector<int64_t> values = opt_, results(instructions.size());
  Bounds exact{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  for (values[symbol] = min_[symbol]; values[symbol] <= max_[symbol]; ++values[symbol]) {
    try {
      evaluate(instructions, values, results);
      const int64_t value = results[result];
      exact.low = std::min(exact.low, value), exact.high = std::max(exact.high, value);
    } catch (const Error&) {  // the runtime refuses this shape
      continue;
    }
  }
  return exact.low <= exact.high ? exact : outer;
}

Shape ProfileRanges::min(std::span<const Expr> dims) const {
  Shape shape;
  for (const Expr& extent : dims) shape.push_back(std::max<int64_t>(0, bounds(extent).low));
  return shape;
}

Shape ProfileRanges::opt(std::span<const Expr> dims) const { return evaluate(dims, opt_); }

Shape ProfileRanges::unwritten(std::span<const Expr> dims,
                               std::span<const int> size_symbols) const {
  std::vector<int64_t> values = opt_;
  for (int symbol : size_symbols)
    if (symbol >= 0) values[symbol] = unwritten_[symbol];
  return evaluate(dims, values);
}

Shape ProfileRanges::max(std::span<const Expr> dims) const {
  Shape shape;
  for (const Expr& extent : dims) shape.push_back(std::max<int64_t>(0, bounds(extent).high));
  return shape;
}

}  // namespace opwright
