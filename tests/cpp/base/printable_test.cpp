#include "base/printable.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace opwright {
namespace {

TEST(Printable, LeavesTextOfAnyLanguage) {
  for (const char* text : {"", "conv_1/weights:0", "a\\b",
                           "gr\xc3\xb6\xc3\x9f"
                           "er",
                           "\xe5\x90\x8d\xe5\x89\x8d", "\xf0\x9f\x98\x80", "\xd7\xa9"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, EscapesWhatSteersATerminal) {
  EXPECT_EQ(printable("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(printable("a\r\x08 b\x7f"), "a\\x0d\\x08 b\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  // CSI as one character, an override of the direction, an isolate, a line separator.
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\u009b2J");
  EXPECT_EQ(printable("x\xe2\x80\xae"
                      "gnp"),
            "x\\u202egnp");
  EXPECT_EQ(printable("\xe2\x81\xa6|\xe2\x80\xa8"), "\\u2066|\\u2028");
}

TEST(Printable, EscapesBytesThatAreNoText) {
  EXPECT_EQ(printable("\xff\x9b\xe5\x90"), "\\xff\\x9b\\xe5\\x90");
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b");
  std::string bytes;
  for (int i = 0; i < 65536; ++i) bytes += {static_cast<char>(i >> 8), static_cast<char>(i)};
  const std::string shown = printable(bytes);
  EXPECT_TRUE(is_utf8(shown));
  for (std::string_view rest = shown; !rest.empty(); rest.remove_prefix(utf8_length(rest)))
    ASSERT_FALSE(steers_terminal(utf8_character(rest)));
}

TEST(Printable, MessagesHaveLinesNamesHaveNot) {
  EXPECT_EQ(printable("a\n\tb\r\n", LineEnds::kKeep), "a\n\tb\\x0d\n");
  EXPECT_EQ(printable("a\n\tb"), "a\\n\\tb");
}

}  // namespace
}  // namespace opwright
