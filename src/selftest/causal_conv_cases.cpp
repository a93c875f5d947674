// Known answers of the causal convolution. Tolerance: four products and three additions before SiLU, then exp (3 + 2|x| units in the last
// place allowed to WGSL) and a division: 16 roundings of sum |w u|, carried through SiLU, whose slope is below 1.1.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/causal_conv/causal_conv_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace causal_conv_cases {

using compute::SequenceSpan;

constexpr const char* kOperation = "causal_conv";
constexpr double kUnitRoundoff = 0x1p-24;

struct Case {
  uint32_t channels = 0;
  std::vector<uint32_t> lengths;
  uint32_t gap = 0;     // extra elements between rows of x and out
  uint32_t offset = 0;  // elements before x
  float scale = 1;      // of the inputs; large ones saturate SiLU
};

struct Data {
  std::vector<SequenceSpan> spans;
  uint32_t rows = 0;
  std::vector<float> x, weight, history;
};

std::string name_of(const Case& spec) {
  std::string name = "channels " + std::to_string(spec.channels) + " rows";
  if (spec.lengths.size() > 8) return name + " " + std::to_string(spec.lengths.size()) + " sequences";
  for (uint32_t length : spec.lengths) name += " " + std::to_string(length);
  return name + " gap " + std::to_string(spec.gap) + " scale " + std::to_string(spec.scale);
}

Data make_data(const Case& spec) {
  Random random(spec.channels * 977 + spec.lengths.size());
  Data data;
  for (uint32_t length : spec.lengths) {
    data.spans.push_back({data.rows, length});
    data.rows += length;
  }
  data.x = random.vector(static_cast<size_t>(data.rows) * spec.channels, -spec.scale, spec.scale);
  data.weight = random.vector(static_cast<size_t>(spec.channels) * 4);
  data.history = random.vector(static_cast<size_t>(spec.channels) * 3, -spec.scale, spec.scale);
  return data;
}

struct Runner {
  compute::Backend& backend;
  std::string variant;
  std::vector<CaseResult>& results;

  CaseResult check_history(const compute::Buffer& buffer, const std::vector<double>& expected, const std::string& name) {
    CaseResult result{kOperation, variant, name, 0, 0, true, {}};
    auto found = download(backend, buffer);
    if (!found) return failed(kOperation, variant, name, found.error());
    for (size_t i = 0; i < expected.size(); ++i) {
      if ((*found)[i] != static_cast<float>(expected[i])) {
        result.pass = false;
        result.error = std::fabs((*found)[i] - expected[i]);
        result.detail =
            "history element " + std::to_string(i) + ": expected " + std::to_string(expected[i]) + ", found " + std::to_string((*found)[i]);
        break;
      }
    }
    return result;
  }

  Status run_case(const Case& spec) {
    const Data data = make_data(spec);
    const kernels::CausalConvReference reference =
        kernels::causal_conv_reference(data.x, data.weight, data.history, spec.channels, data.spans);
    const size_t stride = spec.channels + spec.gap;
    std::vector<float> padded(spec.offset + data.rows * stride + 4, std::nanf(""));
    for (size_t row = 0; row < data.rows; ++row) {
      std::copy_n(data.x.begin() + static_cast<ptrdiff_t>(row * spec.channels), spec.channels,
                  padded.begin() + static_cast<ptrdiff_t>(spec.offset + row * stride));
    }
    std::vector<uint32_t> pairs;
    for (const SequenceSpan& span : data.spans) pairs.insert(pairs.end(), {span.start, span.length});
    CHORUS_ASSIGN(auto x, upload(backend, padded));
    CHORUS_ASSIGN(auto weight, upload(backend, data.weight));
    CHORUS_ASSIGN(auto history, upload(backend, data.history));
    CHORUS_ASSIGN(auto spans, upload_u32(backend, pairs));
    CHORUS_ASSIGN(GuardedOutput out, make_output(backend, data.rows, spec.channels, static_cast<uint32_t>(stride)));
    std::shared_ptr<compute::Buffer> history_out;
    if (data.spans.size() == 1) {
      CHORUS_ASSIGN(history_out, upload(backend, std::vector<float>(data.history.size(), std::nanf(""))));
    }
    const compute::Sequences sequences{data.spans, spans.get()};
    compute::CausalConvArgs args;
    args.x = {x.get(), spec.offset, data.rows, spec.channels, static_cast<uint32_t>(stride)};
    args.weight = weight.get();
    args.history_in = history.get();
    args.history_out = history_out.get();
    args.sequences = &sequences;
    args.out = out.view;
    CHORUS_ASSIGN(auto batch, backend.begin_batch());
    CHORUS_TRY(batch->causal_conv(args));
    CHORUS_TRY(batch->submit());
    const auto tolerance = [&](size_t i) { return kUnitRoundoff * 16 * 1.1 * (reference.magnitude[i] + 1e-30); };
    results.push_back(compare(backend, out, reference.out, tolerance, kOperation, variant, name_of(spec)));
    if (history_out) results.push_back(check_history(*history_out, reference.history, name_of(spec) + " history"));
    return {};
  }
};

std::vector<Case> cases_of(CaseSet set) {
  std::vector<Case> cases = {{96, {70}}, {20, {1, 2, 3, 4, 5, 33}, 3, 5}, {8, {2}}};
  if (set == CaseSet::quick) return cases;
  for (uint32_t length : {0u, 1u, 3u, 4u, 15u, 16u, 17u, 1023u, 1024u, 1025u}) cases.push_back({12, {length}});
  cases.push_back({6144, {40, 38, 41, 35, 46}});
  cases.push_back({260, {0, 1, 0, 0, 19, 2, 0}, 4, 8});
  cases.push_back({7, {130}, 1, 3});
  cases.push_back({64, {100}, 0, 0, 100});
  cases.push_back({64, {100}, 0, 0, 1e-4f});
  cases.push_back({4, std::vector<uint32_t>(300, 2)});
  cases.push_back({1, {1048600}});  // 65,538 tiles
  return cases;
}

}  // namespace causal_conv_cases

std::vector<CaseResult> run_causal_conv_cases(compute::Backend& backend, CaseSet set) {
  using namespace causal_conv_cases;
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    Runner runner{backend, variant, results};
    for (const Case& spec : cases_of(set)) {
      if (Status ran = runner.run_case(spec); !ran.ok()) results.push_back(failed(kOperation, variant, name_of(spec), ran.error()));
    }
  });
  return results;
}

}  // namespace chorus::selftest
