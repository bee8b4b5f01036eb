#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "plan/plan.h"

namespace opwright {

/// A debug tensor as a run has computed it.
struct DebugView {
  const std::string& name;  ///< in the network
  const void* address;      ///< dense row-major elements; null where there are none
  TensorLocation location;  ///< whose address it is
  DataType type;            ///< of the network's tensor
  const Shape& shape;
  Queue queue;  ///< in whose order the elements are there
};

/// Called while a run goes on. False ends the run by an Error; what it throws does so, too, and
/// passes to the caller.
using DebugListener = std::function<bool(const DebugView&)>;

/// Which debug tensors of a plan a context shows, and to whom: at first none, and to nobody.
class DebugTensors {
 public:
  /// `plan` must outlive the object.
  explicit DebugTensors(const Plan& plan) : plan_(plan) {}

  /// Empty: nobody.
  void set_listener(DebugListener listener);
  /// Throws Error unless a tensor of that name was marked.
  void set_state(const std::string& name, bool on);
  bool state(const std::string& name) const { return on_.contains(name); }
  void set_all(bool on);
  /// Of all that steps write, where the network asked for that, and all that were marked.
  void set_unfused(bool on);
  bool unfused() const { return unfused_; }

  /// Whether runs have something to show.
  bool is_active() const { return is_active_; }
  bool shows(const DebugTensor& tensor) const { return unfused_ || on_.contains(tensor.name); }
  /// Throws the Error for a listener that refuses the tensor.
  void show(const DebugView& view) const;

 private:
  void update();

  const Plan& plan_;
  DebugListener listener_;
  std::set<std::string> on_;
  bool unfused_ = false;
  bool is_active_ = false;
};

/// The names of the tensors that were marked in the network.
std::vector<std::string> debug_names(const Plan& plan);
/// Whether a tensor of that name was marked in the network.
bool is_debug_tensor(const Plan& plan, std::string_view name);

}  // namespace opwright
