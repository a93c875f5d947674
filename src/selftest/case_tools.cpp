#include "selftest/case_tools.h"

#include <cstring>
#include <utility>

namespace chorus::selftest {

Result<std::shared_ptr<compute::Buffer>> upload(compute::Backend& backend, std::span<const float> values) {
  CHORUS_ASSIGN(auto buffer, backend.create_buffer(std::max<size_t>(values.size(), 1) * 4, "case input"));
  if (!values.empty()) CHORUS_TRY(backend.write(*buffer, 0, std::as_bytes(values)));
  return buffer;
}

Result<std::shared_ptr<compute::Buffer>> upload_u32(compute::Backend& backend, std::span<const uint32_t> values) {
  CHORUS_ASSIGN(auto buffer, backend.create_buffer(std::max<size_t>(values.size(), 1) * 4, "case indices"));
  if (!values.empty()) CHORUS_TRY(backend.write(*buffer, 0, std::as_bytes(values)));
  return buffer;
}

Result<std::shared_ptr<compute::Weight>> upload_weight(compute::Backend& backend, std::span<const float> values, uint32_t rows,
                                                       uint32_t cols, DType dtype) {
  return backend.create_weight("case weight", rows, cols, dtype, [&](uint32_t first, uint32_t count, std::span<float> out) -> Status {
    std::copy_n(values.begin() + static_cast<size_t>(first) * cols, static_cast<size_t>(count) * cols, out.begin());
    return {};
  });
}

Result<std::vector<float>> download(compute::Backend& backend, const compute::Buffer& buffer) {
  std::vector<float> values(buffer.bytes() / 4);
  CHORUS_TRY(backend.read(buffer, 0, std::as_writable_bytes(std::span(values))));
  return values;
}

namespace {

Result<GuardedOutput> make_guarded(compute::Backend& backend, uint32_t rows, uint32_t cols, uint32_t stride, const float* initial) {
  const size_t span = rows == 0 ? 0 : static_cast<size_t>(rows - 1) * stride + cols;
  std::vector<float> content(span + 2 * kSentinelCount, kSentinel);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t col = 0; col < cols; ++col) {
      content[kSentinelCount + static_cast<size_t>(row) * stride + col] =
          initial ? initial[static_cast<size_t>(row) * cols + col] : std::numeric_limits<float>::quiet_NaN();
    }
  }
  GuardedOutput output;
  CHORUS_ASSIGN(output.buffer, upload(backend, content));
  output.view = {output.buffer.get(), kSentinelCount, rows, cols, stride};
  return output;
}

}  // namespace

Result<GuardedOutput> make_output(compute::Backend& backend, uint32_t rows, uint32_t cols, uint32_t stride) {
  return make_guarded(backend, rows, cols, stride, nullptr);
}

Result<GuardedOutput> make_output(compute::Backend& backend, uint32_t rows, uint32_t cols, uint32_t stride,
                                  std::span<const float> initial) {
  return make_guarded(backend, rows, cols, stride, initial.data());
}

Result<StridedInput> make_input(compute::Backend& backend, std::span<const float> values, uint32_t rows, uint32_t cols, uint32_t stride,
                                uint64_t offset) {
  std::vector<float> content(offset + static_cast<size_t>(rows) * stride, std::numeric_limits<float>::quiet_NaN());
  for (size_t row = 0; row < rows; ++row) std::copy_n(values.begin() + row * cols, cols, content.begin() + offset + row * stride);
  StridedInput input;
  CHORUS_ASSIGN(input.buffer, upload(backend, content));
  input.view = {input.buffer.get(), offset, rows, cols, stride};
  return input;
}

void for_each_variant(compute::Backend& backend, const std::string& operation, std::vector<CaseResult>& results,
                      const std::function<void(const std::string&)>& body) {
  const std::vector<std::string> variants = backend.variants(operation);
  for (const std::string& variant : variants) {
    if (Status forced = backend.force_variant(operation, variant); !forced.ok()) {
      results.push_back(failed(operation, variant, "force", forced.error()));
      continue;
    }
    body(variant);
  }
  if (Status released = backend.force_variant(operation, ""); !released.ok())
    results.push_back(failed(operation, "", "release", released.error()));
  if (variants.size() != 1) body("");
}

CaseResult failed(std::string operation, std::string variant, std::string name, const Error& error) {
  return CaseResult{std::move(operation), std::move(variant), std::move(name), 0, 0, false, error.to_line()};
}

CaseResult compare(compute::Backend& backend, const GuardedOutput& output, std::span<const double> expected,
                   const std::function<double(size_t)>& tolerance_of, std::string operation, std::string variant, std::string name) {
  auto content = download(backend, *output.buffer);
  if (!content) return failed(std::move(operation), std::move(variant), std::move(name), content.error());
  CaseResult result{std::move(operation), std::move(variant), std::move(name), 0, 0, true, {}};
  const compute::MutableView& view = output.view;
  std::vector<bool> inside(content->size(), false);
  double worst_ratio = -1;
  for (uint32_t row = 0; row < view.rows; ++row) {
    for (uint32_t col = 0; col < view.cols; ++col) {
      const size_t at = view.offset + static_cast<size_t>(row) * view.stride + col;
      const size_t index = static_cast<size_t>(row) * view.cols + col;
      inside[at] = true;
      const double found = (*content)[at];
      const double error = std::abs(found - expected[index]);
      const double tolerance = tolerance_of(index);
      if (!(error <= tolerance) && result.pass) {
        result.pass = false;
        result.detail = "row " + std::to_string(row) + " col " + std::to_string(col) + ": expected " + std::to_string(expected[index]) +
                        ", found " + std::to_string(found);
      }
      const double ratio = tolerance > 0 ? error / tolerance : (error > 0 ? std::numeric_limits<double>::infinity() : 0);
      if (!(ratio <= worst_ratio)) {
        worst_ratio = ratio;
        result.error = error;
        result.tolerance = tolerance;
      }
    }
  }
  for (size_t at = 0; at < content->size(); ++at) {
    if (!inside[at] && (*content)[at] != kSentinel) {
      result.pass = false;
      result.detail = "wrote outside its output at element " + std::to_string(at);
      break;
    }
  }
  return result;
}

}  // namespace chorus::selftest
