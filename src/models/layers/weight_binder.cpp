#include "models/layers/weight_binder.h"

#include <algorithm>
#include <cmath>

#include "formats/safetensors.h"

namespace chorus::models {

Result<WeightPtr> WeightBinder::matrix(const std::string& label, const std::vector<Part>& parts, uint32_t cols) {
  uint32_t rows = 0;
  for (const auto& [name, part_rows] : parts) {
    CHORUS_TRY(expect_shape(name, {part_rows, cols}));
    rows += part_rows;
  }
  return derived(label, rows, cols,
                 [&](uint32_t first, uint32_t count, std::span<float> out) { return read_stacked(parts, cols, first, count, out); });
}

Result<WeightPtr> WeightBinder::derived(const std::string& label, uint32_t rows, uint32_t cols, const compute::RowSource& source) {
  auto weight = backend_.create_weight(label, rows, cols, dtype_, source);
  if (!weight) return std::move(weight).error().with_context("while loading " + label);
  report((*weight)->bytes());
  return weight;
}

Result<BufferPtr> WeightBinder::values(const std::string& name, const std::vector<uint64_t>& shape, uint32_t rows, uint32_t cols) {
  CHORUS_TRY(expect_shape(name, shape));
  std::vector<float> host(static_cast<size_t>(rows) * cols);
  CHORUS_TRY(weights_.read_rows(name, 0, rows, host));
  CHORUS_ASSIGN(BufferPtr buffer, backend_.create_buffer(host.size() * 4, name));
  CHORUS_TRY(backend_.write(*buffer, 0, std::as_bytes(std::span<const float>(host))));
  return buffer;
}

Result<BufferPtr> WeightBinder::optional_vector(const std::string& name, uint32_t size) {
  if (name.empty()) return BufferPtr();
  return vector(name, size);
}

Result<BufferPtr> WeightBinder::stacked_vectors(const std::vector<Part>& parts) {
  std::vector<float> host;
  size_t named = 0;
  for (const auto& [name, size] : parts) {
    named += name.empty() ? 0 : 1;
    if (name.empty()) continue;
    CHORUS_TRY(expect_shape(name, {size}));
    host.resize(host.size() + size);
    CHORUS_TRY(weights_.read_rows(name, 0, 1, std::span(host).last(size)));
  }
  if (named == 0) return BufferPtr();
  CHORUS_CHECK(named == parts.size());
  CHORUS_ASSIGN(BufferPtr buffer, backend_.create_buffer(host.size() * 4, parts.front().first));
  CHORUS_TRY(backend_.write(*buffer, 0, std::as_bytes(std::span<const float>(host))));
  return buffer;
}

Status WeightBinder::read_rows(const std::string& name, uint32_t rows, uint32_t cols, uint32_t first, uint32_t count,
                               std::span<float> out) {
  CHORUS_TRY(expect_shape(name, {rows, cols}));
  CHORUS_TRY(weights_.read_rows(name, first, count, out));
  return check_range(name, out);
}

Status WeightBinder::expect_shape(const std::string& name, const std::vector<uint64_t>& expected) {
  CHORUS_ASSIGN(const std::vector<uint64_t> found, weights_.shape(name));
  if (found == expected) return {};
  return make_error(ErrorCode::invalid_input,
                    "tensor " + name + ": expected shape " + formats::shape_text(expected) + ", found " + formats::shape_text(found));
}

Status WeightBinder::read_stacked(const std::vector<Part>& parts, uint32_t cols, uint32_t first, uint32_t count, std::span<float> out) {
  uint32_t part_begin = 0;
  uint32_t written = 0;
  for (const auto& [name, part_rows] : parts) {
    const uint32_t begin = std::max(first, part_begin);
    const uint32_t end = std::min(first + count, part_begin + part_rows);
    if (begin < end) {
      const size_t elements = static_cast<size_t>(end - begin) * cols;
      const std::span<float> values = out.subspan(static_cast<size_t>(written) * cols, elements);
      CHORUS_TRY(weights_.read_rows(name, begin - part_begin, end - begin, values));
      CHORUS_TRY(check_range(name, values));
      written += end - begin;
    }
    part_begin += part_rows;
  }
  CHORUS_CHECK(written == count);
  return {};
}

// A finite weight must stay finite in the stored type; bf16 has the range of f32.
Status WeightBinder::check_range(const std::string& name, std::span<const float> values) const {
  constexpr float kHalfEnd = 65520;  // from here on f16 rounds to infinity
  if (dtype_ != DType::f16) return {};
  float largest = 0;
  for (float value : values) largest = std::max(largest, std::abs(value));
  if (largest < kHalfEnd) return {};
  return make_error(ErrorCode::unsupported,
                    "tensor " + name + ": f16 holds magnitudes below 65520, found " + std::to_string(largest) + "; bf16 and f32 hold it");
}

void WeightBinder::report(uint64_t bytes) {
  done_ += bytes;
  if (progress_) progress_(std::min(done_, total_), total_);
}

}  // namespace chorus::models
