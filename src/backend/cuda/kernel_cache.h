#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "base/blob.h"
#include "base/library.h"
#include "base/private_folder.h"

namespace opwright::cuda {

/// Compiled code by all that it was compiled from: in memory, and in a folder that processes share.
/// Thread safe.
class KernelCache {
 public:
  /// `folder` need not exist; where it cannot be used, is empty, or others can write in it, only
  /// memory is.
  explicit KernelCache(std::string folder) : folder_(std::move(folder)) {}
  /// The one of this process: "kernels" in $OPWRIGHT_CACHE_DIR, $XDG_CACHE_HOME/opwright or
  /// ~/.cache/opwright.
  static KernelCache& get();

  /// What `compile` returns for these parts, which determine it. A file that is damaged is
  /// compiled again.
  Blob find_or_compile(std::span<const std::string_view> parts,
                       const std::function<Blob()>& compile);

 private:
  const PrivateFolder folder_;
  LibraryLock mutex_;
  std::map<std::string, Blob> in_memory_;
};

}  // namespace opwright::cuda
