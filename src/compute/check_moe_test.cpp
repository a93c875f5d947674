#include "base/limits.h"
#include "compute/check_test_tools.h"

namespace chorus::compute {
namespace {

class FakeBank final : public ExpertBank {
 public:
  FakeBank(const ExpertShape& shape, uint32_t slots) : ExpertBank(shape, slots) {}
};

template <typename Args, typename Change>
Status changed(Args args, const Change& change) {
  change(args);
  return check(args);
}

struct RouterFixture {
  FakeBuffer logits{3 * 16}, bias{16}, experts{3 * 4}, weights{3 * 4};
  RouterArgs args{{&logits, 0, 3, 16, 16}, &bias, RouterScore::sigmoid, 4, 2, 4, true, 2.5f, &experts, &weights};
};

TEST(CheckMoe, Router) {
  RouterFixture f;
  expect_ok(check(f.args));
  expect_ok(changed(f.args, [](RouterArgs& a) { a.bias = nullptr; }));
  expect_ok(changed(f.args, [](RouterArgs& a) { a.logits.rows = 0; }));
  expect_fails(changed(f.args, [](RouterArgs& a) { a.logits.buffer = nullptr; }), "logits buffer");
  expect_fails(changed(f.args, [](RouterArgs& a) { a.experts = nullptr; }), "experts buffer");
  expect_fails(changed(f.args, [](RouterArgs& a) { a.weights = nullptr; }), "weights buffer");
  expect_fails(changed(f.args, [](RouterArgs& a) { a.top_k = 0; }), "top_k: expected 1 to 32");
  expect_fails(changed(f.args, [](RouterArgs& a) { a.top_k = 33; }), "top_k: expected 1 to 32");
  expect_fails(changed(f.args, [](RouterArgs& a) { a.groups_kept = 1, a.top_k = 5; }), "top_k: expected 1 to 4 (experts of the kept");
  expect_fails(changed(f.args, [](RouterArgs& a) { a.groups = 0; }), "groups: expected a divisor of the 16");
  expect_fails(changed(f.args, [](RouterArgs& a) { a.groups = 3; }), "groups: expected a divisor of the 16");
  expect_fails(changed(f.args, [](RouterArgs& a) { a.groups = 16; }), "groups: expected at least two");
  expect_fails(changed(f.args, [](RouterArgs& a) { a.groups_kept = 5; }), "groups kept: expected 1 to the 4");
  expect_fails(changed(f.args, [](RouterArgs& a) { a.groups_kept = 0; }), "groups kept");
  expect_fails(changed(f.args, [](RouterArgs& a) { a.scale = kNan; }), "scale");
  FakeBuffer small(11), bias(15);
  expect_fails(changed(f.args, [&](RouterArgs& a) { a.experts = &small; }), "experts: expected a buffer of at least 12");
  expect_fails(changed(f.args, [&](RouterArgs& a) { a.weights = &small; }), "weights: expected a buffer of at least 12");
  expect_fails(changed(f.args, [&](RouterArgs& a) { a.bias = &bias; }), "bias: expected a buffer of at least 16");
  expect_fails(changed(f.args, [&](RouterArgs& a) { a.experts = &f.logits; }), "overlap");
  expect_fails(changed(f.args, [&](RouterArgs& a) { a.weights = &f.experts; }), "overlap");
  expect_fails(changed(f.args, [&](RouterArgs& a) { a.weights = &f.bias; }), "overlap");
}

struct ExpertFixture {
  FakeBank bank{{8, 4, DType::f16, true}, 3};
  FakeBuffer x{2 * 8}, slots{4}, out{4 * 8};
  ExpertFfnArgs args{&bank, 2, ExpertActivation::swiglu, 1.702f, 7.0f, {&x, 0, 2, 8, 8}, &slots, {&out, 0, 4, 8, 8}};
};

TEST(CheckMoe, ExpertFfn) {
  ExpertFixture f;
  expect_ok(check(f.args));
  expect_ok(changed(f.args, [](ExpertFfnArgs& a) { a.x.rows = a.out.rows = 0; }));
  expect_ok(changed(f.args, [](ExpertFfnArgs& a) { a.limit = kNan; }));  // not used without clamping
  expect_fails(changed(f.args, [](ExpertFfnArgs& a) { a.bank = nullptr; }), "bank");
  expect_fails(changed(f.args, [](ExpertFfnArgs& a) { a.top_k = 0; }), "top_k");
  expect_fails(changed(f.args, [](ExpertFfnArgs& a) { a.x.cols = 7; }), "x columns: expected 8");
  expect_fails(changed(f.args, [](ExpertFfnArgs& a) { a.out.cols = 7; }), "out columns: expected 8");
  expect_fails(changed(f.args, [](ExpertFfnArgs& a) { a.out.rows = 3; }), "out rows: expected 4");
  expect_fails(changed(f.args, [](ExpertFfnArgs& a) { a.slots = nullptr; }), "slots buffer");
  FakeBuffer small(3);
  expect_fails(changed(f.args, [&](ExpertFfnArgs& a) { a.slots = &small; }), "slots: expected a buffer of at least 4");
  expect_fails(changed(f.args, [&](ExpertFfnArgs& a) { a.out.buffer = &f.x, a.x.rows = 1, a.out.rows = 2; }), "overlap");
  f.args.activation = ExpertActivation::clamped_swiglu;
  expect_ok(check(f.args));
  expect_fails(changed(f.args, [](ExpertFfnArgs& a) { a.limit = 0; }), "limit");
  expect_fails(changed(f.args, [](ExpertFfnArgs& a) { a.limit = kNan; }), "limit");
  expect_fails(changed(f.args, [](ExpertFfnArgs& a) { a.alpha = kNan; }), "alpha");
}

struct CombineFixture {
  FakeBuffer routed{4 * 8}, weights{4}, shared{2 * 8}, gate{2}, out{2 * 8};
  CombineRoutesArgs args{2, {&routed, 0, 4, 8, 8}, &weights, {&shared, 0, 2, 8, 8}, {&gate, 0, 2, 1, 1}, {&out, 0, 2, 8, 8}};
};

TEST(CheckMoe, CombineRoutes) {
  CombineFixture f;
  expect_ok(check(f.args));
  expect_ok(changed(f.args, [](CombineRoutesArgs& a) { a.shared_gate = {}; }));
  expect_ok(changed(f.args, [](CombineRoutesArgs& a) { a.shared = {}, a.shared_gate = {}; }));
  expect_fails(changed(f.args, [](CombineRoutesArgs& a) { a.shared = {}; }), "shared gate: expected none");
  expect_fails(changed(f.args, [](CombineRoutesArgs& a) { a.top_k = 0; }), "top_k");
  expect_fails(changed(f.args, [](CombineRoutesArgs& a) { a.routed.rows = 3; }), "routed rows: expected 4");
  expect_fails(changed(f.args, [](CombineRoutesArgs& a) { a.routed.cols = 7; }), "routed columns: expected 8");
  expect_fails(changed(f.args, [](CombineRoutesArgs& a) { a.shared.rows = 1; }), "shared rows: expected 2");
  expect_fails(changed(f.args, [](CombineRoutesArgs& a) { a.shared.cols = 7; }), "shared columns: expected 8");
  expect_fails(changed(f.args, [](CombineRoutesArgs& a) { a.shared_gate.rows = 1; }), "shared gate rows: expected 2");
  FakeBuffer small(3);
  expect_fails(changed(f.args, [&](CombineRoutesArgs& a) { a.weights = &small; }), "weights: expected a buffer of at least 4");
  expect_fails(changed(f.args, [&](CombineRoutesArgs& a) { a.out.buffer = &f.routed; }), "overlap");
  expect_fails(changed(f.args, [&](CombineRoutesArgs& a) { a.out.buffer = &f.shared; }), "overlap");
}

TEST(CheckMoe, Banks) {
  expect_ok(check_bank({1, 1, DType::f32, false}, 1));
  expect_ok(check_bank({limits::kModelDimensionMax, limits::kModelDimensionMax, DType::f32, true}, 1));
  expect_fails(check_bank({0, 1, DType::f32, false}, 1), "hidden size");
  expect_fails(check_bank({1, limits::kModelDimensionMax + 1, DType::f32, false}, 1), "inner size");
  expect_fails(check_bank({1, 1, DType::f32, false}, 0), "slots");
  const FakeBank bank({8, 4, DType::f16, true}, 3);
  const uint64_t bytes = ExpertRecord(bank.shape()).bytes;
  expect_ok(check_expert(bank, 2, bytes));
  expect_fails(check_expert(bank, 3, bytes), "slot: expected one of 3");
  expect_fails(check_expert(bank, 2, bytes - 1), "record bytes: expected");
}

TEST(CheckMoe, RecordPartsAreAligned) {
  const ExpertRecord record({37, 21, DType::bf16, true});
  EXPECT_EQ(record.hidden_padded, 40u);
  EXPECT_EQ(record.inner_padded, 24u);
  EXPECT_EQ(record.down_offset, 3392u);          // 42 rows of 80 bytes, up to a multiple of 64
  EXPECT_EQ(record.gate_up_bias_offset, 5184u);  // and 37 rows of 48 bytes
  EXPECT_EQ(record.down_bias_offset, 5376u);     // and 42 floats
  EXPECT_EQ(record.bytes, 5568u);                // and 37 floats
}

}  // namespace
}  // namespace chorus::compute
