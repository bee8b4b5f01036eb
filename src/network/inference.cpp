// Types and shapes: infers them with the layers' operators, and finds what must be inferred again
// after a change.

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "base/error.h"
#include "network/network.h"

namespace opwright {
namespace {

std::string describe(const Layer& layer) {
  return str(layer.op()->kind(), " '", layer.name(), "'");
}

/// Throws Error unless an operator's answer is consistent. Plugins are foreign code.
void check_output(const Layer& layer, int index, const OutputInfo& info) {
  const auto reject = [&](const auto&... parts) {
    fail(describe(layer), ": output ", index, " ", parts...);
  };
  bits(info.dtype);  // throws for a type that does not exist
  if (info.dims.size() > static_cast<size_t>(Dims::MAX_DIMS))
    reject("has ", info.dims.size(), " dimensions, but at most ", Dims::MAX_DIMS, " are possible");
  for (const Expr& extent : info.dims)
    if (extent.is_constant() && extent.constant() < 0)
      reject("would have the shape ", info.dims, ", in which an extent is negative");
  if (is_constant(info.dims)) {
    int64_t count = 1, counted = 1;
    for (const Expr& extent : info.dims)
      if (extent.constant() == 0) counted = 0;
    for (const Expr& extent : info.dims)
      if (counted != 0 && __builtin_mul_overflow(count, extent.constant(), &count))
        reject("would have the shape ", info.dims, ", which has more elements than can be counted");
  }
  if (info.values) {
    const auto count = static_cast<int64_t>(info.values->size());
    if (count > TensorInfo::kMaxValues || info.dims.size() > TensorInfo::kMaxValuesRank ||
        !is_constant(info.dims) || numel(info.dims) != Expr(count))
      reject("of shape ", info.dims, " cannot have ", count, " known elements");
  }
  if (!info.constant.empty()) {
    const int64_t bytes = bytes_of(info.dtype, constant_shape(info.dims).numel());
    if (static_cast<int64_t>(info.constant.size()) != bytes)
      reject("of shape ", info.dims, " takes ", bytes, " bytes, but its constant has ",
             info.constant.size());
  }
  const int aliased = info.aliased_input;
  if (aliased != -1 && (aliased < 0 || aliased >= layer.num_inputs() || !layer.input(aliased)))
    reject("is aliased to input ", aliased, ", which does not exist");
}

/// Rethrows the exception in flight. The library's own errors get the layer's name unless they have
/// it; other exceptions keep their type.
[[noreturn]] void rethrow_naming(const Layer& layer) {
  try {
    throw;
  } catch (const Error& error) {
    const std::string message = error.what();
    if (message.find("'" + layer.name() + "'") != std::string::npos) throw;
    throw Error(error.code(), describe(layer) + ": " + message);
  }
}

}  // namespace

/// The context that one layer's operator gets for its inference.
class Network::LayerInference final : public InferContext {
 public:
  LayerInference(Network& network, const Layer& layer) : network_(network), layer_(layer) {
    for (size_t i = 0; i < layer.inputs_.size(); ++i) {
      const Tensor* const tensor = layer.inputs_[i];
      const bool is_known = tensor && !layer.op_->is_fed_back(static_cast<int>(i));
      infos_.push_back(is_known ? &tensor->info() : nullptr);
    }
    inputs = infos_;
    this->layer = layer.name();
  }

  std::vector<OutputInfo> run() {
    std::vector<OutputInfo> outputs = layer_.op_->infer(*this);
    for (size_t i = 0; i < outputs.size(); ++i)
      check_output(layer_, static_cast<int>(i), outputs[i]);
    for (const auto& [index, symbol] : declared_) {
      require(index < static_cast<int>(outputs.size()), describe(layer_), ": output ", index,
              " was declared a size tensor, but there are ", outputs.size(), " outputs");
      OutputInfo& output = outputs[static_cast<size_t>(index)];
      require(output.dims.empty() &&
                  (output.dtype == DataType::kINT32 || output.dtype == DataType::kINT64),
              describe(layer_), ": output ", index,
              " is a size tensor, so it must be a scalar of type INT32 or INT64, not of shape ",
              output.dims, " and type ", opwright::name(output.dtype));
      if (!output.values) output.values = std::make_shared<const std::vector<Expr>>(1, symbol);
    }
    forget_others();
    return outputs;
  }

