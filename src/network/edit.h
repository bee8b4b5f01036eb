#pragma once

#include <utility>
#include <vector>

#include "network/network.h"

namespace opwright {

/// A change of network inputs. The destructor reverts it unless it was committed.
class Network::Edit {
 public:
  explicit Edit(Network& network);
  ~Edit();
  Edit(const Edit&) = delete;
  Edit& operator=(const Edit&) = delete;

  /// Saves the tensor. Called before any change to it.
  void save(Tensor& tensor) { saved_.emplace_back(&tensor, tensor); }
  /// Notes that the tensor's type, shape or contents changed, so that its users are inferred again.
  void mark_changed(const Tensor& tensor) { changed_.push_back(&tensor); }
  void commit();

 private:
  Network& network_;
  SymbolTable symbols_;
  bool committed_ = false;
  std::vector<std::pair<Tensor*, Tensor>> saved_;
  std::vector<const Tensor*> changed_;
};

}  // namespace opwright
