#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace opwright {
namespace {

TEST(Utf8, TellsTextFromOtherBytes) {
  for (const char* text : {"", "abc", "\xc3\xa9", "\xe5\x90\x8d", "\xf0\x9f\x98\x80"})
    EXPECT_TRUE(is_utf8(text)) << text;
  EXPECT_TRUE(is_utf8(std::string_view("a\0b", 3)));
  // A single byte, a sequence cut off, longer than needed, a surrogate, beyond U+10FFFF.
  for (const char* bytes : {"\xff", "\x80", "a\xe5\x90", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                            "\xf4\x90\x80\x80"})
    EXPECT_FALSE(is_utf8(bytes)) << bytes;
}

}  // namespace
}  // namespace opwright
