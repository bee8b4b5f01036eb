#include "network/edit.h"

namespace opwright {

Network::Edit::Edit(Network& network) : network_(network), symbols_(network.symbols_) {}

Network::Edit::~Edit() {
  if (committed_) return;
  // Backwards, so that the first state that was saved is the one that stays.
  for (auto saved = saved_.rbegin(); saved != saved_.rend(); ++saved)
    *saved->first = std::move(saved->second);
  network_.symbols_ = std::move(symbols_);
}

void Network::Edit::commit() {
  for (const Tensor* tensor : changed_) network_.invalidate_users(*tensor);
  committed_ = true;
}

}  // namespace opwright
