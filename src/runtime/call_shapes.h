#pragma once

#include <memory>
#include <mutex>
#include <span>

#include "base/per_process.h"
#include "runtime/engine.h"
#include "runtime/shape_state.h"

namespace opwright {

/// Checks the shapes of calls against an engine's first profile before a context gets them. Any
/// thread may call it.
class CallShapes {
 public:
  /// The engine must outlive the object.
  explicit CallShapes(const Engine& engine);
  /// Checks the shape and the address of each input; only shape inputs need an address. Throws
  /// Error as a context does: for a shape, or values of a shape input, outside of the profile, and
  /// for extents that must be equal and are not.
  void check(std::span<const Shape> shapes, std::span<const void* const> addresses);

 private:
  struct Checked {
    explicit Checked(const Plan& plan) : state(plan, 0) {}
    std::mutex mutex;
    ShapeState state;
  };
  const Engine& engine_;
  PerProcess<Checked> checked_;
};

}  // namespace opwright
