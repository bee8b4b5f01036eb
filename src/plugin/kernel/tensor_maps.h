#pragma once

#include <span>
#include <vector>

#include "backend/device.h"
#include "backend/memory.h"
#include "plugin/kernel/launch_values.h"

namespace opwright {

/// The tensor maps of a launch on a device. They are made when shapes change, and again when an
/// input lies elsewhere than in the run before.
class TensorMaps {
 public:
  /// The launch's values outlive the object.
  TensorMaps(LaunchValues& values, const KernelArgs& args);
  bool empty() const { return maps_.empty(); }
  /// Evaluates the maps for new shapes. Throws Error for a map that does not describe memory of its
  /// input.
  void prepare();
  /// Makes the maps for a launch with these inputs. An input without the alignment of maps is
  /// copied first.
  void bind(void const* const* inputs, Queue queue);

 private:
  struct Map {
    TensorMapShape shape;
    const void* address = nullptr;  ///< the map's address; null: not made yet
    DeviceMemory copy;              ///< aligned copy of the input
    size_t bytes = 0;               ///< bytes of the input, or of the copy that stands for it
    bool is_empty = false;          ///< whether the input has no elements
  };

  void evaluate(const KernelLaunch::TensorMap& from, Map& to) const;

  LaunchValues& values_;
  const Device& device_;
  const std::shared_ptr<const LastUse> last_use_;
  std::vector<Map> maps_;
};

}  // namespace opwright
