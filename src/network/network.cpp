#include "network/network.h"

#include <algorithm>

#include "base/error.h"
#include "network/constant.h"
#include "network/edit.h"
#include "opwright/network.h"

namespace opwright {
namespace {

/// The layer of an operator that has no parameters to change.
class OperatorLayer final : public Layer {};

}  // namespace

NetworkFlags network_flags(uint32_t bits) {
  using Flag = NetworkDefinitionCreationFlag;
  const auto has = [bits](Flag flag) { return (bits >> static_cast<int>(flag) & 1) != 0; };
  NetworkFlags flags;
  flags.strongly_typed = has(Flag::kSTRONGLY_TYPED);
  flags.prefer_aot_python_plugins = has(Flag::kPREFER_AOT_PYTHON_PLUGINS);
  flags.prefer_jit_python_plugins = has(Flag::kPREFER_JIT_PYTHON_PLUGINS);
  flags.bits = bits;
  return flags;
}

std::unique_ptr<Layer> Operator::make_layer() const { return std::make_unique<OperatorLayer>(); }

Network::Network(NetworkFlags flags, std::shared_ptr<IPluginRegistry> plugins, Log log)
    : flags_(flags), plugins_(std::move(plugins)), errors_(log) {}

Network::~Network() = default;

Tensor* Network::new_tensor(std::string name) {
  tensors_.push_back(std::unique_ptr<Tensor>(new Tensor(*this, name)));
  Tensor* tensor = tensors_.back().get();
  by_name_.emplace(std::move(name), tensor);
  return tensor;
}

Tensor* Network::find_tensor(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : found->second;
}

std::string Network::unused_tensor_name(const std::string& wanted) const {
  if (!by_name_.contains(wanted)) return wanted;
  int& suffix = next_suffix_.try_emplace(wanted, 2).first->second;
  std::string name = str(wanted, '_', suffix);
  while (by_name_.contains(name)) name = str(wanted, '_', ++suffix);
  return name;
}

void Network::check_usable(const Tensor& tensor) const {
  require(tensor.network_ == this, "tensor '", tensor.name_, "' belongs to another network");
  require(tensor.is_input_ || tensor.producer_, "tensor '", tensor.name_,
          "' is no longer part of the network: it was removed, or its layer has fewer outputs now");
}

void Network::rename(Tensor& tensor, std::string name) {
  check_usable(tensor);
  if (name == tensor.name_) return;
  require(!name.empty(), "tensor '", tensor.name_, "' cannot get an empty name");
  require(!by_name_.contains(name), "tensor '", tensor.name_, "' cannot be named '", name,
          "': another tensor has this name");
  by_name_.erase(tensor.name_);
  by_name_.emplace(name, &tensor);
  const std::set<int> own = symbols_.of_tensor(tensor.name_);
  for (const int id : own) {
    Symbol symbol = symbols_[id];
    symbol.tensor = name;
    // Symbol names that were made from the tensor's name follow it; names of dimensions stay.
    if (symbol.name.starts_with(tensor.name_) && symbol.kind != Symbol::Kind::kInputExtent)
      symbol.name.replace(0, tensor.name_.size(), name);
    if (symbol.name == str(tensor.name_, '.', symbol.index))
      symbol.name = str(name, '.', symbol.index);
    symbols_.replace(id, std::move(symbol));
  }
  tensor.name_ = std::move(name);
}

Tensor* Network::add_input(std::string name, DataType dtype, const Shape& shape) {
  require(!name.empty(), "a network input needs a name");
  require(!by_name_.contains(name), "there is a tensor named '", name, "' already");
  bits(dtype);  // throws for a type that does not exist
  for (const int64_t extent : shape)
    require(extent >= -1, "input '", name, "': extents are -1 or not negative, but shape ", shape,
            " has ", extent);
  Tensor* tensor = new_tensor(std::move(name));
  tensor->is_input_ = true;
  tensor->info_.dtype = dtype;
  tensor->declared_shape_ = shape;
  tensor->dimension_names_.resize(static_cast<size_t>(shape.rank()));
  inputs_.push_back(tensor);
  if (bind_new_input(*tensor)) return tensor;
  Edit edit(*this);
  bind_inputs(edit);
  edit.commit();
  return tensor;
}

/// Does the work of bind_inputs() for a new input that shares no dimension with other inputs,
/// without looking at them all. False if it shares one.
bool Network::bind_new_input(Tensor& tensor) {
  const auto name_of = [&](int axis) { return str(tensor.name_, '.', axis); };
  const int rank = tensor.declared_shape_.rank();
  if (!symbols_.of_tensor(tensor.name_).empty()) return false;
  for (int axis = 0; axis < rank; ++axis)
    if (tensor.declared_shape_[axis] < 0 && !symbols_.named(name_of(axis)).empty()) return false;
  SymShape dims;
  for (int axis = 0; axis < rank; ++axis) {
    const int64_t extent = tensor.declared_shape_[axis];
    dims.push_back(
        extent >= 0 ? Expr(extent)
                    : symbols_.append(
                          {Symbol::Kind::kInputExtent, name_of(axis), tensor.name_, axis, {}, {}}));
  }
  tensor.info_.dims = std::move(dims);
  return true;
}

/// Does the work of bind_inputs() when an input without names of dimensions gets another shape.
/// False in any other case.
bool Network::bind_shape(Tensor& tensor, const Shape& shape) {
  const auto is_given = [](const std::string& name) { return !name.empty(); };
  if (tensor.is_shape_input_ || std::ranges::any_of(tensor.dimension_names_, is_given))
    return false;
  const int most = std::max(shape.rank(), tensor.declared_shape_.rank());
  for (int axis = 0; axis < most; ++axis)
    if (has_given_name(tensor, axis)) return false;
  SymShape dims;
  for (int axis = 0; axis < shape.rank(); ++axis)
    dims.push_back(shape[axis] >= 0 ? Expr(shape[axis])
                                    : symbols_.define({Symbol::Kind::kInputExtent,
                                                       str(tensor.name_, '.', axis),
                                                       tensor.name_,
                                                       axis,
                                                       {},
                                                       {}}));
  const std::set<int> own = symbols_.of_tensor(tensor.name_);
  for (const int id : own)
    if (symbols_[id].index >= shape.rank()) symbols_.retire(id);
  tensor.declared_shape_ = shape;
  tensor.dimension_names_.resize(static_cast<size_t>(shape.rank()));
  if (dims == tensor.info_.dims) return true;
  tensor.info_.dims = std::move(dims);
  invalidate_users(tensor);
  return true;
}

/// Whether some dimension was ever given the name that this one has by default.
bool Network::has_given_name(const Tensor& tensor, int axis) const {
  return given_names_.contains(str(tensor.name_, '.', axis));
}

/// Does the work of bind_inputs() when a dimension gets its first name. It takes the symbol of an
/// earlier input with this name, or keeps its own under the new name. False in any other case.
bool Network::bind_first_name(Tensor& tensor, int axis, const std::string& name) {
  const auto a = static_cast<size_t>(axis);
  given_names_.insert(name);
  if (tensor.is_shape_input_ || name.empty() || !tensor.dimension_names_[a].empty() ||
      has_given_name(tensor, axis))
    return false;
  if (tensor.declared_shape_[axis] >= 0) return true;
  const Expr own = tensor.info_.dims[a];
  if (own.op() != ExprOp::kSymbol) return false;
  Symbol symbol = symbols_[own.symbol_id()];
  const auto is_of = [](const Symbol& each, const Tensor& owner, int index) {
    return each.kind == Symbol::Kind::kInputExtent && each.tensor == owner.name_ &&
           each.index == index;
  };
  if (!is_of(symbol, tensor, axis)) return false;
  const std::set<int>& named = symbols_.named(name);
  if (named.empty()) {
    if (std::count(tensor.info_.dims.begin(), tensor.info_.dims.end(), own) != 1) return false;
    symbol.name = name;
    symbols_.replace(own.symbol_id(), std::move(symbol));
    return true;
  }
  if (named.size() > 1) return false;
  const int id = *named.begin();
  const Symbol& shared = symbols_[id];
  const Tensor* owner = find_tensor(shared.tensor);
  if (owner == nullptr || !owner->is_input_ || (owner == &tensor && shared.index >= axis) ||
      !is_of(shared, *owner, shared.index) || shared.index >= owner->declared_shape_.rank() ||
      owner->info_.dims[static_cast<size_t>(shared.index)] != Expr::symbol(id) ||
      std::ranges::find(inputs_, owner) > std::ranges::find(inputs_, &tensor))
    return false;
  tensor.info_.dims[a] = Expr::symbol(id);
  invalidate_users(tensor);
  return true;
}

void Network::bind_inputs(Edit& edit) {
  using Kind = Symbol::Kind;
  std::unordered_map<std::string, Expr> by_dimension;
  std::vector<bool> claimed(static_cast<size_t>(symbols_.size()), false);

  // The tensor keeps its symbol where it can, so that expressions elsewhere stay valid.
  const auto extent_symbol = [&](const Tensor& tensor, int axis) {
    const std::string& given = tensor.dimension_names_[static_cast<size_t>(axis)];
    const std::string name = given.empty() ? str(tensor.name_, '.', axis) : given;
    if (const auto shared = by_dimension.find(name); shared != by_dimension.end())
      return shared->second;
    claimed.resize(static_cast<size_t>(symbols_.size()), false);
    int id = -1;
    if (axis < tensor.rank() &&
        tensor.info_.dims[static_cast<size_t>(axis)].op() == ExprOp::kSymbol)
      id = tensor.info_.dims[static_cast<size_t>(axis)].symbol_id();
    if (id < 0 || claimed[static_cast<size_t>(id)])
      id = symbols_.find(Kind::kInputExtent, tensor.name_, axis);
    Symbol symbol{Kind::kInputExtent, name, tensor.name_, axis, {}, {}};
    Expr result;
    if (id >= 0 && !claimed[static_cast<size_t>(id)]) {
      symbols_.replace(id, std::move(symbol));
      result = Expr::symbol(id);
    } else {
      result = symbols_.append(std::move(symbol));
      id = result.symbol_id();
      claimed.push_back(false);
    }
    claimed[static_cast<size_t>(id)] = true;
    by_dimension.emplace(name, result);
    return result;
  };

  for (Tensor* tensor : inputs_) {
    SymShape dims;
    for (int axis = 0; axis < tensor->declared_shape_.rank(); ++axis) {
      const int64_t extent = tensor->declared_shape_[axis];
      dims.push_back(extent >= 0 ? Expr(extent) : extent_symbol(*tensor, axis));
    }
    std::shared_ptr<const std::vector<Expr>> values;
    if (tensor->is_shape_input_) {
      const Shape& shape = tensor->declared_shape_;
      require(tensor->info_.dtype == DataType::kINT32 || tensor->info_.dtype == DataType::kINT64,
              "input '", tensor->name_,
              "': elements that determine shapes are INT32 or INT64, not ",
              opwright::name(tensor->info_.dtype));
      require(shape.rank() <= 1 && is_constant(dims) && shape.numel() <= TensorInfo::kMaxValues,
              "input '", tensor->name_,
              "': elements that determine shapes need a rank of 0 or 1 and a constant extent of at "
              "most ",
              TensorInfo::kMaxValues, ", but the shape is ", shape);
      auto elements = std::make_shared<std::vector<Expr>>();
      for (int i = 0; i < shape.numel(); ++i)
        elements->push_back(symbols_.define(
            {Kind::kInputValue, str(tensor->name_, '[', i, ']'), tensor->name_, i, {}, {}}));
      values = std::move(elements);
    }
    const bool same_values = tensor->info_.values && values ? *tensor->info_.values == *values
                                                            : tensor->info_.values == values;
    if (dims == tensor->info_.dims && same_values) continue;
    edit.save(*tensor);
    edit.mark_changed(*tensor);
    tensor->info_.dims = std::move(dims);
    tensor->info_.values = std::move(values);
  }

  // Retires symbols that do not stand for an extent or element any more.
  for (int id = 0; id < symbols_.size(); ++id) {
    const Symbol& symbol = symbols_[id];
    if (symbol.kind == Kind::kSizeTensor) continue;
    const Tensor* tensor = find_tensor(symbol.tensor);
    const bool is_value = symbol.kind == Kind::kInputValue;
    const int64_t count = !tensor || tensor->is_shape_input_ != is_value ? 0
                          : is_value ? tensor->declared_shape_.numel()
                                     : tensor->declared_shape_.rank();
    if (symbol.index >= count) symbols_.retire(id);
  }
}

void Network::make_shape_input(Tensor& tensor, bool decides_shapes) {
  check_usable(tensor);
  require(tensor.is_input_, "tensor '", tensor.name_,
          "': only network inputs can be declared to determine shapes");
  if (tensor.is_shape_input_ == decides_shapes) return;
  Edit edit(*this);
  edit.save(tensor);
  tensor.is_shape_input_ = decides_shapes;
  bind_inputs(edit);
  edit.commit();
}

void Network::mark_output(Tensor& tensor) {
  check_usable(tensor);
  require(!tensor.is_input_, "tensor '", tensor.name_,
          "' is a network input and cannot be an output; add an identity layer");
  require(!tensor.is_output_, "tensor '", tensor.name_, "' is a network output already");
  outputs_.push_back(&tensor);
  tensor.is_output_ = true;
}

void Network::unmark_output(Tensor& tensor) {
  check_usable(tensor);
  require(tensor.is_output_, "tensor '", tensor.name_, "' is no network output");
  std::erase(outputs_, &tensor);
  tensor.is_output_ = false;
}

bool Network::mark_output_for_shapes(Tensor& tensor) {
  check_usable(tensor);
  if (!tensor.is_shape_tensor() || tensor.is_input_) return false;
  if (!tensor.is_output_) mark_output(tensor);
  return true;
}

bool Network::unmark_output_for_shapes(Tensor& tensor) {
  check_usable(tensor);
  if (!tensor.is_output_ || !tensor.is_shape_tensor()) return false;
  unmark_output(tensor);
  return true;
}

void Network::remove_tensor(Tensor& tensor) {
  check_usable(tensor);
  if (!tensor.is_input_ || !tensor.users_.empty()) {
    errors_.log().warning("remove_tensor: '", tensor.name_, "' stays, because it is the ",
                          tensor.is_input_ ? "input" : "output",
                          " of a layer; only network inputs that nothing uses can be removed");
    return;
  }
  std::erase(inputs_, &tensor);
  by_name_.erase(tensor.name_);
  tensor.is_input_ = false;
  if (symbols_.of_tensor(tensor.name_).empty()) return;
  Edit edit(*this);
  bind_inputs(edit);
  edit.commit();
}

void Network::mark_debug(Tensor& tensor, bool debug) {
  check_usable(tensor);
  tensor.is_debug_ = debug;
}

Layer* Network::add_layer(OperatorPtr op, std::span<Tensor* const> inputs, std::string name) {
  require(op != nullptr, "layer '", name, "' needs an operator");
  std::unique_ptr<Layer> layer = op->make_layer();
  Layer* added = layer.get();
  insert(std::move(layer), std::move(op), inputs, std::move(name));
  return added;
}

void Network::insert(std::unique_ptr<Layer> layer, OperatorPtr op, std::span<Tensor* const> inputs,
                     std::string name) {
  require(op != nullptr, "layer '", name, "' needs an operator");
  const std::string kind(op->kind());
  for (int number = num_layers(); name.empty(); ++number)
    if (std::string unused = str(kind, ' ', number); !layer_names_.contains(unused))
      name = std::move(unused);
  try {
    for (const Tensor* tensor : inputs)
      if (tensor) check_usable(*tensor);
  } catch (const Error& error) {
    fail_with(error.code(), kind, " '", name, "': ", error.what());
  }
  layer->network_ = this;
  layer->index_ = num_layers();
  layer->name_ = name;
  layer->op_ = std::move(op);
  layer->inputs_.assign(inputs.begin(), inputs.end());
  if (const std::optional<int> count = layer->op_->num_outputs()) {
    resize_outputs(*layer, static_cast<size_t>(*count));
  } else {
    for (const Tensor* tensor : inputs)
      if (tensor) tensor->info();
    const int symbols = symbols_.size();
    try {
      infer_outputs(*layer);
    } catch (...) {
      symbols_.truncate(symbols);
      throw;
    }
  }
  for (Tensor* tensor : inputs)
    if (tensor) tensor->users_.push_back(layer.get());
  layer_names_.insert(std::move(name));
  weight_names_.add_elements(*layer);
  layers_.push_back(std::move(layer));
}

void Network::remove_layers_from(int first) {
  for (int i = first; i < num_layers(); ++i)
    for (const Tensor* tensor : layers_[static_cast<size_t>(i)]->outputs_) {
      require(!tensor->is_output_, "output '", tensor->name_,
              "' of the network needs a layer that ", "is to be taken out");
      for (const Layer* user : tensor->users_)
        require(user->index_ >= first, "layer '", user->name_,
                "' needs one that is to be taken out");
    }
  while (num_layers() > first) {
    Layer& layer = *layers_.back();
    for (Tensor* tensor : layer.inputs_) {
      if (tensor == nullptr) continue;
      const auto use = std::find(tensor->users_.begin(), tensor->users_.end(), &layer);
      if (use != tensor->users_.end()) tensor->users_.erase(use);
    }
    // Users come later, except for layers whose inputs were replaced. Those are being removed, too.
    for (Tensor* tensor : layer.outputs_) tensor->users_.clear();
    resize_outputs(layer, 0);
    layer_names_.erase(layer.name_);
    weight_names_.forget(layer);
    layers_.pop_back();
  }
}

Tensor* Network::add_constant(DataType dtype, const Shape& shape, Blob data, std::string name) {
  return add<Constant>({dtype, shape, std::move(data)}, {}, std::move(name))->output(0);
}

Tensor* Network::add_values(std::vector<Expr> values, DataType dtype, bool scalar,
                            std::string name) {
  return add<Values>({std::move(values), dtype, scalar}, {}, std::move(name))->output(0);
}

}  // namespace opwright
