#include "compile/timing_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace opwright {
namespace {

// magic, version, hash of all that follows, identity, number of entries, entries. Texts are a
// 32-bit length and bytes; all integers little-endian.
constexpr char kMagic[8] = {'O', 'P', 'W', 'T', 'I', 'M', 'E', 'S'};
constexpr uint32_t kVersion = 1;
/// The version of a file with the caches of several devices: a 32-bit number of caches, and for
/// each its size in 64 bits and its bytes.
constexpr uint32_t kVersionOfSeveral = 2;
constexpr uint64_t kMaxFile = uint64_t{1} << 30;
constexpr size_t kHeaderSize = sizeof(kMagic) + sizeof(uint32_t) + 2 * sizeof(uint64_t);

class Writer {
 public:
  template <class T>
  void number(T value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof(T));
  }
  void text(const std::string& value) {
    number(static_cast<uint32_t>(value.size()));
    bytes(std::as_bytes(std::span(value)));
  }
  void bytes(std::span<const std::byte> value) {
    bytes_.insert(bytes_.end(), value.begin(), value.end());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string text() {
    auto part = take(number<uint32_t>());
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  size_t left() const { return bytes_.size() - at_; }

  std::span<const std::byte> take(size_t count) {
    require(count <= left(), "Timing cache: ends at byte ", bytes_.size(), ", but byte ", at_,
            " says that ", count, " more follow");
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

std::vector<std::byte> with_header(uint32_t version, std::span<const std::byte> body) {
  const XXH128_hash_t hash = XXH3_128bits(body.data(), body.size());
  Writer file;
  for (char c : kMagic) file.number(c);
  file.number(version);
  file.number(static_cast<uint64_t>(hash.low64));
  file.number(static_cast<uint64_t>(hash.high64));
  std::vector<std::byte> result = file.take();
  result.insert(result.end(), body.begin(), body.end());
  return result;
}

bool has_magic(std::span<const std::byte> bytes) {
  return bytes.size() >= sizeof(kMagic) && std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) == 0;
}

/// The version in bytes that have a whole header.
uint32_t version_of(std::span<const std::byte> bytes) {
  return Reader(bytes.subspan(sizeof(kMagic))).number<uint32_t>();
}

/// The bytes behind the header, once these are verified.
std::span<const std::byte> checked_body(std::span<const std::byte> bytes, uint32_t version) {
  require(bytes.size() >= kHeaderSize && has_magic(bytes), "These ", bytes.size(),
          " bytes are no timing cache: it begins with '", std::string(kMagic, sizeof(kMagic)), "'");
  Reader header(bytes.subspan(sizeof(kMagic)));
  const auto there = header.number<uint32_t>();
  require(there == version, "Timing cache: has format version ", there, ", version ", version,
          " is understood; make it anew");
  const auto low = header.number<uint64_t>(), high = header.number<uint64_t>();
  const auto body = bytes.subspan(kHeaderSize);
  const XXH128_hash_t hash = XXH3_128bits(body.data(), body.size());
  require(hash.low64 == low && hash.high64 == high,
          "Timing cache: its hash does not match its content; it is damaged, make it anew");
  return body;
}

/// The bytes of a file with these caches.
std::vector<std::byte> join(std::span<const std::vector<std::byte>> caches) {
  if (caches.size() == 1) return caches.front();
  Writer body;
  body.number(static_cast<uint32_t>(caches.size()));
  for (const std::vector<std::byte>& cache : caches) {
    body.number(static_cast<uint64_t>(cache.size()));
    body.bytes(cache);
  }
  return with_header(kVersionOfSeveral, body.bytes());
}

/// The caches of a file, each of another device. None where the file is missing, empty or damaged.
std::vector<std::unique_ptr<TimingCache>> read_caches(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  const Blob file = read_file(path, kMaxFile);
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.empty()) return {};
  require(has_magic(bytes), "'", path,
          "' is no timing cache, and is left as it is: one begins with '",
          std::string(kMagic, sizeof(kMagic)), "'; name another file, or a new one");
  if (bytes.size() < kHeaderSize) return {};
  const uint32_t version = version_of(bytes);
  require(version == kVersion || version == kVersionOfSeveral, "'", path,
          "' is a timing cache of format version ", version, "; versions ", kVersion, " and ",
          kVersionOfSeveral, " are understood: remove it, or name another file");
  std::vector<std::unique_ptr<TimingCache>> caches;
  try {
    if (version == kVersion) {
      caches.push_back(TimingCache::deserialize(bytes));
    } else {
      Reader reader(checked_body(bytes, version));
      for (auto left = reader.number<uint32_t>(); left > 0; --left)
        caches.push_back(TimingCache::deserialize(reader.take(reader.number<uint64_t>())));
    }
  } catch (const Error&) {  // the times are measured again
    return {};
  }
  return caches;
}

/// The number before the tactic's name, which ends a key.
int64_t tactic_of(const std::string& key) {
  const size_t name = key.rfind('|');
  const size_t number = name == std::string::npos ? name : key.rfind('|', name - 1);
  int64_t tactic = 0;
  if (number != std::string::npos)
    std::from_chars(key.data() + number + 1, key.data() + name, tactic);
  return tactic;
}

}  // namespace

std::optional<float> TimingCache::find(const std::string& key) const {
  std::lock_guard lock(mutex_);
  auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  return found->second;
}

void TimingCache::insert(const std::string& key, float milliseconds) {
  std::lock_guard lock(mutex_);
  entries_[key] = milliseconds;
}

size_t TimingCache::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

std::vector<std::string> TimingCache::keys() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> result;
  for (const auto& entry : entries_) result.push_back(entry.first);
  std::sort(result.begin(), result.end());
  return result;
}

