// Known answers of the gated delta rule against its float64 twin.
//
// Tolerance. With s the head's scale (largest state column norm or value, from the twin), one token adds to a state column a rounding error
// of about u s times the square root of the longest sum behind it (key_dim products, 64 tokens of a chunk) plus a constant number of
// roundings in gates and norms; without decay errors of T tokens add up like sqrt(T) (probabilistic rounding model, Higham & Mary 2019).
// Outputs are state columns times a query of norm key_dim^-0.5.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernels/gated_delta/gated_delta_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace gated_delta_cases {

using compute::GatedDeltaShape;
using compute::SequenceSpan;

constexpr const char* kOperation = "gated_delta";
constexpr double kUnitRoundoff = 0x1p-24;
constexpr double kGateRoundings = 16;

enum class Decay { typical, one, tiny_12, tiny_30, zero, minus_90, infinite, mixed };
enum class Keys { random, repeated, collinear, alternating };

struct Case {
  std::string name;
  GatedDeltaShape shape;
  std::vector<uint32_t> lengths;
  Decay decay = Decay::typical;
  Keys keys = Keys::random;
  float b = 0;              // added to the random gate inputs; 40 gives beta = 1
  uint32_t qkv_gap = 0;     // extra elements between rows
  uint32_t qkv_offset = 0;  // elements before the first row
  bool zero_state = false;
};

struct Data {
  std::vector<SequenceSpan> spans;
  uint32_t rows = 0, cols = 0, value_cols = 0;
  std::vector<float> qkv, b, a, a_log, dt_bias, state;

  kernels::GatedDeltaInput input(const GatedDeltaShape& shape) const { return {shape, qkv, b, a, a_log, dt_bias, state, spans}; }
};

// a + dt_bias of one token for a wanted decay; a_log is zero then, so that ln decay = -softplus.
float gate_input(Decay decay, Random& random) {
  switch (decay) {
    case Decay::typical:
      return random.uniform(-4, 2);
    case Decay::one:
      return -200;
    case Decay::tiny_12:
      return 27.631021f;
    case Decay::tiny_30:
      return 69.077553f;
    case Decay::zero:
      return 1000;
    case Decay::minus_90:
      return 90;
    case Decay::infinite:
      return 3e38f;
    case Decay::mixed:
      break;
  }
  constexpr std::array<Decay, 7> kinds = {Decay::typical, Decay::one,      Decay::tiny_12, Decay::tiny_30,
                                          Decay::zero,    Decay::minus_90, Decay::typical};
  return gate_input(kinds[random.next() % kinds.size()], random);
}

void fill_keys(const Case& spec, Data& data, Random& random) {
  if (spec.keys == Keys::random) return;
  const size_t key_cols = static_cast<size_t>(spec.shape.key_heads) * spec.shape.key_dim;
  const std::vector<float> base = random.vector(key_cols);
  for (size_t row = 0; row < data.rows; ++row) {
    const float sign = spec.keys == Keys::alternating && row % 2 == 1 ? -1.0f : 1.0f;
    for (size_t i = 0; i < key_cols; ++i) {
      const float noise = spec.keys == Keys::collinear ? random.uniform(-1e-3f, 1e-3f) : 0.0f;
      data.qkv[row * data.cols + key_cols + i] = sign * base[i] + noise;
    }
  }
}

Data make_data(const Case& spec, uint64_t seed) {
  const GatedDeltaShape& shape = spec.shape;
  Random random(seed);
  Data data;
  for (uint32_t length : spec.lengths) {
    data.spans.push_back({data.rows, length});
    data.rows += length;
  }
  data.value_cols = shape.value_heads * shape.value_dim;
  data.cols = 2 * shape.key_heads * shape.key_dim + data.value_cols;
  data.qkv = random.vector(static_cast<size_t>(data.rows) * data.cols);
  fill_keys(spec, data, random);
  const size_t gates = static_cast<size_t>(data.rows) * shape.value_heads;
  data.b = random.vector(gates, spec.b - 2, spec.b + 2);
  data.dt_bias = random.vector(shape.value_heads, -0.5f, 0.5f);
  data.a_log = spec.decay == Decay::typical ? random.vector(shape.value_heads, -3, 1) : std::vector<float>(shape.value_heads, 0.0f);
  if (spec.decay == Decay::infinite) std::fill(data.a_log.begin(), data.a_log.end(), 89.0f);
  for (size_t i = 0; i < gates; ++i) data.a.push_back(gate_input(spec.decay, random) - data.dt_bias[i % shape.value_heads]);
  const size_t state = static_cast<size_t>(shape.value_heads) * shape.key_dim * shape.value_dim;
  data.state = spec.zero_state ? std::vector<float>(state, 0.0f) : random.vector(state, -0.3f, 0.3f);
  return data;
}

