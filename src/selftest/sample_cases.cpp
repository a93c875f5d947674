// Cases of sample: the token must be one that weights within their error bounds allow, and where float64 leaves no doubt, the very one.
#include <limits>
#include <string>

#include "kernels/sample/sample_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace sample_cases {

constexpr const char* kOperation = "sample";
constexpr uint32_t kRepeatedRowsMax = 4;
constexpr uint32_t kLargeCols = compute::kSampleVocabularyMax;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

enum class Content { normal, flat, few_values, peaked, masked, one_nan };

struct Shape {
  uint32_t rows, cols;
  Content content = Content::normal;
  uint32_t gap = 0;
};

std::string name_of(const Shape& shape) {
  constexpr const char* kNames[] = {"normal", "flat", "few values", "peaked", "masked", "one NaN"};
  return std::to_string(shape.rows) + " x " + std::to_string(shape.cols) + " gap " + std::to_string(shape.gap) + " " +
         kNames[static_cast<size_t>(shape.content)];
}

std::vector<float> logits_of(const Shape& shape) {
  Random random(shape.rows * 31 + shape.cols);
  std::vector<float> logits(size_t{shape.rows} * shape.cols);
  for (float& logit : logits) {
    logit = random.uniform(-4, 4) + random.uniform(-4, 4) + random.uniform(-4, 4);
    if (shape.content == Content::flat) logit = 1.5f;
    if (shape.content == Content::few_values) logit = static_cast<float>(random.next() % 4) - 2;
    if (shape.content == Content::masked && random.next() % 8 != 0) logit = -kInfinity;
  }
  for (size_t row = 0; row < shape.rows; ++row) {
    float& one = logits[row * shape.cols + random.next() % shape.cols];
    if (shape.content == Content::peaked) one = 60;
    if (shape.content == Content::one_nan && row % 2 == 0) one = std::numeric_limits<float>::quiet_NaN();
  }
  return logits;
}

// Rows of every kind of request; other kinds first for every width.
compute::SampleRow request(uint32_t index, uint32_t cols) {
  const uint32_t row = index + cols % 97;
  compute::SampleRow sampling;
  sampling.temperature = std::vector<float>{1, 0.7f, 1.3f, 1, 0.25f, 5}[row % 6];
  sampling.top_k = std::vector<uint32_t>{0, 40, 1, 0, cols + 5, 7, cols, 3}[row % 8];
  sampling.top_p = std::vector<float>{1, 0.95f, 0.5f, 1, 0.9f, 0, 0.999f}[row % 7];
  sampling.min_p = std::vector<float>{0, 0, 0.05f, 0.2f, 0, 1}[row * 7 % 6];
  sampling.seed_low = row * 2654435761u;
  sampling.seed_high = row % 3;
  sampling.step = row / 2;
  return sampling;
}

// Appends what is wrong with the row's token to the result.
void judge(const std::vector<float>& logits, const compute::SampleRow& sampling, uint32_t row, uint32_t found, CaseResult& result) {
  const uint32_t cols = static_cast<uint32_t>(logits.size());
  const kernels::SampleReference reference(logits, sampling);
  if (found == reference.token()) return;
  result.error += 1;  // tokens that float64 would not draw
  if ((found < cols || found == UINT32_MAX) && reference.allows(found)) return;
  result.pass = false;
  result.detail =
      "row " + std::to_string(row) + ": float64 draws " + std::to_string(reference.token()) + ", found " + std::to_string(found);
}

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape) {
  const std::vector<float> logits = logits_of(shape);
  std::vector<uint32_t> words;
  for (uint32_t row = 0; row < shape.rows; ++row) {
    const compute::SampleRow sampling = request(row, shape.cols);
    const uint32_t* begin = reinterpret_cast<const uint32_t*>(&sampling);
    words.insert(words.end(), begin, begin + sizeof(sampling) / sizeof(uint32_t));
  }
  CHORUS_ASSIGN(StridedInput input, make_input(backend, logits, shape.rows, shape.cols, shape.cols + shape.gap, 3));
  CHORUS_ASSIGN(auto rows, upload_u32(backend, words));
  constexpr uint32_t kUntouched = 0xabcdef01u;
  CHORUS_ASSIGN(auto indices, upload_u32(backend, std::vector<uint32_t>(shape.rows + 2, kUntouched)));
  std::vector<uint32_t> first;
  CaseResult result{kOperation, variant, name_of(shape), 0, 0, true, {}};
  const int turns = shape.rows <= kRepeatedRowsMax ? 2 : 1;
  for (int turn = 0; turn < turns; ++turn) {
    CHORUS_ASSIGN(auto batch, backend.begin_batch());
    CHORUS_TRY(batch->sample({input.view, rows.get(), indices.get()}));
    CHORUS_TRY(batch->submit());
    std::vector<uint32_t> found(shape.rows + 2);
    CHORUS_TRY(backend.read(*indices, 0, std::as_writable_bytes(std::span(found))));
    if (turn == 0) first = found;
    if (found == first) continue;
    result.pass = false;
    result.detail = "the second draw with the same seeds differs";
  }
  for (uint32_t row = 0; row < shape.rows; ++row) {
    const auto begin = logits.begin() + static_cast<ptrdiff_t>(size_t{row} * shape.cols);
    judge({begin, begin + shape.cols}, request(row, shape.cols), row, first[row], result);
  }
  for (size_t at = shape.rows; at < first.size(); ++at) {
    if (first[at] == kUntouched) continue;
    result.pass = false;
    result.detail = "wrote outside its output";
  }
  result.tolerance = shape.rows;  // how many rows stood on an edge; each is judged above
  return result;
}

}  // namespace sample_cases

std::vector<CaseResult> run_sample_cases(compute::Backend& backend, CaseSet set) {
  using namespace sample_cases;
  std::vector<Shape> shapes = {{9, 100}, {4, 3000, Content::few_values, 3}, {2, 50, Content::one_nan}};
  if (set == CaseSet::full) {
    shapes.insert(shapes.end(), {{0, 8},
                                 {2, 1},
                                 {8, 3},
                                 {3, 2049, Content::flat},
                                 {3, 5000, Content::peaked},
                                 {5, 5000, Content::masked, 1},
                                 {2, 70001},
                                 {2, 248320},
                                 {1, 262145, Content::flat}});
    // Workgroups with many barriers are slow on software adapters.
    if (!backend.info().software) shapes.insert(shapes.end(), {{150, 33}, {60, 1000}, {1, kLargeCols, Content::few_values}});
  }
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    for (const Shape& shape : shapes) {
      if (shape.cols == kLargeCols && !variant.empty() && backend.variants(kOperation).size() > 1) continue;  // the twin sorts for a while
      Result<CaseResult> result = run_one(backend, variant, shape);
      results.push_back(result ? *result : failed(kOperation, variant, name_of(shape), result.error()));
    }
  });
  return results;
}

}  // namespace chorus::selftest
