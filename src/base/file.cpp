#include "base/file.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/library.h"

namespace opwright {
namespace {

[[noreturn]] void fail_io(const char* action, const std::string& path, int reason) {
  fail("cannot ", action, " '", path, "': ", std::generic_category().message(reason));
}

// These flags keep opening a pipe or a device from waiting. They have no effect on files.
constexpr int kOpenWithoutWaiting = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

/// Does the same as openat2() with RESOLVE_BENEATH, but refuses all links. Returns -1 and sets
/// errno on failure.
int walk_beneath(int folder, const std::filesystem::path& path) {
  int at = folder;
  for (auto part = path.begin(); part != path.end(); ++part) {
    const bool is_last = std::next(part) == path.end();
    const int next = *part == ".." || part->empty() ? (errno = EXDEV, -1) : retry([&] {
      return openat(
          at, part->c_str(),
          O_NOFOLLOW | (is_last ? kOpenWithoutWaiting : O_PATH | O_DIRECTORY | O_CLOEXEC));
    });
    int reason = errno;
    struct stat status {};
    if (next < 0 && reason == ENOTDIR &&
        fstatat(at, part->c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode))
      reason = ELOOP;  // reports a link to a folder as a link
    if (at != folder) ::close(at);
    errno = reason;
    if (next < 0 || is_last) return next;
    at = next;
  }
  errno = ENOENT;
  return -1;
}

int open_beneath(int folder, const std::filesystem::path& path) {
#ifdef SYS_openat2
  open_how how{};
  how.flags = kOpenWithoutWaiting;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  long result = -1;
  do {
    result = syscall(SYS_openat2, folder, path.c_str(), &how, sizeof how);
  } while (result < 0 && (errno == EINTR || errno == EAGAIN));
  // Old kernels lack openat2(), and old sandboxes forbid calls that they do not know.
  if (result >= 0 || (errno != ENOSYS && errno != EPERM)) return static_cast<int>(result);
#endif
  return walk_beneath(folder, path);
}

/// Follows all links. The name itself must stay in the folder.
int open_through_links(int folder, const std::filesystem::path& path) {
  if (path.is_absolute() || std::ranges::find(path, std::filesystem::path("..")) != path.end()) {
    errno = EXDEV;
    return -1;
  }
  return retry([&] { return openat(folder, path.c_str(), kOpenWithoutWaiting); });
}

Blob map_open_file(int file, const std::string& path) {
  struct stat status {};
  if (fstat(file, &status) != 0) fail_io("read", path, errno);
  if (S_ISDIR(status.st_mode)) fail_io("read", path, EISDIR);
  if (!S_ISREG(status.st_mode)) fail("cannot map '", path, "': it is not a regular file");
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return Blob::copy(nullptr, 0);
  void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (memory == MAP_FAILED) fail_io("map", path, errno);
  std::shared_ptr<const void> owner(memory, [memory, size](const void*) { munmap(memory, size); });
  return Blob(std::move(owner), memory, size);
}

Descriptor open_for_reading(const std::string& path, struct stat& status) {
  Descriptor file(retry([&] { return open(path.c_str(), kOpenWithoutWaiting); }));
  if (!file.is_open()) fail_io("open", path, errno);
  if (fstat(file.get(), &status) != 0) fail_io("read", path, errno);
  if (S_ISDIR(status.st_mode)) fail_io("read", path, EISDIR);
  if (!S_ISREG(status.st_mode)) fail("cannot read '", path, "': it is not a regular file");
  return file;
}

size_t read_some(int fd, void* target, size_t size, const std::string& path) {
  const ssize_t got = retry([&] { return read(fd, target, size); });
  if (got < 0) fail_io("read", path, errno);
  return static_cast<size_t>(got);
}

void write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = retry([&] { return write(fd, bytes.data(), bytes.size()); });
    if (written < 0) fail_io("write", path, errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

/// A new file beside `path`. The destructor removes it unless it was renamed.
class TemporaryFile {
 public:
  TemporaryFile(const std::filesystem::path& folder, mode_t mode, const std::string& target) {
    do {
      path_ = folder / str(".opwright-", getpid(), "-", Library::next_number(), ".tmp");
      fd_ =
          retry([&] { return open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode); });
    } while (fd_ < 0 && errno == EEXIST);
    if (fd_ < 0) fail_io("write", target, errno);
  }
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!path_.empty()) unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int descriptor() const { return fd_; }
  void rename_to(const std::string& target, Durability durability) {
    if (durability == Durability::kSynced && fsync(fd_) != 0) fail_io("write", target, errno);
    if (::close(std::exchange(fd_, -1)) != 0) fail_io("write", target, errno);
    // A rename over a file makes ext4 write the new file to the disk first, which takes
    // milliseconds. Exchanging the two files does not, and the destructor removes the old one.
    if (durability == Durability::kCached &&
        renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0)
      return;
    if (rename(path_.c_str(), target.c_str()) != 0) fail_io("replace", target, errno);
    path_.clear();
  }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace

Blob map_file(const std::string& path) {
  const Descriptor file(retry([&] { return open(path.c_str(), kOpenWithoutWaiting); }));
  if (!file.is_open()) fail_io("open", path, errno);
  return map_open_file(file.get(), path);
}

Blob map_file_beneath(const std::string& folder, const std::string& path, Links links) {
  const std::string whole = (std::filesystem::path(folder) / path).string();
  const Descriptor directory(
      retry([&] { return open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC); }));
  if (!directory.is_open()) fail_io("open", folder, errno);
  const bool has_end = path.find('\0') != std::string::npos;
  const bool may_link = links == Links::kAnywhere;
  const Descriptor file(has_end    ? -1
                        : may_link ? open_through_links(directory.get(), path)
                                   : open_beneath(directory.get(), path));
  const bool leads_out =
      has_end || (!file.is_open() && (errno == EXDEV || (errno == ELOOP && !may_link)));
  require(!leads_out || !may_link, "cannot open '", whole, "': it leads out of the folder '",
          folder, "'; put the file itself there");
  require(
      !leads_out, "cannot open '", whole, "': it leads out of the folder '", folder,
      "', or through a link that may; put the file itself there, or, where you trust whoever made "
      "the links, permit them: opwright.build(..., allow_links=True), parser.links_allowed = True "
      "in Python, setLinksAllowed(true) in C++, --allow-links for the program, "
      "OPWRIGHT_ALLOW_LINKS=1 for programs for TensorRT");
  if (!file.is_open()) fail_io("open", whole, errno);
  return map_open_file(file.get(), whole);
}

Blob read_file(const std::string& path, uint64_t most) {
  struct stat status {};
  const Descriptor file = open_for_reading(path, status);
  const auto require_size = [&](uint64_t size) {
    require(size <= most, "cannot read '", path, "': it has ", size, " bytes or more; at most ",
            most, " are read");
  };
  require_size(static_cast<uint64_t>(status.st_size));
  if (status.st_size > 0) {
    const auto size = static_cast<size_t>(status.st_size);
    return Blob::make(size, [&](void* memory) {
      for (size_t done = 0; done < size;) {
        const size_t got =
            read_some(file.get(), static_cast<std::byte*>(memory) + done, size - done, path);
        require(got > 0, "cannot read '", path, "': it ended at byte ", done, " of ", size);
        done += got;
      }
    });
  }
  // The system's files do not have their size.
  std::vector<std::byte> bytes;
  constexpr size_t kChunk = 1 << 16;
  for (size_t done = 0;;) {
    bytes.resize(done + kChunk);
    const size_t got = read_some(file.get(), bytes.data() + done, kChunk, path);
    done += got;
    require_size(done);
    if (got == 0) return Blob::copy(bytes.data(), done);
  }
}

std::string follow_links(const std::string& path) {
  std::filesystem::path target = path;
  constexpr int kMostLinks = 40;  // the limit of Linux
  std::error_code ignored;
  for (int i = 0; std::filesystem::is_symlink(target, ignored); ++i) {
    if (i == kMostLinks) fail_io("follow", path, ELOOP);
    // An absolute link replaces the folder.
    target = target.parent_path() / std::filesystem::read_symlink(target, ignored);
  }
  return target.string();
}

void require_other_file(const std::string& output, std::span<const std::string> files,
                        std::string_view reason) {
  const std::string target = follow_links(output);
  std::error_code ignored;
  const std::filesystem::path place = std::filesystem::weakly_canonical(target, ignored);
  for (const std::string& file : files) {
    // Hard links are further names of the same file.
    const bool is_same = std::filesystem::equivalent(target, file, ignored) ||
                         place == std::filesystem::weakly_canonical(follow_links(file), ignored);
    require(!is_same, "cannot write '", output, "': it is ", reason,
            file == output ? "" : str(", '", file, "'"), "; name another file");
  }
}

void write_file_atomically(const std::string& path,
                           std::span<const std::span<const std::byte>> parts,
                           Durability durability) {
  const std::string target = follow_links(path);
  struct stat status {};
  const bool exists = stat(target.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) fail("cannot replace '", path, "': it is not a file");

  std::filesystem::path folder = std::filesystem::path(target).parent_path();
  if (folder.empty()) folder = ".";
  TemporaryFile file(folder, 0666, path);
  if (exists) (void)!fchmod(file.descriptor(), status.st_mode & 07777);
  for (const std::span<const std::byte> part : parts) write_all(file.descriptor(), part, path);
  file.rename_to(target, durability);
  if (durability == Durability::kCached) return;

  // The new name survives a power failure once the folder is written, too. Some file systems cannot
  // do that; the file is complete all the same.
  const Descriptor directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.is_open()) (void)!fsync(directory.get());
}

FileLock::FileLock(const std::string& path) {
  const std::string lock = path + ".lock";
  descriptor_ = retry([&] { return open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); });
  if (descriptor_ < 0) fail_io("open", lock, errno);
  if (retry([&] { return flock(descriptor_, LOCK_EX); }) != 0) {
    const int reason = errno;
    ::close(descriptor_);
    fail_io("lock", lock, reason);
  }
}

FileLock::~FileLock() { ::close(descriptor_); }

}  // namespace opwright
