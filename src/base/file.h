#pragma once

#include <functional>
#include <span>
#include <string>

#include "base/blob.h"

namespace opwright {

/// The whole file mapped read-only and private. Throws Error naming the path and the system's
/// reason when it cannot be opened or is not a regular file. An empty file gives a Blob of size 0
/// with non-null data.
Blob map_file(const std::string& path);
/// Where symbolic links within a folder may lead.
enum class Links : bool { kBeneath, kAnywhere };

/// The same for `path`, which is relative, in a folder: the name comes from somebody who may not
/// know what lies outside of it. Links that lead out of the folder are refused unless they may lead
/// anywhere, where the system cannot tell all links.
Blob map_file_beneath(const std::string& folder, const std::string& path,
                      Links links = Links::kBeneath);
/// The whole file, or all that a pipe gives, copied into private memory.
Blob read_file(const std::string& path);

/// Whether a file is to survive a power failure at once, which takes tens of milliseconds.
enum class Durability : bool { kCached, kSynced };

/// Writes a file so that a crash, a full disk or a killed process leaves the old file or the new
/// one, never a part: into a temporary file in the same directory, synced unless said otherwise,
/// then renamed, or exchanged with the old file.
void write_file_atomically(const std::string& path,
                           std::span<const std::span<const std::byte>> parts,
                           Durability durability = Durability::kSynced);

/// An advisory lock on `path` + ".lock", held until destruction. Other processes wait.
class FileLock {
 public:
  explicit FileLock(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace opwright
