// Known-answer cases of softmax by segments: one option and 255, large and equal values.
#include <string>

#include "kernels/segment_softmax/segment_softmax_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace segment_softmax_cases {

constexpr const char* kOperation = "segment_softmax";

struct Data {
  std::string name;
  std::vector<uint32_t> lengths;
  float size = 4;
};

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Data& data) {
  std::vector<uint32_t> starts{0};
  for (const uint32_t length : data.lengths) starts.push_back(starts.back() + length);
  const uint32_t count = starts.back();
  Random random(count + 7);
  const std::vector<float> values = random.vector(count, -data.size, data.size);
  CHORUS_ASSIGN(auto value_buffer, upload(backend, values));
  CHORUS_ASSIGN(auto start_buffer, upload_u32(backend, starts));
  std::vector<float> poison(count + kSentinelCount, kSentinel);
  std::fill_n(poison.begin(), count, std::numeric_limits<float>::quiet_NaN());
  GuardedOutput output;
  CHORUS_ASSIGN(output.buffer, upload(backend, poison));
  output.view = {output.buffer.get(), 0, count, 1, 1};
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->segment_softmax(
      {value_buffer.get(), start_buffer.get(), static_cast<uint32_t>(data.lengths.size()), count, output.buffer.get()}));
  CHORUS_TRY(batch->submit());
  const std::vector<double> expected = kernels::reference_segment_softmax(values, starts);
  // exp(x) may be off by 3 + 2|x| units in the last place, and x itself is rounded; both act on the value and, averaged, on the sum.
  std::vector<double> distance(count), mean_distance(count);
  for (size_t segment = 0; segment < data.lengths.size(); ++segment) {
    const auto first = values.begin() + starts[segment], last = values.begin() + starts[segment + 1];
    if (first == last) continue;
    const double largest = *std::max_element(first, last);
    double mean = 0;
    for (uint32_t i = starts[segment]; i < starts[segment + 1]; ++i) mean += expected[i] * (distance[i] = largest - values[i]);
    for (uint32_t i = starts[segment]; i < starts[segment + 1]; ++i) mean_distance[i] = mean;
  }
  const auto tolerance = [&](size_t i) { return 0x1p-23 * expected[i] * (16 + 3 * distance[i] + 3 * mean_distance[i]) + 1e-37; };
  return compare(backend, output, expected, tolerance, kOperation, variant, data.name);
}

std::vector<uint32_t> ragged(uint32_t count, uint32_t most) {
  Random random(count);
  std::vector<uint32_t> lengths(count);
  for (uint32_t& length : lengths) length = 1 + static_cast<uint32_t>(random.next() % most);
  return lengths;
}

}  // namespace segment_softmax_cases

std::vector<CaseResult> run_segment_softmax_cases(compute::Backend& backend, CaseSet set) {
  using namespace segment_softmax_cases;
  std::vector<Data> cases = {{"lengths 3 1 64 65", {3, 1, 64, 65}}, {"20 ragged up to 255", ragged(20, 255)}};
  if (set == CaseSet::full) {
    cases.insert(cases.end(), {{"no segment", {}},
                               {"one value", {1}},
                               {"empty segments between", {2, 0, 0, 5, 0}},
                               {"255", {255}},
                               {"10,007 in one", {10007}},
                               {"values up to 1e4", {63, 64, 129}, 1e4f},
                               {"all equal", {7, 128}, 0},
                               {"70,001 segments", ragged(70001, 3)}});
  }
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    for (const Data& data : cases) {
      Result<CaseResult> result = run_one(backend, variant, data);
      results.push_back(result ? *result : failed(kOperation, variant, data.name, result.error()));
    }
  });
  return results;
}

}  // namespace chorus::selftest
