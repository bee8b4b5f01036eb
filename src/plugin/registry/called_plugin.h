#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "plugin/registry/callback.h"
#include "plugin/registry/registry.h"

namespace opwright {

/// A plugin of any generation for callers of its methods. Messages name its identity. `layer` may
/// be empty if there is none, or it is not known.
class CalledPlugin {
 public:
  const CreatorIdentity& identity() const { return identity_; }

  /// Returns the result of `body`, which calls a method; see call_plugin().
  template <class Body>
  auto call(std::string_view layer, Body&& body) const {
    return call_plugin([&] { return prefix(layer); }, std::forward<Body>(body));
  }
  /// The same for a method that returns a status. Throws Error for a status other than 0.
  template <class Body>
  void call(std::string_view layer, const char* method, Body&& body) const {
    if (const auto status = call(layer, std::forward<Body>(body)); status != 0)
      fail_call(layer, method, status);
  }
  /// Throws the exception that a callback left behind when the method returned the status. If there
  /// is none, throws Error naming layer, plugin, method and status.
  [[noreturn]] void fail_call(std::string_view layer, const char* method, int status) const {
    call(layer, [] {});
    reject(layer, method, "() returned ", status, " instead of 0");
  }
  /// Throws Error unless there are `count` inputs, all of them present. `generation` is "V3".
  void require_inputs(const InferContext& context, size_t count, const char* generation) const {
    if (context.inputs.size() != count)
      reject(context.layer, "was added with ", count, " inputs but now has ",
             context.inputs.size());
    for (size_t i = 0; i < count; ++i)
      if (context.inputs[i] == nullptr)
        reject(context.layer, "input ", i, " is absent; ", generation, " plugins need all inputs");
  }
  /// Layer and plugin, as far as they are known, for the beginning of messages.
  std::string prefix(std::string_view layer) const {
    const std::string plugin = identity_.name.empty() ? "" : str("plugin ", str(identity_), ": ");
    return layer.empty() ? plugin : str("layer '", layer, "': ", plugin);
  }
  /// Throws Error. The message begins with prefix().
  template <class... Parts>
  [[noreturn]] void reject(std::string_view layer, const Parts&... parts) const {
    fail(prefix(layer), parts...);
  }

 protected:
  CreatorIdentity identity_;
};

}  // namespace opwright
