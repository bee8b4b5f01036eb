#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "plugin/registry/callback.h"
#include "plugin/registry/registry.h"

namespace opwright {

/// A plugin of any generation as those see it who call its methods: by its identity, which messages
/// name. Its layer may be empty where it has none, or it is not known.
class CalledPlugin {
 public:
  const CreatorIdentity& identity() const { return identity_; }

  /// What `body`, a call of a method, returns; see call_plugin().
  template <class Body>
  auto call(std::string_view layer, Body&& body) const {
    return call_plugin([&] { return prefix(layer); }, std::forward<Body>(body));
  }
  /// For a method that returns a status: throws Error for one other than 0.
  template <class Body>
  void call(std::string_view layer, const char* method, Body&& body) const {
    if (const auto status = call(layer, std::forward<Body>(body)); status != 0)
      fail_call(layer, method, status);
  }
  /// Throws what a callback left behind when the method returned the status, or Error naming
  /// layer, plugin, method and status.
  [[noreturn]] void fail_call(std::string_view layer, const char* method, int status) const {
    call(layer, [] {});
    reject(layer, method, "() returned ", status, " instead of 0");
  }
  /// Throws Error unless there are so many inputs, all of them present. `generation` is "V3".
  void require_inputs(const InferContext& context, size_t count, const char* generation) const {
    if (context.inputs.size() != count)
      reject(context.layer, "was added with ", count, " inputs but now has ",
             context.inputs.size());
    for (size_t i = 0; i < count; ++i)
      if (context.inputs[i] == nullptr)
        reject(context.layer, "input ", i, " is absent; ", generation, " plugins need all inputs");
  }
  /// Layer and plugin, as far as they are known, as messages begin.
  std::string prefix(std::string_view layer) const {
    const std::string plugin = identity_.name.empty() ? "" : str("plugin ", str(identity_), ": ");
    return layer.empty() ? plugin : str("layer '", layer, "': ", plugin);
  }
  /// Throws Error that starts with prefix().
  template <class... Parts>
  [[noreturn]] void reject(std::string_view layer, const Parts&... parts) const {
    fail(prefix(layer), parts...);
  }

 protected:
  CreatorIdentity identity_;
};

}  // namespace opwright
