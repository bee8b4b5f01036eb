#include "runtime/library.h"

#include <mutex>

#include "operators/builtin.h"
#include "plugin/plugin_operators.h"

namespace opwright {

void initialize_library() {
  static std::once_flag once;
  std::call_once(once, [] {
    register_builtin_operators();
    register_plugin_operators();
  });
}

}  // namespace opwright
