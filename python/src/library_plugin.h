#pragma once

#include <memory>
#include <optional>

#include "base/error.h"
#include "plugin/abi/v3_plugin.h"
#include "plugin_bindings.h"
#include "plugin_callbacks.h"

namespace opwright::python {

/// An IPluginV3 of either family that C++ implements and Python owns, with the methods of its
/// parts. The classes of opwright/_plugins/library.py and library_quick.py wrap it.
class V3PluginHandle {
 public:
  explicit V3PluginHandle(V3Plugin plugin)
      : plugin_(std::make_shared<std::optional<V3Plugin>>(std::move(plugin))) {}
  const V3Plugin& plugin() const {
    require(plugin_->has_value(),
            "this plugin was attached to an execution context, with which it ended");
    return **plugin_;
  }
  /// Ends the plugin before the context that it is attached to ends, even if the handle is still
  /// held.
  void end_with(AttachedContext& context) const {
    context.at_end([plugin = std::weak_ptr(plugin_)] {
      if (const auto alive = plugin.lock()) alive->reset();
    });
  }

  /// The result of `ask` for the build part, see V3Plugin::ask_build().
  template <class Ask>
  auto ask_build(Ask&& ask) const {
    return plugin().ask_build({}, std::forward<Ask>(ask));
  }
  template <class Ask>
  void ask_build(const char* method, Ask&& ask) const {
    plugin().ask_build({}, method, std::forward<Ask>(ask));
  }
  /// Calls `body`, which calls a method of another part, and returns its result. Throws the
  /// exception that a callback left behind.
  template <class Body>
  auto call(Body&& body) const {
    return plugin().call({}, std::forward<Body>(body));
  }
  /// Calls `body`, which returns a status. Throws Error if it is not 0.
  template <class Body>
  void call(const char* method, Body&& body) const {
    plugin().call({}, method, std::forward<Body>(body));
  }

 private:
  const std::shared_ptr<std::optional<V3Plugin>> plugin_;  ///< none once it has ended
};

/// The C++ plugin that a Python object stands for, or null.
IPluginV3* library_plugin(nb::handle object);
void bind_library_plugin(nb::module_& m);
/// Binds the methods that only plugins of the Quick family have.
void bind_library_plugin_quick(nb::class_<V3PluginHandle>& c);

}  // namespace opwright::python
