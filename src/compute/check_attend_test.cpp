#include "compute/check_test_tools.h"

namespace chorus::compute {
namespace {

// Two rows at the end of 40 keys; 4 query heads, 2 kv heads, 6 key and 5 value columns.
struct AttendFixture {
  FakeBuffer q{2 * 24}, keys{40 * 12}, values{40 * 10}, sinks{4}, selected{2 * 2}, out{2 * 20};
  AttendArgs args;
  AttendFixture() {
    args.query_heads = 4;
    args.kv_heads = 2;
    args.key_dim = 6;
    args.value_dim = 5;
    args.scale = 0.5f;
    args.q = {&q, 0, 2, 24, 24};
    args.keys = {&keys, 0, 40, 12, 12};
    args.values = {&values, 0, 40, 10, 10};
    args.sinks = &sinks;
    args.selected = &selected;
    args.out = {&out, 0, 2, 20, 20};
  }
  template <typename Change>
  AttendArgs changed(Change change) const {
    AttendArgs copy = args;
    change(copy);
    return copy;
  }
};

TEST(CheckAttend, AcceptsGoodArguments) {
  const AttendFixture f;
  expect_ok(f.args);
  expect_ok(f.changed([](AttendArgs& a) { a.sinks = nullptr, a.selected = nullptr, a.window = 7; }));
  expect_ok(f.changed([](AttendArgs& a) { a.q.rows = a.out.rows = 0; }));
  expect_ok(f.changed([](AttendArgs& a) { a.q.rows = a.out.rows = a.keys.rows = a.values.rows = 0; }));
}

// Latent attention: one kv head, values are the first columns of the keys.
TEST(CheckAttend, ValuesMayLieInTheKeys) {
  FakeBuffer q(4 * 6), cache(10 * 6), out(4 * 4);
  AttendArgs args;
  args.query_heads = 4;
  args.kv_heads = 1;
  args.key_dim = 6;
  args.value_dim = 4;
  args.scale = 1;
  args.q = {&q, 0, 1, 24, 24};
  args.keys = {&cache, 0, 10, 6, 6};
  args.values = {&cache, 0, 10, 4, 6};
  args.out = {&out, 0, 1, 16, 16};
  expect_ok(args);
  args.out = {&cache, 0, 1, 16, 16};
  expect_fails(args, "overlap");
}

TEST(CheckAttend, Shapes) {
  const AttendFixture f;
  expect_fails(f.changed([](AttendArgs& a) { a.query_heads = 3; }), "multiple of the 2 kv heads");
  expect_fails(f.changed([](AttendArgs& a) { a.kv_heads = 0; }), "kv heads");
  expect_fails(f.changed([](AttendArgs& a) { a.key_dim = 0; }), "key dim");
  expect_fails(f.changed([](AttendArgs& a) { a.value_dim = 0; }), "value dim");
  expect_fails(f.changed([](AttendArgs& a) { a.value_dim = 0xffffffffu; }), "values columns");
  for (const float scale : {0.0f, -1.0f, kNan}) expect_fails(f.changed([&](AttendArgs& a) { a.scale = scale; }), "scale");
  expect_fails(f.changed([](AttendArgs& a) { a.q.cols = 23; }), "q columns: expected 24");
  expect_fails(f.changed([](AttendArgs& a) { a.keys.cols = 11; }), "keys columns: expected 12");
  expect_fails(f.changed([](AttendArgs& a) { a.values.cols = 9; }), "values columns: expected 10");
  expect_fails(f.changed([](AttendArgs& a) { a.values.rows = 39; }), "values rows: expected 40");
  expect_fails(f.changed([](AttendArgs& a) { a.out.rows = 1; }), "out rows: expected 2");
  expect_fails(f.changed([](AttendArgs& a) { a.keys.rows = a.values.rows = 1; }), "keys rows: expected at least the 2 rows");
}

TEST(CheckAttend, SinksAndSelected) {
  const AttendFixture f;
  const FakeBuffer three(3);
  expect_fails(f.changed([&](AttendArgs& a) { a.sinks = &three; }), "sinks: expected a buffer of at least 4");
  expect_fails(f.changed([&](AttendArgs& a) { a.selected = &three; }), "selected: expected a buffer of at least 4");
  FakeBuffer shared(80);
  expect_fails(f.changed([&](AttendArgs& a) { a.sinks = &shared, a.out.buffer = &shared; }), "overlap with sinks");
  expect_fails(f.changed([&](AttendArgs& a) { a.selected = &shared, a.out.buffer = &shared; }), "overlap with selected");
}

TEST(CheckAttend, SelectKeys) {
  FakeBuffer q(2 * 12), keys(40 * 4), weights(2 * 3), selected(4), three(3);
  SelectKeysArgs args;
  args.heads = 3;
  args.head_dim = 4;
  args.top_k = 5;
  args.q = {&q, 0, 2, 12, 12};
  args.keys = {&keys, 0, 40, 4, 4};
  args.weights = {&weights, 0, 2, 3, 3};
  args.selected = &selected;
  expect_ok(args);
  const auto changed = [&](auto change) {
    SelectKeysArgs copy = args;
    change(copy);
    return copy;
  };
  expect_ok(changed([](SelectKeysArgs& a) { a.q.rows = a.weights.rows = 0; }));
  expect_fails(changed([](SelectKeysArgs& a) { a.top_k = 0; }), "top_k");
  expect_fails(changed([](SelectKeysArgs& a) { a.heads = 0; }), "heads");
  expect_fails(changed([](SelectKeysArgs& a) { a.head_dim = 5; }), "q columns: expected 15");
  expect_fails(changed([](SelectKeysArgs& a) { a.keys.cols = 3; }), "keys columns: expected 4");
  expect_fails(changed([](SelectKeysArgs& a) { a.weights.rows = 1; }), "weights rows: expected 2");
  expect_fails(changed([](SelectKeysArgs& a) { a.keys.rows = 1; }), "keys rows: expected at least");
  expect_fails(changed([&](SelectKeysArgs& a) { a.selected = &three; }), "selected: expected a buffer of at least 4");
  expect_fails(changed([&](SelectKeysArgs& a) { a.selected = &q; }), "overlap");
  expect_fails(changed([](SelectKeysArgs& a) { a.scale = kNan; }), "scale");
}

}  // namespace
}  // namespace chorus::compute
