#pragma once

#include <span>
#include <string>

#include "base/blob.h"

namespace opwright {

/// A folder of the user's own for what the process would execute: what others can write is neither
/// read nor written. It must belong to the process's effective user or to root, must not be a
/// symbolic link, and nobody else may have the right to write in it; the same holds for each file.
/// Thread safe.
class PrivateFolder {
 public:
  /// Empty: there is none. It need not exist; write() makes it, for the user alone.
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}

  /// The file's bytes, or an empty Blob where there is none that may be used. Warns once per
  /// process of a folder that may not be used.
  Blob read(const std::string& name) const;
  /// Writes a file, for the user alone, so that others see the old one or the new one. Where that
  /// cannot be done nothing happens.
  void write(const std::string& name, std::span<const std::span<const std::byte>> parts) const;

  /// Why the folder may not be used and how to mend that; empty where it may, or is not there.
  std::string fault() const;

 private:
  const std::string path_;
};

}  // namespace opwright
