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

TEST(Bytes, SizesAreWrittenInPowersOf1024) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1024), "1.0 KiB");
  EXPECT_EQ(size_text(1536), "1.5 KiB");
  EXPECT_EQ(size_text((1u << 20) - 1), "1.0 MiB");
  EXPECT_EQ(size_text(6ull << 30), "6.0 GiB");
  EXPECT_EQ(size_text(5ull << 40), "5.0 TiB");
  EXPECT_EQ(size_text(UINT64_MAX), "16777216.0 TiB");
  EXPECT_EQ(rate_text(1.5 * (1 << 30)), "1.5 GiB/s");
}

}  // namespace
}  // namespace chorus