// The device side of a case.
struct Buffers {
  std::shared_ptr<compute::Buffer> qkv, b, a, a_log, dt_bias, state, spans;
  GuardedOutput out, state_out;
  compute::Sequences sequences;
};

Result<Buffers> upload_case(compute::Backend& backend, const Case& spec, const Data& data) {
  Buffers buffers;
  const size_t stride = data.cols + spec.qkv_gap;
  std::vector<float> padded(spec.qkv_offset + data.rows * stride + 4, std::nanf(""));
  for (size_t row = 0; row < data.rows; ++row) {
    std::copy_n(&data.qkv[row * data.cols], data.cols, &padded[spec.qkv_offset + row * stride]);
  }
  CHORUS_ASSIGN(buffers.qkv, upload(backend, padded));
  // One element more than needed, so that zero rows still make a buffer.
  auto extended = [](std::vector<float> values) {
    values.push_back(std::nanf(""));
    return values;
  };
  CHORUS_ASSIGN(buffers.b, upload(backend, extended(data.b)));
  CHORUS_ASSIGN(buffers.a, upload(backend, extended(data.a)));
  CHORUS_ASSIGN(buffers.a_log, upload(backend, data.a_log));
  CHORUS_ASSIGN(buffers.dt_bias, upload(backend, data.dt_bias));
  CHORUS_ASSIGN(buffers.state, upload(backend, data.state));
  std::vector<uint32_t> pairs;
  for (const SequenceSpan& span : data.spans) pairs.insert(pairs.end(), {span.start, span.length});
  CHORUS_ASSIGN(buffers.spans, upload_u32(backend, pairs));
  buffers.sequences = {data.spans, buffers.spans.get()};
  CHORUS_ASSIGN(buffers.out, make_output(backend, data.rows, data.value_cols, data.value_cols + spec.qkv_gap));
  return buffers;
}

compute::GatedDeltaArgs make_args(const Case& spec, const Data& data, const Buffers& buffers) {
  const uint32_t heads = spec.shape.value_heads;
  compute::GatedDeltaArgs args;
  args.shape = spec.shape;
  args.qkv = {buffers.qkv.get(), spec.qkv_offset, data.rows, data.cols, data.cols + spec.qkv_gap};
  args.b = {buffers.b.get(), 0, data.rows, heads, heads};
  args.a = {buffers.a.get(), 0, data.rows, heads, heads};
  args.a_log = buffers.a_log.get();
  args.dt_bias = buffers.dt_bias.get();
  args.state_in = buffers.state.get();
  args.sequences = &buffers.sequences;
  args.out = buffers.out.view;
  return args;
}

Status run(compute::Backend& backend, const compute::GatedDeltaArgs& args) {
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->gated_delta(args));
  return batch->submit();
}

double state_error(const GatedDeltaShape& shape, uint32_t tokens, double scale) {
  const double per_token = std::sqrt(static_cast<double>(shape.key_dim)) + std::sqrt(64.0) + kGateRoundings;
  return kUnitRoundoff * per_token * std::sqrt(tokens + 1.0) * scale;
}

uint32_t longest(const Case& spec) { return spec.lengths.empty() ? 0 : *std::max_element(spec.lengths.begin(), spec.lengths.end()); }

std::function<double(size_t)> output_tolerance(const Case& spec, const kernels::GatedDeltaReference& reference) {
  return [&spec, &reference, tokens = longest(spec)](size_t index) {
    const size_t head = index / spec.shape.value_dim % spec.shape.value_heads;
    return state_error(spec.shape, tokens, reference.scale[head]) / std::sqrt(static_cast<double>(spec.shape.key_dim));
  };
}

