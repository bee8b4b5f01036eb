#include "backend/cuda/kernel_cache.h"

#include <xxhash.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace opwright::cuda {
namespace {

namespace fs = std::filesystem;

using Digest = std::array<std::byte, 16>;

Digest digest(const void* data, size_t size) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, size));
  Digest digest;
  std::memcpy(digest.data(), canonical.digest, digest.size());
  return digest;
}

/// The digest of all parts and their lengths, in hexadecimal.
std::string key_of(std::span<const std::string_view> parts) {
  std::string all;
  for (const std::string_view part : parts) {
    const uint64_t size = part.size();
    all.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(part);
  }
  std::string key;
  for (const std::byte byte : digest(all.data(), all.size())) {
    constexpr char kDigits[] = "0123456789abcdef";
    key += kDigits[std::to_integer<int>(byte >> 4)];
    key += kDigits[std::to_integer<int>(byte & std::byte{15})];
  }
  return key;
}

/// The code behind its digest; empty for a file that is not there or not whole.
Blob load(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  try {
    const Blob file = read_file(path.string());
    if (file.size() <= sizeof(Digest)) return {};
    const size_t size = file.size() - sizeof(Digest);
    const std::byte* code = file.data() + sizeof(Digest);
    const Digest expected = digest(code, size);
    if (std::memcmp(file.data(), expected.data(), sizeof(Digest)) != 0) return {};
    return Blob::copy(code, size);  // aligned
  } catch (const Error&) {
    return {};
  }
}

void store(const fs::path& path, const Blob& code) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const Digest expected = digest(code.data(), code.size());
  const std::array parts = {std::span<const std::byte>(expected), code.bytes()};
  try {
    write_file_atomically(path.string(), parts, Durability::kCached);
  } catch (const Error&) {
    // The next process compiles again.
  }
}

std::string default_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  fs::path base = variable("OPWRIGHT_CACHE_DIR");
  if (base.empty()) {
    base = variable("XDG_CACHE_HOME");
    if (base.empty() && variable("HOME").empty()) return "";
    if (base.empty()) base = fs::path(variable("HOME")) / ".cache";
    base /= "opwright";
  }
  return base / "kernels";
}

}  // namespace

KernelCache& KernelCache::get() {
  static KernelCache cache(default_folder());
  return cache;
}

Blob KernelCache::find_or_compile(std::span<const std::string_view> parts,
                                  const std::function<Blob()>& compile) {
  const std::string key = key_of(parts);
  {
    const std::lock_guard lock(mutex_);
    const auto found = in_memory_.find(key);
    if (found != in_memory_.end()) return found->second;
  }
  const fs::path path = folder_.empty() ? fs::path() : fs::path(folder_) / (key + ".cubin");
  Blob code = path.empty() ? Blob() : load(path);
  if (code.empty()) {
    code = compile();
    if (!path.empty()) store(path, code);
  }
  const std::lock_guard lock(mutex_);
  return in_memory_.try_emplace(key, code).first->second;
}

}  // namespace opwright::cuda
