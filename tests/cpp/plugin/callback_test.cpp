#include "plugin/registry/callback.h"

#include <stdexcept>

#include "plugin/plugin_test.h"
#include "plugin/test_language.h"

namespace opwright {
namespace {

TEST(LeftException, GetsItsPlaceInFront) {
  const auto fails = [] {
    leave_exception(std::make_exception_ptr(Error(ErrorCode::kINVALID_STATE, "expected a bool")),
                    "ask");
    return -1;
  };
  try {
    call_plugin("plugin 'p': ", fails);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "plugin 'p': ask(): expected a bool");
    EXPECT_EQ(error.code(), ErrorCode::kINVALID_STATE);
  }
  EXPECT_EQ(call_plugin("plugin 'p': ", [] { return 7; }), 7) << "it was thrown once";
}

TEST(LeftException, IsDroppedWhereNobodyCouldBeTold) {
  call_plugin_quietly(
      [] { leave_exception(std::make_exception_ptr(std::out_of_range("too late"))); });
  EXPECT_NO_THROW(call_plugin("plugin 'p': ", [] {}));
}

TEST(LeftException, OthersGetANote) {
  TestLanguage python;
  try {
    call_plugin(
        [] { return std::string("plugin 'p': "); },
        [] { leave_exception(std::make_exception_ptr(std::out_of_range("as it was")), "ask"); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "as it was");
  }
  EXPECT_EQ(python.noted, "plugin 'p': ask()");
}

}  // namespace
}  // namespace opwright
