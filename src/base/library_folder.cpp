#include "base/library_folder.h"

#include <dlfcn.h>

namespace opwright {

std::filesystem::path library_folder() {
  Dl_info self{};
  dladdr(reinterpret_cast<const void*>(&library_folder), &self);
  return std::filesystem::path(self.dli_fname).parent_path();
}

}  // namespace opwright
