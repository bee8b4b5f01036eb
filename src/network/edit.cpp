#include "network/edit.h"

namespace opwright {

Network::Edit::Edit(Network& network, Scope scope)
    : network_(network),
      tensor_count_(network.tensors_.size()),
      symbol_count_(network.symbols_.size()),
      in_order_(network.in_order_) {
  if (scope == Scope::kAny) symbols_ = network.symbols_;
}

Network::Edit::~Edit() {
  if (committed_) return;
  while (network_.tensors_.size() > tensor_count_) {
    network_.by_name_.erase(network_.tensors_.back()->name_);
    network_.tensors_.pop_back();
  }
  // Backwards, so that the first state that was saved is the one that stays. Names do not change
  // within an edit, but outputs that are gone gave theirs back.
  for (auto saved = tensors_.rbegin(); saved != tensors_.rend(); ++saved) {
    *saved->first = std::move(saved->second);
    if (saved->first->is_input_ || saved->first->producer_)
      network_.by_name_[saved->first->name_] = saved->first;
  }
  for (auto saved = layers_.rbegin(); saved != layers_.rend(); ++saved) {
    saved->layer->op_ = std::move(saved->op);
    saved->layer->inputs_ = std::move(saved->inputs);
    saved->layer->outputs_ = std::move(saved->outputs);
  }
  network_.in_order_ = in_order_;
  if (symbols_)
    network_.symbols_ = std::move(*symbols_);
  else
    network_.symbols_.truncate(symbol_count_);
}

void Network::Edit::save(Tensor& tensor) { tensors_.emplace_back(&tensor, tensor); }

void Network::Edit::save(Layer& layer) {
  layers_.push_back({&layer, layer.op_, layer.inputs_, layer.outputs_});
}

}  // namespace opwright
