#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

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
/// The whole file, copied into private memory. Throws Error as map_file(), and for a file of more
/// than `most` bytes.
Blob read_file(const std::string& path, uint64_t most = std::numeric_limits<uint64_t>::max());

/// Whether a file is to survive a power failure at once, which takes tens of milliseconds.
enum class Durability : bool { kCached, kSynced };

/// Writes a file so that a crash, a full disk or a killed process leaves the old file or the new
/// one, never a part: into a temporary file in the same directory, synced unless said otherwise,
/// then renamed, or exchanged with the old file. A link stays, and what it names is written.
void write_file_atomically(const std::string& path,
                           std::span<const std::span<const std::byte>> parts,
                           Durability durability = Durability::kSynced);

/// The file that a name stands for once all links are followed, also where there is none yet.
std::string follow_links(const std::string& path);

/// Throws Error where writing `output` would replace one of these files, by whatever name: `reason`
/// says what they are to be spared for.
void require_other_file(const std::string& output, std::span<const std::string> files,
                        std::string_view reason);

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