std::function<double(size_t)> state_tolerance(const Case& spec, const kernels::GatedDeltaReference& reference) {
  return [&spec, &reference, tokens = longest(spec)](size_t index) {
    const size_t head = index / (static_cast<size_t>(spec.shape.key_dim) * spec.shape.value_dim);
    return state_error(spec.shape, tokens, reference.scale[head]);
  };
}

// A dense state as a guarded output would need an offset, which states have not; so it is compared here.
CaseResult compare_state(compute::Backend& backend, const compute::Buffer& state, const Case& spec,
                         const kernels::GatedDeltaReference& reference, const std::string& variant, std::string name) {
  CaseResult result{kOperation, variant, std::move(name), 0, 0, true, {}};
  auto found = download(backend, state);
  if (!found) return failed(kOperation, variant, result.name, found.error());
  const auto tolerance = state_tolerance(spec, reference);
  double worst = -1;
  for (size_t i = 0; i < reference.state.size(); ++i) {
    const double error = std::fabs((*found)[i] - reference.state[i]);
    const double allowed = tolerance(i);
    if (!(error <= allowed) && result.pass) {
      result.pass = false;
      result.detail = "state element " + std::to_string(i) + ": expected " + std::to_string(reference.state[i]) + ", found " +
                      std::to_string((*found)[i]);
    }
    if (!(error / allowed <= worst)) {
      worst = error / allowed;
      result.error = error;
      result.tolerance = allowed;
    }
  }
  return result;
}

CaseResult same_bits(std::span<const float> left, std::span<const float> right, const std::string& variant, std::string name) {
  CaseResult result{kOperation, variant, std::move(name), 0, 0, left.size() == right.size(), {}};
  for (size_t i = 0; result.pass && i < left.size(); ++i) {
    if (std::memcmp(&left[i], &right[i], sizeof(float)) != 0) {
      result.pass = false;
      result.error = std::fabs(static_cast<double>(left[i]) - right[i]);
      result.detail = "element " + std::to_string(i) + ": expected the same bits, found " + std::to_string(left[i]) + " and " +
                      std::to_string(right[i]);
    }
  }
  return result;
}

struct Runner {
  compute::Backend& backend;
  std::string variant;  // "": the backend chooses
  std::vector<CaseResult>& results;

  void fail(const std::string& name, const Error& error) { results.push_back(failed(kOperation, variant, name, error)); }

  // A variant built for smaller heads refuses larger ones; the other variants still run them.
  bool refuses(const Case& spec, const Status& status) const {
    return !variant.empty() && spec.shape.key_dim > 128 && !status.ok() && status.error().code == ErrorCode::unsupported;
  }

  Status known_answer_steps(const Case& spec, uint64_t seed) {
    const Data data = make_data(spec, seed);
    const kernels::GatedDeltaReference reference = kernels::gated_delta_reference(data.input(spec.shape));
    CHORUS_ASSIGN(Buffers buffers, upload_case(backend, spec, data));
    compute::GatedDeltaArgs args = make_args(spec, data, buffers);
    std::shared_ptr<compute::Buffer> state_out;
    if (spec.lengths.size() == 1) {
      const std::vector<float> poison(data.state.size(), std::nanf(""));
      CHORUS_ASSIGN(state_out, upload(backend, poison));
      args.state_out = state_out.get();
    }
    const Status status = run(backend, args);
    if (refuses(spec, status)) return {};
    CHORUS_TRY(status);
    results.push_back(
        compare(backend, buffers.out, reference.out, output_tolerance(spec, reference), kOperation, variant, spec.name + " output"));
    if (state_out) results.push_back(compare_state(backend, *state_out, spec, reference, variant, spec.name + " state"));

    CHORUS_ASSIGN(const std::vector<float> first, download(backend, *buffers.out.buffer));
    CHORUS_TRY(run(backend, args));
    CHORUS_ASSIGN(const std::vector<float> second, download(backend, *buffers.out.buffer));
    results.push_back(same_bits(first, second, variant, spec.name + " repeated"));
    return {};
  }
  void known_answer(const Case& spec, uint64_t seed) {
    if (Status status = known_answer_steps(spec, seed); !status.ok()) fail(spec.name, status.error());
  }