  Expr declare_size_tensor(int output, const Expr& opt, const Expr& upper_bound) override {
    constexpr int kMaxOutputs = 1 << 16;
    require(output >= 0 && output < kMaxOutputs, describe(layer_), ": there is no output ", output,
            " to declare a size tensor");
    SymbolTable& symbols = network_.symbols_;
    const std::string tensor = output_name(output);
    Symbol symbol{Symbol::Kind::kSizeTensor, tensor, tensor, 0, opt, upper_bound};
    // The bounds are evaluated in the order of ids, so they may only refer to earlier symbols.
    if (const int id = symbols.find(symbol.kind, tensor, 0); id >= 0) {
      std::vector<bool> not_before(static_cast<size_t>(symbols.size()), false);
      std::fill(not_before.begin() + id, not_before.end(), true);
      if (opt.depends_on(not_before) || upper_bound.depends_on(not_before)) symbols.retire(id);
    }
    const Expr result = symbols.define(std::move(symbol));
    declared_.emplace_back(output, result);
    return result;
  }

  bool is_non_negative(int symbol) const override {
    return symbol >= 0 && symbol < network_.symbols_.size() &&
           network_.symbols_[symbol].kind != Symbol::Kind::kInputValue;
  }
  const SymbolTable* symbols() const override { return &network_.symbols_; }

 private:
  std::string output_name(int index) const {
    const auto i = static_cast<size_t>(index);
    return i < layer_.outputs_.size() ? layer_.outputs_[i]->name()
                                      : network_.unused_tensor_name(str(layer, "_output_", index));
  }

  /// Retires the symbols of outputs that are no longer size tensors.
  void forget_others() {
    for (size_t i = 0; i < layer_.outputs_.size(); ++i) {
      const auto is_this = [&](const auto& d) { return d.first == static_cast<int>(i); };
      if (std::any_of(declared_.begin(), declared_.end(), is_this)) continue;
      const int id =
          network_.symbols_.find(Symbol::Kind::kSizeTensor, layer_.outputs_[i]->name(), 0);
      if (id >= 0) network_.symbols_.retire(id);
    }
  }

