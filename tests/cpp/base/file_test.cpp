#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"

namespace opwright {
namespace {

namespace fs = std::filesystem;

class File : public testing::Test {
 protected:
  File() {
    std::string pattern = (fs::temp_directory_path() / "opwright-test-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~File() override { fs::remove_all(folder_); }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  static void write(const std::string& path, std::string_view text,
                    Durability durability = Durability::kSynced) {
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(text))};
    write_file_atomically(path, parts, durability);
  }
  static std::string text(const Blob& blob) { return {blob.as<char>(), blob.size()}; }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  fs::path folder_;
};

TEST_F(File, WritesReadsAndMaps) {
  const std::string_view a = "first ", b = "", c = "second";
  const std::span<const std::byte> parts[] = {
      std::as_bytes(std::span(a)), std::as_bytes(std::span(b)), std::as_bytes(std::span(c))};
  write_file_atomically(path("f"), parts);
  EXPECT_EQ(text(read_file(path("f"))), "first second");
  const Blob mapped = map_file(path("f"));
  write(path("f"), "new");
  EXPECT_EQ(text(mapped), "first second");  // the file that was opened
  EXPECT_EQ(text(map_file(path("f"))), "new");
  EXPECT_EQ(files(), 1u);  // nothing temporary is left
}

TEST_F(File, ReplacesWithoutWaitingForTheDisk) {
  write(path("f"), "old", Durability::kCached);  // there is none to replace yet
  const Blob mapped = map_file(path("f"));
  fs::permissions(path("f"), fs::perms::owner_read | fs::perms::owner_write);
  write(path("f"), "new one", Durability::kCached);
  EXPECT_EQ(text(mapped), "old");
  EXPECT_EQ(text(read_file(path("f"))), "new one");
  EXPECT_EQ(fs::status(path("f")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(files(), 1u);  // the old file is gone
}

TEST_F(File, EmptyFiles) {
  write(path("f"), "");
  for (const Blob& blob : {map_file(path("f")), read_file(path("f"))}) {
    EXPECT_EQ(blob.size(), 0u);
    EXPECT_NE(blob.data(), nullptr);
  }
}

TEST_F(File, ErrorsNamePathAndReason) {
  const auto message = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string absent = path("absent");
  EXPECT_EQ(message([&] { map_file(absent); }),
            "cannot open '" + absent + "': No such file or directory");
  EXPECT_EQ(message([&] { read_file(folder_.string()); }),
            "cannot read '" + folder_.string() + "': Is a directory");
  EXPECT_EQ(message([&] { write(absent + "/x", "1"); }),
            "cannot write '" + absent + "/x': No such file or directory");
  EXPECT_EQ(message([&] { write(folder_.string(), "1"); }),
            "cannot replace '" + folder_.string() + "': it is not a file");
  EXPECT_EQ(message([&] { FileLock lock(absent + "/x"); }),
            "cannot open '" + absent + "/x.lock': No such file or directory");
  EXPECT_EQ(files(), 0u);
}

TEST_F(File, KeepsModeAndLinks) {
  write(path("f"), "old");
  fs::permissions(path("f"), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink(path("f"), path("link"));
  write(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(text(read_file(path("f"))), "new");
  EXPECT_EQ(fs::status(path("f")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  write(path("g"), "x");
  const mode_t mask = umask(0);
  umask(mask);
  struct stat status {};
  ASSERT_EQ(stat(path("g").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0666 & ~mask);
}

TEST_F(File, ReadsNeitherPipesNorDevicesNorMoreThanIsAsked) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);  // that nobody writes to
  fs::create_symlink("/dev/zero", path("zero"));
  for (const char* name : {"pipe", "zero"}) {
    try {
      read_file(path(name));
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), "cannot read '" + path(name) + "': it is not a regular file");
    }
  }
  write(path("f"), "12345");
  EXPECT_EQ(text(read_file(path("f"), 5)), "12345");
  EXPECT_THROW(read_file(path("f"), 4), Error);
  EXPECT_THROW(read_file("/proc/self/status", 4), Error);  // which does not tell its size
  EXPECT_GT(read_file("/proc/self/status", 1 << 20).size(), 4u);
}

TEST_F(File, WritesWhatALinkNames) {
  fs::create_symlink("b", path("a"));
  fs::create_symlink(path("c"), path("b"));
  write(path("a"), "new");
  EXPECT_TRUE(fs::is_symlink(path("a")) && fs::is_symlink(path("b")));
  EXPECT_EQ(text(read_file(path("c"))), "new");
  fs::create_symlink("loop", path("loop"));
  EXPECT_THROW(write(path("loop"), "x"), Error);
  EXPECT_TRUE(fs::is_symlink(path("loop")));
}

TEST_F(File, KnowsAFileByAllItsNames) {
  write(path("model"), "m");
  fs::create_symlink("model", path("link"));
  fs::create_hard_link(path("model"), path("hard"));
  fs::create_symlink("absent", path("dangling"));
  const std::vector<std::string> files = {path("model"), path("absent")};
  const std::vector<std::string> same = {path("model"),    path("link"),   path("hard"),
                                         path("dangling"), path("absent"), path("./model")};
  for (const std::string& output : same)
    EXPECT_THROW(require_other_file(output, files, "the model"), Error) << output;
  require_other_file(path("other"), files, "the model");
}

TEST_F(File, MapsNeitherPipesNorDevicesNorWaitsForThem) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);  // that nobody writes to
  EXPECT_THROW(map_file(path("pipe")), Error);
  EXPECT_THROW(map_file("/dev/null"), Error);
  EXPECT_THROW(map_file(folder_.string()), Error);
  EXPECT_THROW(map_file_beneath(folder_.string(), "pipe"), Error);
}

TEST_F(File, MapsWhatLiesBeneathAFolderOnly) {
  const std::string inner = (folder_ / "inner").string();
  fs::create_directories(folder_ / "inner" / "deep");
  write(path("secret"), "secret");
  write(inner + "/file", "file");
  write(inner + "/deep/file", "deep");
  EXPECT_EQ(text(map_file_beneath(inner, "file")), "file");
  EXPECT_EQ(text(map_file_beneath(inner, "deep/file")), "deep");
  fs::create_symlink("../secret", inner + "/relative");
  fs::create_symlink(path("secret"), inner + "/absolute");
  fs::create_symlink("..", inner + "/up");
  fs::create_symlink("/proc/self/root", inner + "/magic");
  for (const std::string name : {"../secret", "deep/../../secret", "relative", "absolute",
                                 "up/secret", "magic/etc/passwd"}) {
    try {
      map_file_beneath(inner, name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("leads out of the folder"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_THROW(map_file_beneath(inner, path("secret")), Error);
  EXPECT_THROW(map_file_beneath(inner, ""), Error);
  EXPECT_THROW(map_file_beneath(inner, "absent"), Error);
  EXPECT_THROW(map_file_beneath(inner, "deep"), Error);
  EXPECT_THROW(map_file_beneath(inner, std::string("file\0", 5)), Error);
}

TEST_F(File, MapsThroughLinksWhereTheyArePermitted) {
  const std::string inner = (folder_ / "inner").string();
  fs::create_directories(inner);
  fs::create_directories(folder_ / "store");
  write(path("store/blob"), "blob");
  write(path("secret"), "secret");
  fs::create_symlink("../store/blob", inner + "/relative");
  fs::create_symlink(path("store/blob"), inner + "/absolute");
  fs::create_symlink("relative", inner + "/twice");
  fs::create_symlink("../store", inner + "/folder");
  for (const std::string name : {"relative", "absolute", "twice", "folder/blob"}) {
    EXPECT_EQ(text(map_file_beneath(inner, name, Links::kAnywhere)), "blob") << name;
    EXPECT_THROW(map_file_beneath(inner, name), Error) << name;
  }
  // The name itself leads out of the folder.
  for (const std::string& name :
       {std::string("../secret"), path("secret"), std::string("folder/../secret"), std::string()})
    EXPECT_THROW(map_file_beneath(inner, name, Links::kAnywhere), Error) << name;
  ASSERT_EQ(mkfifo(path("store/pipe").c_str(), 0600), 0);
  fs::create_symlink("../store/pipe", inner + "/pipe");
  fs::create_symlink("/dev/zero", inner + "/device");
  fs::create_symlink("../store", inner + "/itself");
  fs::create_symlink("loop", inner + "/loop");
  for (const std::string name : {"pipe", "device", "itself", "loop"})
    EXPECT_THROW(map_file_beneath(inner, name, Links::kAnywhere), Error) << name;
}

TEST_F(File, FullDiskLeavesTheOldFile) {
  write(path("f"), "old");
  const std::string target = path("f");
  // A limit on the size of files stands for the full disk, in a process of its own.
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write(target, std::string(5000, 'x'));
    } catch (const Error&) {
      _exit(7);
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(text(read_file(target)), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(File, ReadersSeeTheOldOrTheNewFile) {
  const std::string target = path("f");
  write(target, std::string(100000, 'a'));
  const pid_t child = fork();
  if (child == 0) {  // killed in the middle of whatever it does
    for (char c = 'a';; c = static_cast<char>(c == 'z' ? 'a' : c + 1))
      write(target, std::string(100000, c));
  }
  const auto check = [&] {
    const std::string now = text(read_file(target));
    ASSERT_EQ(now.size(), 100000u);
    ASSERT_EQ(now, std::string(100000, now[0]));
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  while (std::chrono::steady_clock::now() < end) check();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  check();
}

TEST_F(File, LockExcludesOthers) {
  std::atomic<bool> entered = false;
  std::thread other;
  {
    const FileLock lock(path("f"));
    other = std::thread([&] {
      const FileLock mine(path("f"));
      entered = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(entered);
  }
  other.join();
  EXPECT_TRUE(entered);
}

}  // namespace
}  // namespace opwright
