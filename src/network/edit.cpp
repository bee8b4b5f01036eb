#include "network/edit.h"

namespace opwright {

Network::Edit::Edit(Network& network) : network_(network), symbols_(network.symbols_) {}

Network::Edit::~Edit() {
  if (committed_) return;
  // Restores backwards, so that the first saved state is restored last.
  for (auto saved = saved_.rbegin(); saved != saved_.rend(); ++saved)
    *saved->first = std::move(saved->second);
  network_.symbols_ = std::move(symbols_);
}

void Network::Edit::commit() {
  for (const Tensor* tensor : changed_) network_.invalidate_users(*tensor);
  committed_ = true;
}

}  // namespace opwright
