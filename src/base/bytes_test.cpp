#include "base/bytes.h"

#include <gtest/gtest.h>

namespace chorus {
namespace {

TEST(Bytes, SizesAreStrict) {
  EXPECT_EQ(parse_size("512"), 512u);
  EXPECT_EQ(parse_size("64K"), 64u << 10);
  EXPECT_EQ(parse_size("512M"), 512u << 20);
  EXPECT_EQ(parse_size("4G"), 4ull << 30);
  EXPECT_EQ(parse_size("1T"), 1ull << 40);
  for (const char* bad :
       {"", "G", "4GB", "4g", "-1", "+4", " 4", "4 ", "4.5G", "0x10", "99999999999999999999", "99999999999T", "M4", "4GG"}) {
    EXPECT_FALSE(parse_size(bad)) << bad;
  }
}

}  // namespace
}  // namespace chorus
