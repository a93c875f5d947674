#include <limits>

#include "compute/check_test_tools.h"

namespace chorus::compute {
namespace {

class FakeWeight final : public Weight {
 public:
  FakeWeight(uint32_t rows, uint32_t cols) : Weight(rows, cols, DType::f32, uint64_t{rows} * cols * 4) {}
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

View whole(const Buffer& buffer, uint32_t rows, uint32_t cols) { return {&buffer, 0, rows, cols, cols}; }
MutableView whole(Buffer& buffer, uint32_t rows, uint32_t cols) { return {&buffer, 0, rows, cols, cols}; }

struct LinearFixture {
  FakeBuffer x{3 * 5}, bias{7}, out{3 * 7};
  FakeWeight weight{7, 5};
  LinearArgs args{whole(std::as_const(x), 3, 5), &weight, &bias, whole(out, 3, 7), LinearStore::overwrite};
};

TEST(Check, LinearAcceptsGoodArguments) {
  LinearFixture f;
  expect_ok(f.args);
  f.args.bias = nullptr;
  expect_ok(f.args);
  f.args.x.rows = 0;
  f.args.out.rows = 0;
  expect_ok(f.args);
}

TEST(Check, LinearShapes) {
  LinearFixture f;
  auto changed = [&](auto change) {
    LinearArgs args = f.args;
    change(args);
    return args;
  };
  expect_fails(changed([](LinearArgs& a) { a.weight = nullptr; }), "weight");
  expect_fails(changed([](LinearArgs& a) { a.x.buffer = nullptr; }), "x buffer");
  expect_fails(changed([](LinearArgs& a) { a.out.buffer = nullptr; }), "out buffer");
  expect_fails(changed([](LinearArgs& a) { a.x.cols = 4; }), "x columns: expected 5");
  expect_fails(changed([](LinearArgs& a) { a.out.cols = 6; }), "out columns: expected 7");
  expect_fails(changed([](LinearArgs& a) { a.x.rows = 2; }), "out rows: expected 2");
  expect_fails(changed([](LinearArgs& a) { a.x.cols = 0; }), "x columns");
  FakeBuffer short_bias(6);
  expect_fails(changed([&](LinearArgs& a) { a.bias = &short_bias; }), "bias");
}

TEST(Check, ViewBoundsAreExactAndDoNotOverflow) {
  FakeBuffer x(100), out(1000);
  FakeWeight weight(1, 10);
  LinearArgs args{View{&x, 0, 4, 10, 30}, &weight, nullptr, MutableView{&out, 0, 4, 1, 1}, LinearStore::overwrite};
  expect_ok(args);  // 3 * 30 + 10 = 100
  args.x.offset = 1;
  expect_fails(args, "found a buffer of 100 elements");
  args.x.offset = std::numeric_limits<uint64_t>::max();
  expect_fails(args, "inside the buffer");
  args.x = View{&x, 0, 0xffffffffu, 10, 0xffffffffu};
  args.out.rows = 0xffffffffu;
  expect_fails(args, "inside the buffer");
  args.x = View{&x, 0, 4, 10, 9};
  args.out.rows = 4;
  expect_fails(args, "stride of at least");
  args.x = View{&x, 101, 0, 10, 10};
  args.out.rows = 0;
  expect_fails(args, "inside the buffer");
}

TEST(Check, OverlapIsJudgedByElements) {
  FakeBuffer shared(200), other(100);
  FakeWeight weight(4, 4);
  LinearArgs args{View{&shared, 0, 10, 4, 10}, &weight, nullptr, MutableView{&shared, 4, 10, 4, 10}, LinearStore::overwrite};
  expect_ok(args);  // columns side by side
  args.out.offset = 3;
  expect_fails(args, "overlap");
  args.out.offset = 7;  // wraps into the next row's first column
  expect_fails(args, "overlap");
  args.out.offset = 6;
  expect_ok(args);
  args.out = MutableView{&shared, 94, 10, 4, 4};
  expect_ok(args);  // behind
  args.out = MutableView{&shared, 93, 10, 4, 4};
  expect_fails(args, "overlap");
}

TEST(Check, Embed) {
  FakeBuffer ids(3), out(12);
  FakeWeight table(9, 4);
  EmbedArgs args{&ids, &table, whole(out, 3, 4)};
  expect_ok(args);
  EmbedArgs bad = args;
  bad.ids = nullptr;
  expect_fails(bad, "ids");
  bad = args;
  bad.table = nullptr;
  expect_fails(bad, "table");
  bad = args;
  bad.out = whole(out, 4, 3);
  expect_fails(bad, "ids");
  bad.out = whole(out, 3, 3);
  expect_fails(bad, "out columns: expected 4");
  bad = args;
  bad.ids = &out;
  expect_fails(bad, "overlap");
}

TEST(Check, Norms) {
  FakeBuffer x(24), gate(24), weight(8), out(24);
  RmsNormArgs norm{whole(std::as_const(x), 3, 8), &weight, 1e-6f, NormWeight::plain, whole(out, 3, 8)};
  expect_ok(norm);
  for (float epsilon : {kNan, kInfinity, 0.0f, -1e-6f}) {
    RmsNormArgs bad = norm;
    bad.epsilon = epsilon;
    expect_fails(bad, "epsilon");
  }
  RmsNormArgs bad = norm;
  bad.weight = nullptr;
  expect_fails(bad, "weight");

  GatedRmsNormArgs gated{whole(std::as_const(x), 3, 8), whole(std::as_const(gate), 3, 8), &weight, 4, 1e-6f, whole(out, 3, 8)};
  expect_ok(gated);
  gated.out = whole(x, 3, 8);  // in place is allowed
  expect_ok(gated);
  gated.out = MutableView{&x, 0, 2, 8, 16};
  gated.x.rows = gated.gate.rows = 2;
  expect_fails(gated, "overlap");
  gated.x.rows = gated.gate.rows = 3;
  gated.out = whole(gate, 3, 8);
  expect_fails(gated, "overlap");
  gated.out = whole(out, 3, 8);
  gated.head_dim = 3;
  expect_fails(gated, "multiple of the head dim 3");
  gated.head_dim = 0;
  expect_fails(gated, "head dim");
}

TEST(Check, Swiglu) {
  FakeBuffer in(24), out(12);
  SwigluArgs args{whole(std::as_const(in), 3, 8), whole(out, 3, 4)};
  expect_ok(args);
  args.gate_up.cols = 7;
  expect_fails(args, "gate_up columns: expected 8");
  args.gate_up.cols = 8;
  args.out.rows = 2;
  expect_fails(args, "out rows: expected 3");
}

struct ConvFixture {
  FakeBuffer x{50}, weight{40}, history{30}, history_out{30}, out{50}, device{4};
  Sequences sequences{{{0, 2}, {2, 3}}, &device};
  CausalConvArgs args{whole(std::as_const(x), 5, 10), &weight, &history, nullptr, &sequences, whole(out, 5, 10)};
};

TEST(Check, ConvolutionAndSequences) {
  ConvFixture f;
  expect_ok(f.args);
  f.args.history_out = &f.history_out;
  expect_fails(f.args, "sequences with history_out: expected 1");
  f.sequences.spans = {{0, 5}};
  expect_ok(f.args);
  f.args.history_out = &f.history;
  expect_fails(f.args, "overlap with history_in");
  f.args.history_out = nullptr;
  f.sequences.spans = {{0, 2}, {3, 2}};
  expect_fails(f.args, "sequence 1: expected to start at row 2");
  f.sequences.spans = {{0, 2}, {2, 2}};
  expect_fails(f.args, "expected 5");
  f.sequences.spans = {{0, 2}, {2, 0xffffffffu}};
  expect_fails(f.args, "rows covered");
  f.sequences.spans = {{0, 2}, {2, 1}, {3, 2}};
  expect_fails(f.args, "sequences on the device");
  f.sequences.spans = {{0, 5}};
  f.sequences.device = nullptr;
  expect_fails(f.args, "sequences on the device");
  f.args.sequences = nullptr;
  expect_fails(f.args, "sequences");
}

struct DeltaFixture {
  GatedDeltaShape shape{2, 4, 3, 5};
  FakeBuffer qkv{2 * 32}, b{8}, a{8}, a_log{4}, dt_bias{4}, state{60}, state_out{60}, out{40}, device{2};
  Sequences sequences{{{0, 2}}, &device};
  GatedDeltaArgs args{shape,
                      whole(std::as_const(qkv), 2, 32),
                      whole(std::as_const(b), 2, 4),
                      whole(std::as_const(a), 2, 4),
                      &a_log,
                      &dt_bias,
                      &state,
                      &state_out,
                      &sequences,
                      whole(out, 2, 20)};
};

TEST(Check, GatedDelta) {
  DeltaFixture f;
  expect_ok(f.args);
  auto changed = [&](auto change) {
    GatedDeltaArgs args = f.args;
    change(args);
    return args;
  };
  expect_fails(changed([](GatedDeltaArgs& a) { a.shape.value_heads = 3; }), "multiple of the 2 key heads");
  expect_fails(changed([](GatedDeltaArgs& a) { a.shape.key_heads = 0; }), "key heads");
  expect_fails(changed([](GatedDeltaArgs& a) { a.qkv.cols = 31; }), "qkv columns: expected 32");
  expect_fails(changed([](GatedDeltaArgs& a) { a.b.rows = 1; }), "b rows: expected 2");
  expect_fails(changed([](GatedDeltaArgs& a) { a.shape.key_dim = 0xffffffffu, a.shape.value_dim = 0xffffffffu; }), "state_in");
  expect_fails(changed([&](GatedDeltaArgs& a) { a.state_out = &f.state; }), "overlap with state_in");
  f.sequences.spans = {{0, 1}, {1, 1}};
  FakeBuffer device(4);
  f.sequences.device = &device;
  expect_fails(f.args, "state_out");
  f.args.state_out = nullptr;
  expect_ok(f.args);
}

struct AttentionFixture {
  AttentionShape shape{4, 2, 8};
  FakeBuffer q{3 * 32}, q_gate{3 * 64}, kv{3 * 32}, cache{10 * 16}, cache_v{10 * 16}, weight{8}, table{12}, out{3 * 32}, device{2};
  Sequences sequences{{{0, 3}}, &device};
};

TEST(Check, LinearWithANorm) {
  FakeBuffer x(12), out(9), norm_weight(4), normed(12), small(3);
  const FakeWeight weight(3, 4);
  LinearArgs args{whole(std::as_const(x), 3, 4), &weight, nullptr, whole(out, 3, 3)};
  args.norm = {&norm_weight, 1e-6f, NormWeight::plain, whole(normed, 3, 4)};
  expect_ok(args);
  const auto changed = [&](auto change) {
    LinearArgs copy = args;
    change(copy);
    return copy;
  };
  expect_fails(changed([&](LinearArgs& a) { a.norm.weight = &small; }), "norm weight: expected a buffer of at least 4");
  expect_fails(changed([](LinearArgs& a) { a.norm.epsilon = kNan; }), "epsilon");
  expect_fails(changed([](LinearArgs& a) { a.norm.out.rows = 2; }), "norm out rows: expected 3");
  expect_fails(changed([](LinearArgs& a) { a.norm.out.cols = 3; }), "norm out columns: expected 4");
  expect_fails(changed([](LinearArgs& a) { a.norm.out.buffer = nullptr; }), "norm out buffer");
  expect_fails(changed([&](LinearArgs& a) { a.norm.out = whole(x, 3, 4); }), "overlap with x");
  expect_fails(changed([&](LinearArgs& a) { a.bias = &normed; }), "overlap with bias");
}

TEST(Check, QkNormRope) {
  AttentionFixture f;
  QkNormRopeArgs args;
  args.shape = f.shape;
  args.rotary_dim = 8;
  args.q_gate = whole(std::as_const(f.q_gate), 3, 64);
  args.kv = whole(std::as_const(f.kv), 3, 32);
  args.q_weight = args.k_weight = &f.weight;
  args.cosine = args.sine = whole(std::as_const(f.table), 3, 4);
  args.q_out = whole(f.q, 3, 32);
  args.k_out = MutableView{&f.cache, 16, 3, 16, 16};
  args.v_out = MutableView{&f.cache_v, 16, 3, 16, 16};
  expect_ok(args);
  auto changed = [&](auto change) {
    QkNormRopeArgs copy = args;
    change(copy);
    return copy;
  };
  expect_ok(changed([](QkNormRopeArgs& a) { a.q_out.buffer = nullptr, a.q_gate = {}, a.q_weight = nullptr; }));
  for (uint32_t rotary : {0u, 3u, 10u}) expect_fails(changed([&](QkNormRopeArgs& a) { a.rotary_dim = rotary; }), "rotary dim");
  expect_fails(changed([](QkNormRopeArgs& a) { a.shape.query_heads = 3; }), "multiple of the 2 kv heads");
  expect_fails(changed([](QkNormRopeArgs& a) { a.cosine.rows = 2; }), "cosine rows");
  expect_fails(changed([](QkNormRopeArgs& a) { a.rotary_dim = 4; }), "cosine columns: expected 2");
  expect_fails(changed([](QkNormRopeArgs& a) { a.v_out = a.k_out; }), "overlap with v_out");
  expect_fails(changed([&](QkNormRopeArgs& a) { a.k_out = MutableView{&f.kv, 0, 3, 16, 32}; }), "overlap with kv");
  expect_fails(changed([](QkNormRopeArgs& a) { a.q_weight = nullptr; }), "q_weight");
  expect_fails(changed([](QkNormRopeArgs& a) { a.epsilon = kNan; }), "epsilon");
  expect_fails(changed([](QkNormRopeArgs& a) { a.norm = QueryKeyNorm::none; }), "k_weight: expected none");
  expect_fails(changed([](QkNormRopeArgs& a) { a.norm = QueryKeyNorm::whole_row; }), "norm: expected one per head beside a gate");
  expect_fails(changed([](QkNormRopeArgs& a) {
                 a.norm = QueryKeyNorm::whole_row;
                 a.gated = false;
               }),
               "k_weight");
}

TEST(Check, Attention) {
  AttentionFixture f;
  AttentionArgs args;
  args.shape = f.shape;
  args.scale = 0.25f;
  args.q = whole(std::as_const(f.q), 3, 32);
  args.q_gate = whole(std::as_const(f.q_gate), 3, 64);
  args.prefix_k = View{&f.cache, 0, 7, 16, 16};
  args.prefix_v = View{&f.cache_v, 0, 7, 16, 16};
  args.own_k = View{&f.cache, 7 * 16, 3, 16, 16};
  args.own_v = View{&f.cache_v, 7 * 16, 3, 16, 16};
  args.sequences = &f.sequences;
  args.out = whole(f.out, 3, 32);
  expect_ok(args);
  auto changed = [&](auto change) {
    AttentionArgs copy = args;
    change(copy);
    return copy;
  };
  expect_ok(changed([](AttentionArgs& a) { a.prefix_k = {}, a.prefix_v = {}; }));
  expect_fails(changed([](AttentionArgs& a) { a.prefix_v.rows = 6; }), "prefix_v rows: expected 7");
  expect_fails(changed([](AttentionArgs& a) { a.prefix_k.cols = 15; }), "prefix_k columns: expected 16");
  expect_fails(changed([](AttentionArgs& a) { a.prefix_k.buffer = nullptr; }), "prefix_k buffer");
  expect_fails(changed([](AttentionArgs& a) { a.scale = kNan; }), "scale");
  expect_fails(changed([](AttentionArgs& a) { a.scale = 0; }), "scale");
  expect_fails(changed([](AttentionArgs& a) { a.own_k.rows = 2; }), "own_k rows: expected 3");
  expect_fails(changed([&](AttentionArgs& a) { a.out = whole(f.q, 3, 32); }), "overlap with q");
  f.sequences.spans = {{0, 2}};
  expect_fails(args, "rows covered by the sequences: expected 3");
}

TEST(Check, GatherPointerSoftmax) {
  FakeBuffer x(20), indices(3), out(12), scores(3);
  GatherRowsArgs gather{whole(std::as_const(x), 5, 4), &indices, whole(out, 3, 4)};
  expect_ok(gather);
  gather.x.rows = 0;
  expect_fails(gather, "x rows");
  gather.x = whole(std::as_const(x), 5, 3);
  expect_fails(gather, "out columns: expected 3");

  PointerScoresArgs pointer{View{&x, 0, 2, 4, 4}, View{&x, 8, 3, 4, 4}, &indices, 0.5f, 2.0f, &scores};
  expect_ok(pointer);
  pointer.temperature = 0;
  expect_fails(pointer, "temperature");
  pointer.temperature = kInfinity;
  expect_fails(pointer, "temperature");
  pointer.temperature = 1;
  pointer.scale = kNan;
  expect_fails(pointer, "scale");
  pointer.scale = 1;
  pointer.queries.rows = 0;
  expect_fails(pointer, "queries rows");
  pointer.queries = View{&x, 0, 2, 3, 4};
  expect_fails(pointer, "keys columns: expected 3");

  FakeBuffer values(6), starts(4), probabilities(6);
  SegmentSoftmaxArgs softmax{&values, &starts, 3, 6, &probabilities};
  expect_ok(softmax);
  softmax.segments = 4;
  expect_fails(softmax, "segment_starts");
  softmax.segments = 3;
  softmax.count = 7;
  expect_fails(softmax, "values");
  softmax.count = 6;
  softmax.out = &values;
  expect_fails(softmax, "overlap");
  softmax.out = &probabilities;
  softmax.segments = 0;
  expect_fails(softmax, "segments");
}

TEST(Check, Copy) {
  FakeBuffer source(10), target(10);
  CopyArgs args{&source, 8, &target, 0, 32};
  expect_ok(args);
  args.bytes = 36;
  expect_fails(args, "source: expected 36 bytes from offset 8");
  args.bytes = 30;
  expect_fails(args, "multiple of 4");
  args.bytes = 32;
  args.target_offset = 12;
  expect_fails(args, "target: expected 32 bytes");
  args.target_offset = 2;
  expect_fails(args, "target offset");
  args.target_offset = 0;
  args.source_offset = 0xfffffffffffffffcull;
  expect_fails(args, "source");
  args.source_offset = 0;
  args.target = &source;
  expect_fails(args, "another buffer");
  args.target = nullptr;
  expect_fails(args, "target");
}

TEST(Check, RmsNormMayBeInPlace) {
  FakeBuffer buffer(64), weight(8);
  RmsNormArgs norm{whole(std::as_const(buffer), 3, 8), &weight, 1e-6f, NormWeight::plain, whole(buffer, 3, 8)};
  expect_ok(norm);
  norm.out.offset = 8;
  expect_fails(norm, "overlap");
}

TEST(Check, LayerNorm) {
  FakeBuffer x(24), weight(8), bias(8), out(24), small(7);
  const LayerNormArgs norm{whole(std::as_const(x), 3, 8), &weight, &bias, 1e-6f, whole(out, 3, 8)};
  expect_ok(norm);
  auto changed = [&](auto change) {
    LayerNormArgs args = norm;
    change(args);
    return args;
  };
  expect_ok(changed([&](LayerNormArgs& a) { a.out.buffer = &x; }));
  expect_fails(changed([&](LayerNormArgs& a) { a.bias = nullptr; }), "bias");
  expect_fails(changed([&](LayerNormArgs& a) { a.weight = &small; }), "weight");
  expect_fails(changed([&](LayerNormArgs& a) { a.out.rows = 2; }), "out rows");
  expect_fails(changed([&](LayerNormArgs& a) { a.epsilon = kNan; }), "epsilon");
  expect_fails(changed([&](LayerNormArgs& a) { a.out = {&x, 0, 2, 8, 16}, a.x = {&x, 0, 2, 8, 8}; }), "overlap");
  expect_fails(changed([&](LayerNormArgs& a) { a.out.buffer = &bias, a.out.rows = 1, a.x.rows = 1; }), "overlap");
}

TEST(Check, Rope) {
  FakeBuffer x(60), cosine(9), sine(9), out(60);
  const RopeArgs rope{2,
                      10,
                      4,
                      6,
                      RopeForm::pairs,
                      whole(std::as_const(x), 3, 20),
                      whole(std::as_const(cosine), 3, 3),
                      whole(std::as_const(sine), 3, 3),
                      whole(out, 3, 20)};
  expect_ok(rope);
  auto changed = [&](auto change) {
    RopeArgs args = rope;
    change(args);
    return args;
  };
  expect_ok(changed([&](RopeArgs& a) { a.out.buffer = &x; }));
  expect_fails(changed([](RopeArgs& a) { a.heads = 0; }), "heads");
  expect_fails(changed([](RopeArgs& a) { a.rotary_dim = 5; }), "rotary dim");
  expect_fails(changed([](RopeArgs& a) { a.rotary_dim = 8; }), "rotary dim");
  expect_fails(changed([](RopeArgs& a) { a.first = 0xffffffffu; }), "rotary dim");
  expect_fails(changed([](RopeArgs& a) { a.heads = 3; }), "x columns: expected 30");
  expect_fails(changed([](RopeArgs& a) { a.sine.cols = 2; }), "sine columns");
  expect_fails(changed([](RopeArgs& a) { a.cosine.rows = 2; }), "cosine rows");
  expect_fails(changed([&](RopeArgs& a) { a.out = {&x, 0, 3, 20, 20}, a.x = {&x, 0, 2, 20, 20}; }), "out rows");
}

TEST(Check, HeadLinear) {
  FakeBuffer x(3 * 20), out(3 * 12);
  FakeWeight weight(12, 8);
  const HeadLinearArgs product{2, 12, whole(std::as_const(x), 3, 20), &weight, whole(out, 3, 12)};
  expect_ok(product);
  auto changed = [&](auto change) {
    HeadLinearArgs args = product;
    change(args);
    return args;
  };
  expect_fails(changed([](HeadLinearArgs& a) { a.heads = 0; }), "heads");
  expect_fails(changed([](HeadLinearArgs& a) { a.heads = 5; }), "weight rows: expected a multiple of the 5 heads");
  expect_fails(changed([](HeadLinearArgs& a) { a.x_head_stride = 7; }), "x head stride");
  expect_fails(changed([](HeadLinearArgs& a) { a.x_head_stride = 13; }), "x columns: expected at least 21");
  expect_fails(changed([](HeadLinearArgs& a) { a.out.cols = 11; }), "out columns");
  expect_fails(changed([](HeadLinearArgs& a) { a.weight = nullptr; }), "weight");
  expect_fails(changed([&](HeadLinearArgs& a) { a.out = whole(x, 3, 12); }), "overlap");
}

TEST(Check, ChoosingAToken) {
  FakeBuffer x(60), indices(3), rows(24), small(2);
  expect_ok(ArgmaxArgs{whole(std::as_const(x), 3, 20), &indices});
  expect_fails(ArgmaxArgs{whole(std::as_const(x), 3, 20), &small}, "indices");
  expect_fails(ArgmaxArgs{whole(std::as_const(x), 3, 20), &x}, "overlap");
  expect_ok(SampleArgs{whole(std::as_const(x), 3, 20), &rows, &indices});
  expect_fails(SampleArgs{whole(std::as_const(x), 3, 20), &indices, &rows}, "rows");
  expect_fails(SampleArgs{whole(std::as_const(x), 3, 20), &rows, nullptr}, "indices");
  FakeBuffer large(kSampleVocabularyMax + 1);
  expect_fails(SampleArgs{whole(std::as_const(large), 1, kSampleVocabularyMax + 1), &rows, &indices}, "logits columns");
}

}  // namespace
}  // namespace chorus::compute
