#pragma once

#include <span>
#include <vector>

#include "backend/device.h"
#include "backend/memory.h"
#include "plugin/kernel/launch_values.h"

namespace opwright {

/// The tensor maps of a launch on a device: made when shapes change, and again for an input that
/// lies elsewhere than in the run before.
class TensorMaps {
 public:
  /// The launch's values outlive the object.
  TensorMaps(LaunchValues& values, const KernelArgs& args);
  bool empty() const { return maps_.empty(); }
  /// Evaluates them for new shapes. Throws Error for one that does not describe memory of its
  /// input.
  void prepare();
  /// For a launch with these inputs. An input that is not aligned as maps must be is copied first.
  void bind(void const* const* inputs, Queue queue);

 private:
  struct Map {
    TensorMapShape shape;
    const void* address = nullptr;  ///< that it was made for; null: none
    DeviceMemory copy;              ///< of an input that is not aligned
    size_t bytes = 0;               ///< of the input
  };

  void evaluate(const KernelLaunch::TensorMap& from, Map& to) const;

  LaunchValues& values_;
  const Device& device_;
  const std::shared_ptr<const LastUse> last_use_;
  std::vector<Map> maps_;
};

}  // namespace opwright