std::optional<TimingCache::Entry> TimingCache::query(const std::string& key) const {
  const std::optional<float> time = find(key);
  if (!time) return std::nullopt;
  return Entry{tactic_of(key), *time};
}

bool TimingCache::update(const std::string& key, Entry entry) {
  const bool removes = std::isnan(entry.milliseconds);
  if (!removes && (entry.tactic != tactic_of(key) || !std::isfinite(entry.milliseconds) ||
                   entry.milliseconds < 0))
    return false;
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  if (removes) {
    entries_.erase(found);
  } else {
    found->second = entry.milliseconds;
  }
  return true;
}

std::optional<std::string> TimingCache::find_key(const Hash128& hash) const {
  std::lock_guard lock(mutex_);
  for (const auto& entry : entries_)
    if (hash128(std::as_bytes(std::span(entry.first))) == hash) return entry.first;
  return std::nullopt;
}

void TimingCache::clear() {
  std::lock_guard lock(mutex_);
  entries_.clear();
}

void TimingCache::combine(const TimingCache& other, bool ignore_mismatch) {
  if (&other == this) return;
  require(ignore_mismatch || device_identity_ == other.device_identity_, "Timing cache: made on '",
          other.device_identity_, "', which is not this cache's '", device_identity_,
          "'; its times do not apply here (ignore_mismatch takes them anyway)");
  std::scoped_lock lock(mutex_, other.mutex_);
  entries_.insert(other.entries_.begin(), other.entries_.end());
}

std::vector<std::byte> TimingCache::serialize() const {
  Writer body;
  {
    std::lock_guard lock(mutex_);
    body.text(device_identity_);
    body.number(static_cast<uint64_t>(entries_.size()));
    // Sorted, so that equal caches have equal bytes.
    std::vector<const std::pair<const std::string, float>*> sorted;
    for (const auto& entry : entries_) sorted.push_back(&entry);
    std::sort(sorted.begin(), sorted.end(),
              [](const auto* a, const auto* b) { return a->first < b->first; });
    for (const auto* entry : sorted) {
      body.text(entry->first);
      body.number(entry->second);
    }
  }
  return with_header(kVersion, body.bytes());
}

std::unique_ptr<TimingCache> TimingCache::deserialize(std::span<const std::byte> bytes) {
  Reader reader(checked_body(bytes, kVersion));
  auto cache = std::make_unique<TimingCache>(reader.text());
  const auto count = reader.number<uint64_t>();
  for (uint64_t i = 0; i < count; ++i) {
    std::string key = reader.text();
    const auto time = reader.number<float>();
    require(std::isfinite(time) && time >= 0, "Timing cache: entry ", i, " has the time ", time);
    cache->entries_[std::move(key)] = time;
  }
  require(reader.left() == 0, "Timing cache: ", reader.left(), " bytes follow its last entry");
  return cache;
}

std::unique_ptr<TimingCache> TimingCache::load(const std::string& path,
                                               const std::string& device_identity) {
  for (std::unique_ptr<TimingCache>& cache : read_caches(path))
    if (device_identity.empty() || cache->device_identity() == device_identity)
      return std::move(cache);
  return nullptr;
}

void TimingCache::save(const std::string& path) const {
  // All names of one file have one lock.
  const FileLock lock(follow_links(path));
  std::vector<std::vector<std::byte>> caches;
  TimingCache all(device_identity_);
  all.combine(*this, false);
  for (const std::unique_ptr<TimingCache>& cache : read_caches(path)) {
    if (cache->device_identity() == device_identity_)
      all.combine(*cache, false);
    else
      caches.push_back(cache->serialize());
  }
  caches.push_back(all.serialize());
  const std::vector<std::byte> bytes = join(caches);
  const std::span<const std::byte> parts[] = {bytes};
  write_file_atomically(path, parts);
}

std::shared_ptr<TimingCache> adapt_timing_cache(std::shared_ptr<TimingCache> cache,
                                                const std::string& device_identity,
                                                bool ignore_mismatch) {
  if (cache->device_identity() == device_identity) return cache;
  auto adapted = std::make_shared<TimingCache>(device_identity);
  adapted->combine(*cache, ignore_mismatch);
  return adapted;
}

}  // namespace opwright
