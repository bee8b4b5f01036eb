#include "backend/cuda/kernel_cache.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/sha256.h"

namespace opwright::cuda {
namespace {

namespace fs = std::filesystem;

/// Hash of an entry: its key and its code.
Sha256::Digest digest(std::string_view key, std::span<const std::byte> code) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(key)));
  hash.update(code);
  return hash.finish();
}

/// The digest of all parts and their lengths, in hexadecimal.
std::string key_of(std::span<const std::string_view> parts) {
  Sha256 hash;
  for (const std::string_view part : parts) {
    const uint64_t size[] = {part.size()};
    hash.update(std::as_bytes(std::span(size)));
    hash.update(std::as_bytes(std::span(part)));
  }
  std::string key;
  for (const uint8_t byte : hash.finish()) {
    constexpr char kDigits[] = "0123456789abcdef";
    key += kDigits[byte >> 4U];
    key += kDigits[byte & 15U];
  }
  return key;
}

/// The code behind the digest of a file. Empty where the file is damaged or belongs to another key.
Blob checked(std::string_view key, const Blob& file) {
  constexpr size_t kDigest = sizeof(Sha256::Digest);
  if (file.size() <= kDigest) return {};
  const std::span<const std::byte> code = file.bytes().subspan(kDigest);
  const Sha256::Digest expected = digest(key, code);
  if (std::memcmp(file.data(), expected.data(), kDigest) != 0) return {};
  return Blob::copy(code.data(), code.size());  // copied, so that the code is aligned
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
  struct CacheOfUser : KernelCache {
    CacheOfUser() : KernelCache(default_folder()) {}
  };
  return Library::part<CacheOfUser>();
}

Blob KernelCache::find_or_compile(std::span<const std::string_view> parts,
                                  const std::function<Blob()>& compile) {
  const std::string key = key_of(parts);
  {
    const std::lock_guard lock(mutex_);
    const auto found = in_memory_.find(key);
    if (found != in_memory_.end()) return found->second;
  }
  const std::string name = key + ".cubin";
  Blob code = checked(key, folder_.read(name));
  if (code.empty()) {
    code = compile();
    const Sha256::Digest expected = digest(key, code.bytes());
    const std::array<std::span<const std::byte>, 2> parts_of_file = {
        std::as_bytes(std::span(expected)), code.bytes()};
    folder_.write(name, parts_of_file);
  }
  const std::lock_guard lock(mutex_);
  return in_memory_.try_emplace(key, code).first->second;
}

}  // namespace opwright::cuda
