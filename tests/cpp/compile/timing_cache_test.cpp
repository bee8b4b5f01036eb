#include "compile/timing_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/file.h"

namespace opwright {
namespace {

namespace fs = std::filesystem;

class TimingCacheFile : public testing::Test {
 protected:
  TimingCacheFile() {
    std::string pattern = (fs::temp_directory_path() / "timing_cache_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~TimingCacheFile() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  fs::path folder_;
};

TEST(TimingCache, ReturnsWhatWasInserted) {
  TimingCache cache("device");
  EXPECT_EQ(cache.find("a"), std::nullopt);
  cache.insert("a", 1.5f);
  cache.insert("b", 2.5f);
  cache.insert("a", 0.5f);
  EXPECT_EQ(cache.find("a"), 0.5f);
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.keys(), (std::vector<std::string>{"a", "b"}));
  cache.clear();
  EXPECT_EQ(cache.size(), 0u);
}

TEST(TimingCache, SurvivesSerialization) {
  TimingCache cache("Zen 5 | avx512 | 2 threads");
  cache.insert("", 0);
  cache.insert(std::string("with\0zero", 9), 1e-6f);
  cache.insert("Convolution|stride=[2, 2]", 12.25f);
  const auto copy = TimingCache::deserialize(cache.serialize());
  EXPECT_EQ(copy->device_identity(), cache.device_identity());
  EXPECT_EQ(copy->keys(), cache.keys());
  for (const std::string& key : cache.keys()) EXPECT_EQ(copy->find(key), cache.find(key));
  EXPECT_EQ(copy->serialize(), cache.serialize());
}

TEST(TimingCache, CombiningKeepsItsOwnEntries) {
  TimingCache mine("device"), other("device"), foreign("another");
  mine.insert("both", 1), other.insert("both", 2), other.insert("new", 3);
  foreign.insert("far", 4);
  mine.combine(other, false);
  EXPECT_EQ(mine.find("both"), 1.0f);
  EXPECT_EQ(mine.find("new"), 3.0f);
  EXPECT_THROW(mine.combine(foreign, false), Error);
  EXPECT_EQ(mine.size(), 2u);
  mine.combine(foreign, true);
  EXPECT_EQ(mine.find("far"), 4.0f);
  mine.combine(mine, false);
  EXPECT_EQ(mine.size(), 3u);
}

TEST(TimingCache, RejectsEveryTruncationAndEveryFlippedBit) {
  TimingCache cache("device");
  for (int i = 0; i < 20; ++i) cache.insert("key " + std::to_string(i), static_cast<float>(i));
  const std::vector<std::byte> good = cache.serialize();
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(TimingCache::deserialize({good.data(), size}), Error);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_THROW(TimingCache::deserialize(bad), Error);
  }
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THROW(TimingCache::deserialize(longer), Error);
}

TEST(TimingCache, RejectsRandomBytes) {
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    std::vector<std::byte> bytes(random() % 200);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    EXPECT_THROW(TimingCache::deserialize(bytes), Error);
  }
}

TEST_F(TimingCacheFile, SavingAddsToWhatIsThere) {
  const std::string file = path("cache");
  EXPECT_EQ(TimingCache::load(file), nullptr);
  TimingCache first("device"), second("device");
  first.insert("a", 1), first.insert("both", 1);
  second.insert("b", 2), second.insert("both", 2);
  first.save(file);
  second.save(file);
  const auto loaded = TimingCache::load(file);
  ASSERT_NE(loaded, nullptr);
  EXPECT_EQ(loaded->keys(), (std::vector<std::string>{"a", "b", "both"}));
  EXPECT_EQ(loaded->find("both"), 2.0f);
}

TEST_F(TimingCacheFile, ADamagedOrEmptyOneIsReplaced) {
  const std::string file = path("cache");
  TimingCache cache("device");
  cache.insert("a", 1);
  cache.save(file);
  const auto size = fs::file_size(file);
  for (const uintmax_t left : {size - 1, uintmax_t{12}, uintmax_t{8}, uintmax_t{0}}) {
    fs::resize_file(file, left);
    EXPECT_EQ(TimingCache::load(file), nullptr) << left;
    cache.save(file);
    ASSERT_NE(TimingCache::load(file), nullptr);
    EXPECT_EQ(fs::file_size(file), size);
  }
}

TEST_F(TimingCacheFile, WhatIsNoTimingCacheIsLeftAsItIs) {
  TimingCache cache("device");
  cache.insert("a", 1);
  std::ofstream(path("notes")) << "not a cache";
  std::ofstream(path("later")) << "OPWTIMES" << std::string("\x09\0\0\0", 4)
                               << std::string(20, 'x');
  fs::create_symlink("notes", path("link"));
  fs::create_symlink("/dev/zero", path("zero"));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const std::pair<const char*, const char*> refused[] = {{"notes", "is no timing cache"},
                                                         {"link", "is no timing cache"},
                                                         {"later", "format version 9"},
                                                         {"zero", "not a regular file"},
                                                         {"pipe", "not a regular file"}};
  for (const auto& [name, words] : refused) {
    for (const bool saves : {false, true}) {
      try {
        saves ? cache.save(path(name)) : (void)TimingCache::load(path(name));
        ADD_FAILURE() << name;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
      }
    }
  }
  std::stringstream notes;
  notes << std::ifstream(path("notes")).rdbuf();
  EXPECT_EQ(notes.str(), "not a cache");
}

TEST_F(TimingCacheFile, KeepsTheTimesOfSeveralDevices) {
  const std::string file = path("cache");
  for (const int round : {0, 1})
    for (const char* device : {"one", "two", "three"}) {
      TimingCache cache(device);
      cache.insert(std::string(device) + std::to_string(round), 1);
      cache.save(file);
    }
  for (const std::string device : {"one", "two", "three"}) {
    const auto loaded = TimingCache::load(file, device);
    ASSERT_NE(loaded, nullptr);
    EXPECT_EQ(loaded->device_identity(), device);
    EXPECT_EQ(loaded->keys(), (std::vector<std::string>{device + "0", device + "1"}));
  }
  EXPECT_EQ(TimingCache::load(file, "four"), nullptr);
  EXPECT_NE(TimingCache::load(file), nullptr);
  // Whatever byte changes, it is noticed.
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(fs::file_size(file)) / 2);
  stream.put('\x7f');
  stream.close();
  EXPECT_EQ(TimingCache::load(file, "one"), nullptr);
}

TEST_F(TimingCacheFile, ConcurrentSavesLoseNothing) {
  const std::string file = path("cache");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      TimingCache cache("device");
      cache.insert("key " + std::to_string(t), static_cast<float>(t));
      cache.save(file);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(TimingCache::load(file)->size(), 4u);
}

}  // namespace
}  // namespace opwright
