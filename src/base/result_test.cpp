// The one line of an error: whatever names it holds, it stays one line of valid UTF-8.
#include "base/result.h"

#include <gtest/gtest.h>

namespace chorus {
namespace {

std::string line_of(std::string message) { return make_error(ErrorCode::internal, std::move(message)).to_line(); }

TEST(ErrorLine, JoinsTheContext) {
  const Error error = make_error(ErrorCode::invalid_input, "bad byte").with_context("reading a").with_context("loading b");
  EXPECT_EQ(error.to_line(), "bad byte; reading a; loading b");
}

TEST(ErrorLine, EscapesWhatCouldBreakOrFakeALine) {
  EXPECT_EQ(line_of("a\nchorus: b\r\x1b[31m\x7f"), "a\\x0achorus: b\\x0d\\x1b[31m\\x7f");
  EXPECT_EQ(line_of(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(line_of("\xc2\x85 \xe2\x80\xa8 \xe2\x80\xae \xe2\x81\xa6"), "\\xc2\\x85 \\xe2\\x80\\xa8 \\xe2\\x80\\xae \\xe2\\x81\\xa6");
  EXPECT_EQ(make_error(ErrorCode::internal, "a").with_context("b\nc").to_line(), "a; b\\x0ac");
}

TEST(ErrorLine, EscapesWhatIsNotUtf8) {
  EXPECT_EQ(line_of("a\xff"), "a\\xff");
  EXPECT_EQ(line_of("cut \xe2\x82"), "cut \\xe2\\x82");
  EXPECT_EQ(line_of("\xc0\xaf"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(line_of("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // surrogate
  EXPECT_EQ(line_of("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // past the last code point
}

TEST(ErrorLine, LeavesOrdinaryTextAlone) {
  const std::string text = "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \\x \"quoted\"";
  EXPECT_EQ(line_of(text), text);
}

}  // namespace
}  // namespace chorus
