// The row variants of linear, plain and with a norm of x: a row's bits do not depend on how many rows stand beside it, nor on where x and
// the result lie.
#include <gtest/gtest.h>

#include <cstring>

#include "selftest/case_tools.h"
#include "webgpu_test_device.h"

namespace chorus {
namespace {

constexpr uint32_t kRowsMost = 8;

struct Weights {
  DType dtype;
  uint32_t cols, depth;
};

// Rows [first, first + count) of x, shifted by `shift` elements in memory (which decides how it is read), with bias and an old result; with
// a norm the normed rows follow the result's, row by row.
Result<std::vector<float>> multiply(compute::Backend& backend, const compute::Weight& weight, uint32_t first, uint32_t count,
                                    uint32_t shift, bool norm = false) {
  selftest::Random random(5);
  const std::vector<float> x = random.vector(size_t{kRowsMost} * weight.cols()), bias = random.vector(weight.rows());
  const std::vector<float> old = random.vector(size_t{kRowsMost} * weight.rows());
  std::vector<float> placed(shift, 0.0f);
  placed.insert(placed.end(), x.begin(), x.end());
  CHORUS_ASSIGN(auto x_buffer, selftest::upload(backend, placed));
  CHORUS_ASSIGN(auto bias_buffer, selftest::upload(backend, bias));
  CHORUS_ASSIGN(auto out, selftest::upload(backend, std::span(old).subspan(size_t{first} * weight.rows(), size_t{count} * weight.rows())));
  compute::LinearArgs args;
  args.x = {x_buffer.get(), shift + uint64_t{first} * weight.cols(), count, weight.cols(), weight.cols()};
  args.weight = &weight;
  args.bias = bias_buffer.get();
  args.out = {out.get(), 0, count, weight.rows(), weight.rows()};
  args.store = compute::LinearStore::add;
  CHORUS_ASSIGN(auto norm_weight, selftest::upload(backend, random.vector(weight.cols(), -0.5f, 1)));
  CHORUS_ASSIGN(auto normed, backend.create_buffer(uint64_t{4} * count * weight.cols(), "normed rows"));
  if (norm) args.norm = {norm_weight.get(), 1e-6f, compute::NormWeight::plain, {normed.get(), 0, count, weight.cols(), weight.cols()}};
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->linear(args));
  CHORUS_TRY(batch->submit());
  CHORUS_ASSIGN(const std::vector<float> result, selftest::download(backend, *out));
  if (!norm) return result;
  CHORUS_ASSIGN(const std::vector<float> rows, selftest::download(backend, *normed));
  std::vector<float> both;
  for (size_t row = 0; row < count; ++row) {
    both.insert(both.end(), result.begin() + static_cast<ptrdiff_t>(row * weight.rows()),
                result.begin() + static_cast<ptrdiff_t>((row + 1) * weight.rows()));
    both.insert(both.end(), rows.begin() + static_cast<ptrdiff_t>(row * weight.cols()),
                rows.begin() + static_cast<ptrdiff_t>((row + 1) * weight.cols()));
  }
  return both;
}

void expect_rows_of(const std::vector<float>& all, const Result<std::vector<float>>& found, uint32_t first, size_t cols,
                    const std::string& what) {
  ASSERT_TRUE(found.ok()) << what << ": " << found.error().to_line();
  ASSERT_LE(first * cols + found->size(), all.size());
  EXPECT_EQ(std::memcmp(found->data(), all.data() + first * cols, found->size() * sizeof(float)), 0) << what;
}

class LinearRows : public testing::TestWithParam<Weights> {};

TEST_P(LinearRows, AnyCountGivesTheSameBits) {
  compute::Backend* backend = tests::shared_webgpu_backend();
  ASSERT_NE(backend, nullptr);
  const auto& [dtype, cols, depth] = GetParam();
  auto weight = selftest::upload_weight(*backend, selftest::Random(3).vector(size_t{cols} * depth), cols, depth, dtype);
  ASSERT_TRUE(weight.ok()) << weight.error().to_line();
  std::vector<std::string> variants = {"row"};
  if (dtype == DType::f16) variants.push_back("row256");  // one type: every build takes a software adapter a second
  for (const std::string& variant : variants) {
    ASSERT_TRUE(backend->force_variant("linear", variant).ok());
    const auto all = multiply(*backend, **weight, 0, kRowsMost, 0);
    ASSERT_TRUE(all.ok()) << all.error().to_line();
    for (uint32_t count = 1; count <= kRowsMost; ++count) {
      expect_rows_of(*all, multiply(*backend, **weight, 0, count, 0), 0, cols, variant + ", rows " + std::to_string(count));
    }
    for (const uint32_t row : {1u, kRowsMost - 1}) {
      for (const uint32_t shift : {0u, 1u}) {
        expect_rows_of(*all, multiply(*backend, **weight, row, 1, shift), row, cols,
                       variant + ", row " + std::to_string(row) + " alone, shifted by " + std::to_string(shift));
      }
    }
    const auto normed = multiply(*backend, **weight, 0, kRowsMost, 0, true);
    ASSERT_TRUE(normed.ok()) << normed.error().to_line();
    for (const uint32_t count : {1u, 3u, 5u}) {
      expect_rows_of(*normed, multiply(*backend, **weight, 0, count, 0, true), 0, cols + depth,
                     variant + ", norm, rows " + std::to_string(count));
    }
    expect_rows_of(*normed, multiply(*backend, **weight, kRowsMost - 1, 1, 0, true), kRowsMost - 1, cols + depth,
                   variant + ", norm, the last row alone");
  }
  ASSERT_TRUE(backend->force_variant("linear", "").ok());
}

INSTANTIATE_TEST_SUITE_P(All, LinearRows,
                         testing::Values(Weights{DType::f32, 20, 1032}, Weights{DType::f16, 20, 1032}, Weights{DType::bf16, 20, 1032},
                                         Weights{DType::bf16, 20, 1036}),
                         [](const testing::TestParamInfo<Weights>& one) {
                           return std::string(dtype_name(one.param.dtype)) + "_" + std::to_string(one.param.depth);
                         });

}  // namespace
}  // namespace chorus