  // One sequence cut at `ends`, each part starting from the state that the one before wrote.
  Status split_steps(const Case& spec, const std::vector<uint32_t>& ends, uint64_t seed) {
    const Data data = make_data(spec, seed);
    const kernels::GatedDeltaReference reference = kernels::gated_delta_reference(data.input(spec.shape));
    CHORUS_ASSIGN(Buffers buffers, upload_case(backend, spec, data));
    std::vector<std::shared_ptr<compute::Buffer>> states = {buffers.state};
    uint32_t begin = 0;
    for (uint32_t end : ends) {
      CHORUS_ASSIGN(auto state_out, upload(backend, std::vector<float>(data.state.size(), std::nanf(""))));
      const uint32_t pair[] = {0, end - begin};
      CHORUS_ASSIGN(auto spans, upload_u32(backend, pair));
      const compute::Sequences sequences{{{0, end - begin}}, spans.get()};
      compute::GatedDeltaArgs args = make_args(spec, data, buffers);
      auto cut = [&](auto& view) {
        view.offset += static_cast<uint64_t>(begin) * view.stride;
        view.rows = end - begin;
      };
      cut(args.qkv);
      cut(args.a);
      cut(args.b);
      cut(args.out);
      args.sequences = &sequences;
      args.state_in = states.back().get();
      args.state_out = state_out.get();
      CHORUS_TRY(run(backend, args));
      states.push_back(std::move(state_out));
      begin = end;
    }
    results.push_back(
        compare(backend, buffers.out, reference.out, output_tolerance(spec, reference), kOperation, variant, spec.name + " output"));
    results.push_back(compare_state(backend, *states.back(), spec, reference, variant, spec.name + " state"));
    return {};
  }
  void split(const Case& spec, const std::vector<uint32_t>& ends, uint64_t seed) {
    if (Status status = split_steps(spec, ends, seed); !status.ok()) fail(spec.name, status.error());
  }

  // Every sequence of a batch alone, from the same state: the same bits.
  Status alone_steps(const Case& spec, uint64_t seed) {
    const Data data = make_data(spec, seed);
    CHORUS_ASSIGN(Buffers buffers, upload_case(backend, spec, data));
    CHORUS_TRY(run(backend, make_args(spec, data, buffers)));
    CHORUS_ASSIGN(const std::vector<float> together, download(backend, *buffers.out.buffer));
    CHORUS_ASSIGN(Buffers fresh, upload_case(backend, spec, data));
    for (const SequenceSpan& span : data.spans) {
      const uint32_t pair[] = {0, span.length};
      CHORUS_ASSIGN(auto spans, upload_u32(backend, pair));
      const compute::Sequences sequences{{{0, span.length}}, spans.get()};
      compute::GatedDeltaArgs args = make_args(spec, data, fresh);
      auto cut = [&](auto& view) {
        view.offset += static_cast<uint64_t>(span.start) * view.stride;
        view.rows = span.length;
      };
      cut(args.qkv);
      cut(args.a);
      cut(args.b);
      cut(args.out);
      args.sequences = &sequences;
      CHORUS_TRY(run(backend, args));
    }
    CHORUS_ASSIGN(const std::vector<float> apart, download(backend, *fresh.out.buffer));
    results.push_back(same_bits(together, apart, variant, spec.name));
    return {};
  }
  void alone(const Case& spec, uint64_t seed) {
    if (Status status = alone_steps(spec, seed); !status.ok()) fail(spec.name, status.error());
  }
};

std::vector<Case> quick_cases() {
  return {
      {"heads 1/2 dims 16x16 T 70", {1, 2, 16, 16}, {70}},
      {"heads 2/4 dims 32x16 T 5,40,64,65 unaligned rows", {2, 4, 32, 16}, {5, 40, 64, 65}, Decay::typical, Keys::random, 0, 3, 5},
      {"heads 2/2 dims 128x128 T 65", {2, 2, 128, 128}, {65}},
      {"heads 1/1 dims 16x32 T 130 mixed decays", {1, 1, 16, 32}, {130}, Decay::mixed},
      {"heads 1/1 dims 16x16 T 64 repeated keys beta 1", {1, 1, 16, 16}, {64}, Decay::one, Keys::repeated, 40},
  };
}

