#include "base/error.h"
#include "network/edit.h"

namespace opwright {

void Layer::set_name(std::string name) {
  network_->layer_names_.insert(name);
  name_ = std::move(name);
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

void Layer::set_input(int index, Tensor* tensor) {
  constexpr int kMaxGap = 1024;  // so that a wrong index is an error and not a list of that length
  require(index >= 0 && index <= num_inputs() + kMaxGap, "layer '", name_, "' has no input ", index,
          ": it has ", num_inputs());
  if (tensor) {
    network_->check_usable(*tensor);
    require(!network_->depends_on(*tensor, *this), "layer '", name_, "': its input ", index,
            " cannot be '", tensor->name(), "', which depends on the layer itself");
  }
  Network::Edit edit(*network_, Network::Edit::Scope::kAny);
  edit.save(*this);
  const auto i = static_cast<size_t>(index);
  if (i >= inputs_.size()) inputs_.resize(i + 1, nullptr);
  inputs_[i] = tensor;
  if (tensor && tensor->producer_ && tensor->producer_->index_ > index_)
    network_->in_order_ = false;
  network_->infer_again(edit, this);
  edit.commit();
}

void Layer::set_op(OperatorPtr op) {
  require(op != nullptr, "layer '", name_, "' needs an operator");
  Network::Edit edit(*network_, Network::Edit::Scope::kAny);
  edit.save(*this);
  op_ = std::move(op);
  network_->infer_again(edit, this);
  edit.commit();
}

}  // namespace opwright
