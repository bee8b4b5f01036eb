#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "base/blob.h"

namespace opwright {

/// Maps the whole file, read-only and private. Throws Error naming the path and the system's reason
/// when it cannot be opened or is not a regular file. An empty file gives a Blob of size 0 with
/// non-null data.
Blob map_file(const std::string& path);
/// Where symbolic links within a folder may lead.
enum class Links : bool { kBeneath, kAnywhere };

/// The same for the relative `path` in a folder. The author of the name may not know the files
/// outside of it. Links that lead out of the folder are refused, unless `links` lets them lead
/// anywhere. With kBeneath, all links are refused on systems that cannot check them.
Blob map_file_beneath(const std::string& folder, const std::string& path,
                      Links links = Links::kBeneath);
/// Reads the whole file into private memory. Throws Error as map_file(), and for a file of more
/// than `most` bytes.
Blob read_file(const std::string& path, uint64_t most = std::numeric_limits<uint64_t>::max());

/// Whether a new file survives a power failure at once, which takes tens of milliseconds.
enum class Durability : bool { kCached, kSynced };

/// Writes a file so that a crash, a full disk or a killed process leaves the old or the new file,
/// never a part. Writes a temporary file in the same folder, syncs it unless `durability` says
/// otherwise, and renames it or exchanges it with the old file. A link stays; the file that it
/// leads to is written.
void write_file_atomically(const std::string& path,
                           std::span<const std::span<const std::byte>> parts,
                           Durability durability = Durability::kSynced);

/// The file that a name leads to after all links are followed. It need not exist.
std::string follow_links(const std::string& path);

/// Throws Error if writing `output` would replace one of these files, under any name. `reason` says
/// why the files must stay.
void require_other_file(const std::string& output, std::span<const std::string> files,
                        std::string_view reason);

/// An advisory lock on `path` + ".lock" for the object's lifetime. Other processes wait.
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
