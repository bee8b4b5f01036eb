#pragma once

#include <span>
#include <string>

#include "base/blob.h"

namespace opwright {

/// A user's folder for code that the process executes. Files that others can write are neither read
/// nor written. The folder belongs to the process's effective user or to root, is not a symbolic
/// link, and only its owner may write in it. The same holds for each file. Thread safe.
class PrivateFolder {
 public:
  /// The folder need not exist: write() makes it, with permissions only for the user. Empty: no
  /// folder.
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}

  /// The file's bytes; an empty Blob if there is no file that may be used. Warns once per process
  /// about a folder that may not be used.
  Blob read(const std::string& name) const;
  /// Writes a file with permissions only for the user. Others see either the old or the new file.
  /// Does nothing if the file cannot be written.
  void write(const std::string& name, std::span<const std::span<const std::byte>> parts) const;

  /// The reason why the folder may not be used, and how to mend that. Empty if it may be used or
  /// does not exist.
  std::string fault() const;

 private:
  const std::string path_;
};

}  // namespace opwright