std::vector<Case> full_cases() {
  std::vector<Case> cases = quick_cases();
  const GatedDeltaShape small{2, 4, 16, 20};
  for (uint32_t length : {0u, 1u, 2u, 5u, 8u, 9u, 63u, 64u, 65u, 127u, 128u, 130u, 256u, 1000u}) {
    cases.push_back({"heads 2/4 dims 16x20 T " + std::to_string(length), small, {length}});
  }
  const std::vector<std::pair<const char*, Decay>> decays = {
      {"1", Decay::one},          {"1e-12", Decay::tiny_12},   {"1e-30", Decay::tiny_30}, {"0", Decay::zero},
      {"e^-90", Decay::minus_90}, {"e^-inf", Decay::infinite}, {"mixed", Decay::mixed}};
  for (const auto& [name, decay] : decays) {
    cases.push_back({std::string("heads 2/4 dims 32x32 T 200 decay ") + name, {2, 4, 32, 32}, {200}, decay});
  }
  const std::vector<std::pair<const char*, Keys>> keys = {
      {"repeated", Keys::repeated}, {"near-collinear", Keys::collinear}, {"alternating", Keys::alternating}};
  for (const auto& [name, kind] : keys) {
    for (Decay decay : {Decay::one, Decay::typical}) {
      const std::string suffix = decay == Decay::one ? " decay 1" : "";
      cases.push_back(
          {std::string("heads 1/2 dims 32x16 T 300 ") + name + " keys beta 1" + suffix, {1, 2, 32, 16}, {300}, decay, kind, 40});
    }
  }
  cases.push_back({"heads 2/6 dims 128x128 T 130", {2, 6, 128, 128}, {130}});
  cases.push_back({"heads 1/2 dims 256x64 T 100", {1, 2, 256, 64}, {100}});
  cases.push_back({"heads 1/1 dims 100x36 T 150", {1, 1, 100, 36}, {150}});
  cases.push_back({"heads 1/1 dims 4x4 T 70", {1, 1, 4, 4}, {70}});
  cases.push_back({"heads 3/3 dims 20x132 T 67 unaligned rows", {3, 3, 20, 132}, {67}, Decay::typical, Keys::random, 0, 1, 3});
  cases.push_back({"heads 1/1 dims 16x16 T 8192", {1, 1, 16, 16}, {8192}});
  cases.push_back({"heads 1/1 dims 16x16 T 8192 decay 1 large beta", {1, 1, 16, 16}, {8192}, Decay::one, Keys::random, 4});
  cases.push_back({"heads 2/4 dims 32x16 zero state T 100", {2, 4, 32, 16}, {100}, Decay::typical, Keys::random, 0, 0, 0, true});
  cases.push_back({"heads 2/4 dims 16x16 T 0,1,64,0,9,8,129,0", {2, 4, 16, 16}, {0, 1, 64, 0, 9, 8, 129, 0}});
  cases.push_back({"heads 1/1 dims 16x16 many sequences", {1, 1, 16, 16}, std::vector<uint32_t>(90, 3)});
  cases.back().lengths.insert(cases.back().lengths.end(), 70, 11);
  return cases;
}

void run_variant(Runner& runner, CaseSet set) {
  uint64_t seed = 1;
  for (const Case& spec : set == CaseSet::quick ? quick_cases() : full_cases()) runner.known_answer(spec, seed++);
  runner.split({"heads 2/4 dims 32x16 splits 64,192,200", {2, 4, 32, 16}, {200}}, {64, 192, 200}, seed++);
  runner.alone({"heads 2/4 dims 16x16 batch against alone", {2, 4, 16, 16}, {5, 40, 64, 1, 70, 9}}, seed++);
  if (set == CaseSet::quick) return;
  runner.split({"heads 1/2 dims 16x16 one token at a time", {1, 2, 16, 16}, {6}}, {1, 2, 3, 4, 5, 6}, seed++);
  runner.split({"heads 1/2 dims 16x16 splits 1,65,66,194 mixed decays", {1, 2, 16, 16}, {194}, Decay::mixed}, {1, 65, 66, 194}, seed++);
  runner.alone({"heads 2/4 dims 128x128 five questions against alone", {2, 4, 128, 128}, {40, 38, 41, 35, 46}}, seed++);
}

}  // namespace gated_delta_cases

std::vector<CaseResult> run_gated_delta_cases(compute::Backend& backend, CaseSet set) {
  using namespace gated_delta_cases;
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    Runner runner{backend, variant, results};
    run_variant(runner, set);
  });
  return results;
}

}  // namespace chorus::selftest
