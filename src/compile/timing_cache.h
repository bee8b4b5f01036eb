#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/blob.h"
#include "plan/hash.h"

namespace opwright {

/// Times of candidates in milliseconds, valid for one device identity. Keys are texts that name
/// operator, timing key, shapes, types, formats and tactic. Thread safe.
class TimingCache {
 public:
  explicit TimingCache(std::string device_identity)
      : device_identity_(std::move(device_identity)) {}
  const std::string& device_identity() const { return device_identity_; }
  std::optional<float> find(const std::string& key) const;
  void insert(const std::string& key, float milliseconds);
  size_t size() const;
  /// Sorted.
  std::vector<std::string> keys() const;
  void clear();

  /// An entry, to be shown and edited: the tactic, which the key determines, and the time.
  struct Entry {
    int64_t tactic = 0;
    float milliseconds = 0;
  };
  std::optional<Entry> query(const std::string& key) const;
  /// Sets the time of an entry that exists, or removes it if the time is NaN. Returns false, and
  /// changes nothing, where there is no such entry, the tactic is not the key's, or the time is
  /// negative or infinite.
  bool update(const std::string& key, Entry entry);
  /// The key with this hash128(); nothing where there is none.
  std::optional<std::string> find_key(const Hash128& hash) const;

  /// Adds the other cache's entries that this one lacks. Throws Error when the devices differ and
  /// `ignore_mismatch` is false.
  void combine(const TimingCache& other, bool ignore_mismatch);

  std::vector<std::byte> serialize() const;
  /// Verified like an engine file (magic, version, hash, bounds). Throws Error if the bytes are no
  /// timing cache.
  static std::unique_ptr<TimingCache> deserialize(std::span<const std::byte> bytes);
  /// The times of a device in a file. Null where the file has none for the device, is missing,
  /// empty or damaged. Without an identity, the times of the file's first device. Throws Error for
  /// a file that is no timing cache, which save() would not replace either.
  static std::unique_ptr<TimingCache> load(const std::string& path,
                                           const std::string& device_identity = {});
  /// Under a file lock, reads the file, adds these times, and replaces the file atomically. Times
  /// of other devices stay. Throws Error for a file that is no timing cache.
  void save(const std::string& path) const;

 private:
  std::string device_identity_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, float> entries_;
};

/// The cache itself if it was made on this device, else a new one with its times. Throws Error for
/// a cache of another device when `ignore_mismatch` is false.
std::shared_ptr<TimingCache> adapt_timing_cache(std::shared_ptr<TimingCache> cache,
                                                const std::string& device_identity,
                                                bool ignore_mismatch);

}  // namespace opwright
