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
  const std::string& name;  ///< the tensor's name in the network
  const void* address;      ///< dense row-major elements; null where there are none
  TensorLocation location;  ///< where `address` lies
  DataType type;            ///< the type in the network
  const Shape& shape;
  Queue queue;  ///< the elements are there in the order of this queue
};

/// Called during a run. False ends the run with an Error. An exception ends the run, too, and
/// passes to the caller.
using DebugListener = std::function<bool(const DebugView&)>;

/// The debug tensors of a plan that a context shows, and the listener that sees them. At first
/// there are none.
class DebugTensors {
 public:
  /// `plan` must outlive the object.
  explicit DebugTensors(const Plan& plan) : plan_(plan) {}

  /// Empty: there is no listener.
  void set_listener(DebugListener listener);
  /// Throws Error unless a tensor of that name was marked.
  void set_state(const std::string& name, bool on);
  bool state(const std::string& name) const { return on_.contains(name); }
  void set_all(bool on);
  /// Shows all marked tensors, and all tensors that steps write where the network asked for that.
  void set_unfused(bool on);
  bool unfused() const { return unfused_; }

  /// Whether runs have debug tensors to show and a listener.
  bool is_active() const { return is_active_; }
  bool shows(const DebugTensor& tensor) const { return unfused_ || on_.contains(tensor.name); }
  /// Throws Error if the listener refuses the tensor.
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
