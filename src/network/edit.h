#pragma once

#include <optional>
#include <unordered_set>
#include <vector>

#include "network/network.h"

namespace opwright {

/// A change of a network that is taken back on destruction unless it was committed: how a failed
/// inference leaves everything as it was.
class Network::Edit {
 public:
  enum class Scope {
    kAddLayer,  ///< only adds symbols and tensors
    kAny,
  };
  Edit(Network& network, Scope scope);
  ~Edit();
  Edit(const Edit&) = delete;
  Edit& operator=(const Edit&) = delete;

  /// Call before changing anything of it.
  void save(Tensor& tensor);
  void save(Layer& layer);
  /// Whether the tensor's type, shape or contents changed in a way that others have to know.
  void mark_changed(const Tensor& tensor) { changed_.insert(&tensor); }
  bool is_changed(const Tensor* tensor) const { return changed_.contains(tensor); }
  bool has_changes() const { return !changed_.empty(); }
  void commit() { committed_ = true; }

 private:
  struct SavedLayer {
    Layer* layer;
    OperatorPtr op;
    std::vector<Tensor*> inputs, outputs;
  };

  Network& network_;
  size_t tensor_count_;
  int symbol_count_;
  bool in_order_;
  bool committed_ = false;
  std::optional<SymbolTable> symbols_;
  std::vector<std::pair<Tensor*, Tensor>> tensors_;
  std::vector<SavedLayer> layers_;
  std::unordered_set<const Tensor*> changed_;
};

}  // namespace opwright
