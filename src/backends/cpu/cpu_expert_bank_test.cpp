// Banks of the cpu backend: records lie where readers may fill them, are counted, and foreign ones are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "selftest/expert_tools.h"

namespace chorus::backends {
namespace {

class ForeignBank final : public compute::ExpertBank {
 public:
  ForeignBank() : ExpertBank({8, 8, DType::f32, false}, 1) {}
};

TEST(CpuExpertBank, RecordsLieInPlaceAndApart) {
  auto backend = create_cpu_backend({.threads = 1});
  const compute::ExpertShape shape{40, 24, DType::f16, true};
  auto bank = backend->create_expert_bank(shape, 3, "bank");
  ASSERT_TRUE(bank.ok()) << bank.error().to_line();
  const uint64_t bytes = compute::ExpertRecord(shape).bytes;
  for (uint32_t slot = 0; slot < 3; ++slot) {
    const std::vector<std::byte> record(bytes, static_cast<std::byte>(slot + 1));
    ASSERT_TRUE(backend->write_expert(**bank, slot, record).ok());
  }
  for (uint32_t slot = 0; slot < 3; ++slot) {
    const std::byte* record = backend->expert_memory(**bank, slot);
    ASSERT_NE(record, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(record) % 64, 0u);
    EXPECT_TRUE(std::all_of(record, record + bytes, [&](std::byte value) { return value == static_cast<std::byte>(slot + 1); }));
  }
  EXPECT_EQ(backend->expert_memory(**bank, 3), nullptr);
}

TEST(CpuExpertBank, LargeRecordsStartAtPages) {
  auto backend = create_cpu_backend({.threads = 1});
  auto bank = backend->create_expert_bank({1000, 333, DType::f32, false}, 2, "bank");  // 4 MB each, not whole pages
  ASSERT_TRUE(bank.ok()) << bank.error().to_line();
  for (uint32_t slot = 0; slot < 2; ++slot) EXPECT_EQ(reinterpret_cast<uintptr_t>(backend->expert_memory(**bank, slot)) % 4096, 0u);
}

TEST(CpuExpertBank, CountsMemoryAndGivesItBack) {
  auto backend = create_cpu_backend({.threads = 1, .memory_limit_bytes = 1 << 20});
  const compute::ExpertShape shape{64, 64, DType::f32, false};  // 48 KiB
  {
    auto bank = backend->create_expert_bank(shape, 10, "bank");
    ASSERT_TRUE(bank.ok()) << bank.error().to_line();
    EXPECT_GE(backend->bytes_in_use(), 10 * compute::ExpertRecord(shape).bytes);
    EXPECT_EQ(backend->create_expert_bank(shape, 12, "more").error().code, ErrorCode::out_of_memory);
  }
  EXPECT_EQ(backend->bytes_in_use(), 0u);
  EXPECT_EQ(backend->create_expert_bank({1 << 20, 1 << 20, DType::f32, false}, 0xffffffffu, "huge").error().code, ErrorCode::out_of_memory);
}

TEST(CpuExpertBank, RefusesWhatIsNotItsOwn) {
  auto backend = create_cpu_backend({.threads = 1});
  ForeignBank foreign;
  const std::vector<std::byte> record(compute::ExpertRecord(foreign.shape()).bytes);
  EXPECT_EQ(backend->write_expert(foreign, 0, record).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(backend->expert_memory(foreign, 0), nullptr);
  EXPECT_EQ(backend->create_expert_bank({0, 8, DType::f32, false}, 1, "empty").error().code, ErrorCode::invalid_argument);

  auto x = backend->create_buffer(32, "x"), slots = backend->create_buffer(4, "slots"), out = backend->create_buffer(32, "out");
  ASSERT_TRUE(x.ok() && slots.ok() && out.ok());
  compute::ExpertFfnArgs args;
  args.bank = &foreign;
  args.top_k = 1;
  args.x = {x->get(), 0, 1, 8, 8};
  args.slots = slots->get();
  args.out = {out->get(), 0, 1, 8, 8};
  auto batch = backend->begin_batch();
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ((*batch)->expert_ffn(args).error().code, ErrorCode::invalid_argument);
}

// 530 routes through 5 experts of which the first gets most: more than one part of an expert, and tasks of every size.
Result<std::vector<float>> run_ffn(uint32_t threads, const std::string& variant, DType dtype) {
  const compute::ExpertShape shape{200, 90, dtype, true};
  auto backend = create_cpu_backend({.threads = threads});
  CHORUS_TRY(backend->force_variant("expert_ffn", variant));
  selftest::Random random(3);
  std::vector<selftest::Expert> experts;
  for (int slot = 0; slot < 5; ++slot) experts.push_back(selftest::random_expert(shape, random));
  CHORUS_ASSIGN(auto bank, selftest::upload_bank(*backend, shape, experts));
  std::vector<uint32_t> slots;
  for (uint32_t route = 0; route < 530; ++route) slots.push_back(route % 2 == 0 ? 0 : static_cast<uint32_t>(random.next() % 5));
  CHORUS_ASSIGN(auto x, selftest::upload(*backend, random.vector(265 * 200)));
  CHORUS_ASSIGN(auto slot_buffer, selftest::upload_u32(*backend, slots));
  CHORUS_ASSIGN(auto out, backend->create_buffer(530 * 200 * 4, "out"));
  compute::ExpertFfnArgs args;
  args.bank = bank.get();
  args.top_k = 2;
  args.x = {x.get(), 0, 265, 200, 200};
  args.slots = slot_buffer.get();
  args.out = {out.get(), 0, 530, 200, 200};
  CHORUS_ASSIGN(auto batch, backend->begin_batch());
  CHORUS_TRY(batch->expert_ffn(args));
  return selftest::download(*backend, *out);
}

TEST(CpuExpertBank, TheNumberOfThreadsChangesNoBit) {
  for (const std::string& variant : create_cpu_backend({.threads = 1})->variants("expert_ffn")) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto expected = run_ffn(1, variant, dtype);
      ASSERT_TRUE(expected.ok()) << expected.error().to_line();
      for (const uint32_t threads : {2u, 5u}) {
        const auto found = run_ffn(threads, variant, dtype);
        ASSERT_TRUE(found.ok()) << found.error().to_line();
        EXPECT_EQ(std::memcmp(found->data(), expected->data(), expected->size() * sizeof(float)), 0)
            << variant << ", " << threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace chorus::backends
