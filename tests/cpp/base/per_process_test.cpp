#include "base/per_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

namespace opwright {
namespace {

TEST(PerProcess, AForkedChildMakesItsOwn) {
  int made = 0;
  PerProcess<int> value([&made] { return std::make_unique<int>(++made); });
  EXPECT_EQ(value.get(), 1);
  value.get() = 10;
  EXPECT_EQ(value.get(), 10);
  EXPECT_EQ(made, 1);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool is_fresh = value.get() == 2 && value.get() == 2 && made == 2;
    // The child's own children, too.
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(value.get() == 3 ? 0 : 1);
    int status = -1;
    waitpid(grandchild, &status, 0);
    _exit(is_fresh && status == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(value.get(), 10);
}

}  // namespace
}  // namespace opwright
