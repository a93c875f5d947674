#include "experts/expert_budget.h"

#include <gtest/gtest.h>

#include "experts/free_memory.h"
#include "formats/test_tools.h"

namespace chorus::experts {
namespace {

constexpr uint64_t kGiB = 1ull << 30;

BudgetInput input_of(uint64_t record_bytes, uint64_t experts) {
  BudgetInput input;
  input.record_bytes = record_bytes;
  input.experts = experts;
  input.free_bytes = 24 * kGiB;
  return input;
}

TEST(ExpertBudget, AskedBytesBecomeSlots) {
  BudgetInput input = input_of(1000, 10);
  input.host_bytes = 3999;
  auto budget = plan_budget(input);
  ASSERT_TRUE(budget.ok());
  EXPECT_EQ(budget->host_slots, 3u);
  EXPECT_FALSE(budget->resident);
  input.host_bytes = 10000;
  budget = plan_budget(input);
  ASSERT_TRUE(budget.ok());
  EXPECT_TRUE(budget->resident);
}

TEST(ExpertBudget, FreeMemoryDecidesWhenNothingIsAsked) {
  BudgetInput input = input_of(kGiB, 100);
  input.resident_bytes = 3 * kGiB;
  auto budget = plan_budget(input);
  ASSERT_TRUE(budget.ok());
  EXPECT_EQ(budget->host_slots, 17u);  // 85 % of 24 - 3 - 1
  input.experts = 17;
  budget = plan_budget(input);
  ASSERT_TRUE(budget.ok());
  EXPECT_TRUE(budget->resident);
  input.free_bytes = 4 * kGiB;
  budget = plan_budget(input);
  ASSERT_FALSE(budget.ok());
  EXPECT_EQ(budget.error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(budget.error().message.find('\n'), std::string::npos);
}

TEST(ExpertBudget, DeviceMemoryComesFirstWhereThereIsSome) {
  BudgetInput input = input_of(kGiB, 100);
  input.in_place = false;
  auto budget = plan_budget(input);
  ASSERT_TRUE(budget.ok());
  EXPECT_TRUE(budget->resident);  // the device itself will say no
  EXPECT_EQ(budget->device_slots, 100u);
  input.device_bytes = 8 * kGiB;
  input.host_bytes = 2 * kGiB;
  budget = plan_budget(input);
  ASSERT_TRUE(budget.ok());
  EXPECT_FALSE(budget->resident);
  EXPECT_EQ(budget->device_slots, 8u);
  EXPECT_EQ(budget->host_slots, 2u);
  input.device_bytes = kGiB - 1;
  budget = plan_budget(input);
  ASSERT_FALSE(budget.ok());
  EXPECT_NE(budget.error().message.find("--expert-vram"), std::string::npos) << budget.error().message;
  input.device_bytes = 0;
  input.host_bytes = 0;
  input.shared_memory = true;  // both from the same memory: half of 85 % of 23 GiB each
  budget = plan_budget(input);
  ASSERT_TRUE(budget.ok());
  EXPECT_EQ(budget->device_slots, 9u);
  EXPECT_EQ(budget->host_slots, 9u);
}

TEST(FreeMemory, ParsesWhatTheSystemSays) {
  EXPECT_EQ(parse_meminfo("MemTotal:       24000000 kB\nMemFree: 5 kB\nMemAvailable:    1000 kB\n"), 1024000u);
  EXPECT_FALSE(parse_meminfo("MemTotal:       24000000 kB\n"));
  EXPECT_FALSE(parse_meminfo("MemAvailable: many kB\n"));
  EXPECT_FALSE(parse_meminfo("MemAvailable: 99999999999999999999999 kB\n"));
  EXPECT_EQ(parse_group("1000\n", "700\n", "anon 1\ninactive_file 300\n"), 600u);
  EXPECT_EQ(parse_group("1000\n", "700\n", ""), 300u);
  EXPECT_EQ(parse_group("1000", "2000", "inactive_file 5000"), 1000u);
  EXPECT_EQ(parse_group("1000", "2000", ""), 0u);
  EXPECT_FALSE(parse_group("max\n", "700\n", ""));
  EXPECT_FALSE(parse_group("", "", ""));
}

TEST(FreeMemory, TakesTheTightestGroup) {
  const formats::testing::TemporaryFolder root;
  root.write("proc/meminfo", "MemAvailable: 9000 kB\n");
  EXPECT_EQ(free_memory_bytes(root.path()), 9000u * 1024);
  root.write("proc/self/cgroup", "0::/a/b\n");
  root.write("sys/fs/cgroup/a/memory.max", "5000000\n");
  root.write("sys/fs/cgroup/a/memory.current", "1000000\n");
  root.write("sys/fs/cgroup/a/b/memory.max", "max\n");
  root.write("sys/fs/cgroup/a/b/memory.current", "1000\n");
  EXPECT_EQ(free_memory_bytes(root.path()), 4000000u);
  root.write("proc/self/cgroup", "12:cpu,memory:/c\n1:name=x:/\n");
  root.write("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "3000000\n");
  root.write("sys/fs/cgroup/memory/c/memory.usage_in_bytes", "1000000\n");
  EXPECT_EQ(free_memory_bytes(root.path()), 2000000u);
  const formats::testing::TemporaryFolder nothing;
  EXPECT_FALSE(free_memory_bytes(nothing.path()));
}

}  // namespace
}  // namespace chorus::experts
