#include "base/private_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace opwright {
namespace {

namespace fs = std::filesystem;

class PrivateFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/opwright_private_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  static void write(const PrivateFolder& folder, const std::string& text,
                    const std::string& name = "file") {
    const std::array<std::span<const std::byte>, 2> parts = {
        std::as_bytes(std::span(text)).first(text.size() / 2),
        std::as_bytes(std::span(text)).subspan(text.size() / 2)};
    folder.write(name, parts);
  }
  static std::string read(const PrivateFolder& folder, const std::string& name = "file") {
    const Blob bytes = folder.read(name);
    return {bytes.as<char>(), bytes.size()};
  }
  static mode_t mode(const fs::path& path) {
    struct stat status {};
    EXPECT_EQ(lstat(path.c_str(), &status), 0) << path;
    return status.st_mode & 07777U;
  }

  fs::path root_;
};

TEST_F(PrivateFolderTest, IsMadeForTheUserAlone) {
  const mode_t before = umask(0);
  const PrivateFolder folder(root_ / "a" / "b");
  EXPECT_EQ(read(folder), "");
  EXPECT_FALSE(fs::exists(root_ / "a"));
  write(folder, "some code");
  umask(before);
  EXPECT_EQ(read(folder), "some code");
  EXPECT_EQ(mode(root_ / "a"), 0700U);
  EXPECT_EQ(mode(root_ / "a" / "b"), 0700U);
  EXPECT_EQ(mode(root_ / "a" / "b" / "file"), 0600U);
  write(folder, "other code");
  EXPECT_EQ(read(folder), "other code");
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ / "a" / "b"), {}), 1);
}

TEST_F(PrivateFolderTest, WhatOthersCanWriteIsNotUsed) {
  const PrivateFolder folder(root_);
  write(folder, "some code");
  for (const mode_t open : {0770U, 0707U, 0777U, 01777U}) {
    ASSERT_EQ(chmod(root_.c_str(), open), 0);
    EXPECT_EQ(read(folder), "") << std::oct << open;
    EXPECT_NE(folder.fault().find("so that others can write in it"), std::string::npos);
    EXPECT_NE(folder.fault().find("chmod 700 '" + root_.string() + "'"), std::string::npos);
    write(folder, "new code");
  }
  for (const mode_t closed : {0700U, 0755U, 0500U}) {
    ASSERT_EQ(chmod(root_.c_str(), closed), 0);
    EXPECT_EQ(read(folder), "some code");
    EXPECT_EQ(folder.fault(), "");
  }
  ASSERT_EQ(chmod(root_.c_str(), 0700), 0);
  ASSERT_EQ(chmod((root_ / "file").c_str(), 0620), 0);
  EXPECT_EQ(read(folder), "");
  // Such a file is replaced.
  write(folder, "new code");
  EXPECT_EQ(read(folder), "new code");
  EXPECT_EQ(mode(root_ / "file"), 0600U);
}

TEST_F(PrivateFolderTest, WhatOthersOwnIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const PrivateFolder folder(root_);
  write(folder, "planted code");
  constexpr uid_t kOther = 12345;
  ASSERT_EQ(chown((root_ / "file").c_str(), kOther, kOther), 0);
  EXPECT_EQ(read(folder), "");
  write(folder, "some code");
  EXPECT_EQ(read(folder), "some code");
  ASSERT_EQ(chown(root_.c_str(), kOther, kOther), 0);
  EXPECT_EQ(read(folder), "");
  EXPECT_NE(folder.fault().find("it belongs to user 12345"), std::string::npos) << folder.fault();
  EXPECT_NE(folder.fault().find("OPWRIGHT_CACHE_DIR"), std::string::npos);
}

TEST_F(PrivateFolderTest, LinksAreNotFollowed) {
  const fs::path victim = root_ / "victim", real = root_ / "real";
  std::ofstream(victim) << "precious";
  const PrivateFolder folder(real);
  write(folder, "some code");
  fs::remove(real / "file");
  fs::create_symlink(victim, real / "file");
  EXPECT_EQ(read(folder), "");
  write(folder, "new code");
  EXPECT_EQ(read(folder), "new code");
  EXPECT_EQ((std::ifstream(victim) >> std::ws, fs::file_size(victim)), 8U);
  EXPECT_FALSE(fs::is_symlink(real / "file"));

  fs::create_directory_symlink(real, root_ / "link");
  const PrivateFolder link(root_ / "link");
  EXPECT_EQ(read(link), "");
  write(link, "by the link");
  EXPECT_EQ(read(folder), "new code");
  EXPECT_NE(link.fault().find("it is a symbolic link of"), std::string::npos) << link.fault();
}

TEST_F(PrivateFolderTest, WhatIsNoFileIsNotRead) {
  const PrivateFolder folder(root_);
  ASSERT_EQ(mkfifo((root_ / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(read(folder, "fifo"), "");
  EXPECT_EQ(read(folder, "."), "");
  EXPECT_EQ(read(folder, "missing"), "");
  EXPECT_EQ(read(PrivateFolder("")), "");
  write(PrivateFolder(""), "nowhere");
}

}  // namespace
}  // namespace opwright
