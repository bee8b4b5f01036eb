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

/// Compiled code, in memory and in a folder that processes share. The key is all that the code was
/// compiled from. Thread safe.
class KernelCache {
 public:
  /// `folder` need not exist. Only memory is used where the folder cannot be used, is empty, or
  /// others can write in it.
  explicit KernelCache(std::string folder) : folder_(std::move(folder)) {}
  /// The process's cache: "kernels" in $OPWRIGHT_CACHE_DIR, $XDG_CACHE_HOME/opwright or
  /// ~/.cache/opwright.
  static KernelCache& get();

  /// The result of `compile` for these parts, which determine it. Where a file is damaged, the code
  /// is compiled again.
  Blob find_or_compile(std::span<const std::string_view> parts,
                       const std::function<Blob()>& compile);

 private:
  const PrivateFolder folder_;
  LibraryLock mutex_;
  std::map<std::string, Blob> in_memory_;
};

}  // namespace opwright::cuda