  Network& network_;
  const Layer& layer_;
  std::vector<const TensorInfo*> infos_;
  std::vector<std::pair<int, Expr>> declared_;
};

void Network::resize_outputs(Layer& layer, size_t count) {
  for (size_t i = count; i < layer.outputs_.size(); ++i) {
    const Tensor& tensor = *layer.outputs_[i];
    require(!tensor.is_output_ && tensor.users_.empty(), describe(layer), ": would have ", count,
            " outputs, but its output '", tensor.name_, "' is in use");
  }
  while (layer.outputs_.size() > count) {
    Tensor& tensor = *layer.outputs_.back();
    if (const int id = symbols_.find(Symbol::Kind::kSizeTensor, tensor.name_, 0); id >= 0)
      symbols_.retire(id);
    by_name_.erase(tensor.name_);
    tensor.producer_ = nullptr;
    layer.outputs_.pop_back();
  }
  while (layer.outputs_.size() < count) {
    const size_t index = layer.outputs_.size();
    Tensor* tensor = new_tensor(unused_tensor_name(str(layer.name_, "_output_", index)));
    tensor->producer_ = &layer;
    tensor->producer_output_ = static_cast<int>(index);
    layer.outputs_.push_back(tensor);
  }
}

/// Calls `function` for each input that a layer makes and that this layer depends on.
template <class Function>
void Network::each_source(const Layer& layer, Function&& function) {
  for (size_t i = 0; i < layer.inputs_.size(); ++i) {
    const Tensor* const tensor = layer.inputs_[i];
    if (tensor && tensor->producer_ && !layer.op_->is_fed_back(static_cast<int>(i)))
      function(*tensor);
  }
}

void Network::infer_outputs(Layer& layer) {
  std::vector<OutputInfo> outputs;
  try {
    outputs = LayerInference(*this, layer).run();
  } catch (...) {
    rethrow_naming(layer);
  }
  resize_outputs(layer, outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    Tensor& tensor = *layer.outputs_[i];
    tensor.aliased_input_ = outputs[i].aliased_input;
    tensor.info_ = std::move(static_cast<TensorInfo&>(outputs[i]));
  }
  layer.inferred_ = true;
}

void Network::infer(Layer& layer) {
  std::vector<Layer*> pending = {&layer};  // each precedes the layers that it needs
  while (!pending.empty()) {
    Layer& next = *pending.back();
    const size_t before = pending.size();
    if (!next.inferred_)
      each_source(next, [&](const Tensor& tensor) {
        if (!tensor.producer_->inferred_) pending.push_back(tensor.producer_);
      });
    if (pending.size() > before) continue;
    pending.pop_back();
    if (!next.inferred_) infer_outputs(next);
  }
}

void Network::infer() const {
  for (const auto& layer : layers_) layer->infer();
}

bool Network::fits() const {
  try {
    infer();
  } catch (const std::exception&) {  // a plugin may throw any exception
    return false;
  }
  return true;
}

void Network::invalidate(Layer& layer) {
  std::vector<Layer*> pending = {&layer};
  while (!pending.empty()) {
    Layer& next = *pending.back();
    pending.pop_back();
    // The users of a layer that is not inferred are not inferred either.
    if (!std::exchange(next.inferred_, false)) continue;
    for (const Tensor* tensor : next.outputs_)
      pending.insert(pending.end(), tensor->users_.begin(), tensor->users_.end());
  }
}

void Network::invalidate_users(const Tensor& tensor) {
  for (Layer* user : tensor.users_) invalidate(*user);
}

std::vector<Layer*> Network::topological_order() const {
  std::vector<Layer*> order;
  order.reserve(layers_.size());
  if (in_order_) {
    for (const auto& layer : layers_) order.push_back(layer.get());
    return order;
  }
  // Kahn's algorithm. Among the layers that are ready, the one that was added first comes first.
  std::vector<int> waiting(layers_.size(), 0);
  std::vector<std::vector<int>> users(layers_.size());
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (const auto& layer : layers_) {
    each_source(*layer, [&](const Tensor& tensor) {
      ++waiting[static_cast<size_t>(layer->index_)];
      users[static_cast<size_t>(tensor.producer_->index_)].push_back(layer->index_);
    });
    if (waiting[static_cast<size_t>(layer->index_)] == 0) ready.push(layer->index_);
  }
  while (!ready.empty()) {
    const auto index = static_cast<size_t>(ready.top());
    ready.pop();
    order.push_back(layers_[index].get());
    for (const int user : users[index])
      if (--waiting[static_cast<size_t>(user)] == 0) ready.push(user);
  }
  return order;
}

bool Network::depends_on(const Tensor& tensor, const Layer& layer) const {
  if (!tensor.producer_ || (in_order_ && tensor.producer_->index_ < layer.index_)) return false;
  std::vector<const Layer*> pending;
  std::vector<bool> seen(layers_.size(), false);
  const auto visit = [&](const Tensor& t) {
    if (seen[static_cast<size_t>(t.producer_->index_)]) return;
    seen[static_cast<size_t>(t.producer_->index_)] = true;
    pending.push_back(t.producer_);
  };
  visit(tensor);
  while (!pending.empty()) {
    const Layer* current = pending.back();
    pending.pop_back();
    if (current == &layer) return true;
    each_source(*current, visit);
  }
  return false;
}

}  // namespace opwright
