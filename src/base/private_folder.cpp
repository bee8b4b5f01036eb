#include "base/private_folder.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/library.h"
#include "base/log.h"

namespace opwright {
namespace {

std::string user_name(uid_t user) {
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
    return str("'", found->pw_name, "'");
  return str("user ", user);
}

bool is_writable_by_others(const struct stat& status) {
  return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

bool is_of_others(const struct stat& status) {
  return status.st_uid != geteuid() && status.st_uid != 0;
}

/// An open folder, or the reason why it may not be used. A missing folder has neither.
struct Opened {
  Descriptor folder{-1};
  std::string fault;
};

Opened open_folder(const std::string& path) {
  if (path.empty()) return {};
  Descriptor folder(
      retry([&] { return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
  if (!folder.is_open()) {
    const int reason = errno;
    struct stat status {};
    if ((reason != ELOOP && reason != ENOTDIR) || lstat(path.c_str(), &status) != 0 ||
        !S_ISLNK(status.st_mode))
      return {};
    return {Descriptor(-1),
            str("it is a symbolic link of ", user_name(status.st_uid),
                "; name the folder itself with OPWRIGHT_CACHE_DIR, or remove the link: rm '", path,
                "'")};
  }
  struct stat status {};
  if (fstat(folder.get(), &status) != 0) return {};
  if (is_of_others(status))
    return {Descriptor(-1),
            str("it belongs to ", user_name(status.st_uid), ", and this process runs as ",
                user_name(geteuid()),
                "; name a folder of your own with the environment variable OPWRIGHT_CACHE_DIR")};
  if (is_writable_by_others(status)) {
    std::array<char, 16> mode{};
    (void)std::snprintf(mode.data(), mode.size(), "%o", status.st_mode & 07777U);
    return {Descriptor(-1),
            str("it belongs to ", user_name(status.st_uid), " with mode ", mode.data(),
                ", so that others can write in it; remove it: rm -r '", path,
                "', or, where you trust what it holds: chmod 700 '", path, "'")};
  }
  return {std::move(folder), {}};
}

struct WarnedFolders {
  LibraryLock mutex;
  std::set<std::string> paths;
};
bool is_first_warning(const std::string& path) {
  auto& warned = Library::part<WarnedFolders>();
  const std::lock_guard lock(warned.mutex);
  return warned.paths.insert(path).second;
}

/// Opens the folder if it may be used. Warns if it may not.
Descriptor open_checked(const std::string& path) {
  Opened opened = open_folder(path);
  if (!opened.fault.empty()) {
    if (is_first_warning(path))
      Log().warning("the folder '", path, "' for compiled code is not used: ", opened.fault);
  }
  return std::move(opened.folder);
}

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = retry([&] { return write(fd, bytes.data(), bytes.size()); });
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return true;
}

/// Makes missing folders with permissions only for the user.
void make_folder(const std::filesystem::path& path) {
  std::error_code error;
  if (path.empty() || std::filesystem::exists(path, error)) return;
  if (path.has_parent_path() && path.parent_path() != path) make_folder(path.parent_path());
  (void)!mkdir(path.c_str(), S_IRWXU);
}

}  // namespace

std::string PrivateFolder::fault() const { return open_folder(path_).fault; }

Blob PrivateFolder::read(const std::string& name) const {
  const Descriptor folder = open_checked(path_);
  if (!folder.is_open()) return {};
  const Descriptor file(retry([&] {
    return openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  }));
  struct stat status {};
  if (!file.is_open() || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      is_of_others(status) || is_writable_by_others(status))
    return {};
  std::vector<std::byte> bytes(static_cast<size_t>(status.st_size));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t got =
        retry([&] { return ::read(file.get(), bytes.data() + done, bytes.size() - done); });
    if (got <= 0) return {};
    done += static_cast<size_t>(got);
  }
  return Blob::copy(bytes.data(), bytes.size());
}

void PrivateFolder::write(const std::string& name,
                          std::span<const std::span<const std::byte>> parts) const {
  if (path_.empty()) return;
  make_folder(path_);
  const Descriptor folder = open_checked(path_);
  if (!folder.is_open()) return;
  const std::string temporary = str(".opwright-", getpid(), "-", Library::next_number(), ".tmp");
  Descriptor file(retry([&] {
    return openat(folder.get(), temporary.c_str(),
                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
  }));
  if (!file.is_open()) return;
  bool is_written = true;
  for (const std::span<const std::byte> part : parts)
    is_written = is_written && write_all(file.get(), part);
  is_written = file.close() && is_written;
  // The rename replaces the old name itself, even if it is a link.
  if (!is_written || renameat(folder.get(), temporary.c_str(), folder.get(), name.c_str()) != 0)
    (void)unlinkat(folder.get(), temporary.c_str(), 0);
}

}  // namespace opwright
