#include <algorithm>
#include <utility>

#include "base/error.h"
#include "network/network.h"

namespace opwright {

void Layer::set_name(std::string name) {
  network_->layer_names_.insert(name);
  name_ = std::move(name);
}

void Layer::set_precision(DataType type) {
  bits(type);  // throws for a type that does not exist
  require(!network_->flags_.strongly_typed, "layer '", name_,
          "': the network is strongly typed, so its tensors say what layers compute in; add casts");
  precision_ = type;
}

DataType Layer::computed_in() const {
  if (precision_) return *precision_;
  for (const std::vector<Tensor*>* tensors : {&inputs_, &outputs_})
    for (const Tensor* tensor : *tensors)
      if (tensor && is_floating(tensor->dtype())) return tensor->dtype();
  for (const std::vector<Tensor*>* tensors : {&inputs_, &outputs_})
    for (const Tensor* tensor : *tensors)
      if (tensor) return tensor->dtype();
  return DataType::kFLOAT;
}

Tensor* Layer::input(int index) const {
  require(index >= 0 && index < num_inputs(), "layer '", name_, "' has no input ", index,
          ": it has ", num_inputs());
  return inputs_[static_cast<size_t>(index)];
}

Tensor* Layer::output(int index) const {
  require(index >= 0 && index < num_outputs(), "layer '", name_, "' has no output ", index,
          ": it has ", num_outputs());
  return outputs_[static_cast<size_t>(index)];
}

template <class Undo>
void Layer::changed(Undo&& undo) {
  network_->invalidate(*this);
  try {
    if (const std::optional<int> count = op_->num_outputs())
      network_->resize_outputs(*this, static_cast<size_t>(*count));
    else
      infer();
  } catch (...) {
    undo();
    throw;
  }
}

void Layer::set_input(int index, Tensor* tensor) {
  constexpr int kMaxGap = 1024;  // limits the list: a wrong index is an error
  require(index >= 0 && index <= num_inputs() + kMaxGap, "layer '", name_, "' has no input ", index,
          ": it has ", num_inputs());
  if (tensor) {
    network_->check_usable(*tensor);
    require(op_->is_fed_back(index) || !network_->depends_on(*tensor, *this), "layer '", name_,
            "': its input ", index, " cannot be '", tensor->name(),
            "', which depends on the layer itself");
  }
  const bool in_order = network_->in_order_;
  std::vector<Tensor*> inputs = inputs_;
  const auto i = static_cast<size_t>(index);
  if (i >= inputs.size()) inputs.resize(i + 1, nullptr);
  Tensor* const before = std::exchange(inputs[i], tensor);
  if (tensor && tensor->producer_ && tensor->producer_->index_ > index_ && !op_->is_fed_back(index))
    network_->in_order_ = false;
  inputs_.swap(inputs);
  changed([&] {
    inputs_.swap(inputs);
    network_->in_order_ = in_order;
  });
  if (before) before->users_.erase(std::ranges::find(before->users_, this));
  if (tensor) tensor->users_.push_back(this);
}

void Layer::set_op(OperatorPtr op) {
  require(op != nullptr, "layer '", name_, "' needs an operator");
  WeightNames& names = network_->weight_names_;
  const auto exchange = [&] {
    names.forget_elements(*this);
    op_.swap(op);
    names.add_elements(*this);
  };
  exchange();
  changed(exchange);
}

void Layer::infer() {
  if (!inferred_) network_->infer(*this);
}

}  // namespace opwright
