// Tools shared by the case files: seeded data, poisoned outputs with sentinels, comparison. Header front door: selftest.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compute/backend.h"
#include "selftest/selftest.h"

namespace chorus::selftest {

// Small deterministic generator (splitmix64): same values on every platform.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // Uniform in [low, high).
  float uniform(float low, float high) { return low + (high - low) * static_cast<float>(next() >> 40) * 0x1p-24f; }
  std::vector<float> vector(size_t count, float low = -1, float high = 1) {
    std::vector<float> values(count);
    for (float& value : values) value = uniform(low, high);
    return values;
  }

 private:
  uint64_t state_;
};

inline constexpr float kSentinel = -12345.678f;
inline constexpr uint32_t kSentinelCount = 64;  // before and after every output, in elements

Result<std::shared_ptr<compute::Buffer>> upload(compute::Backend& backend, std::span<const float> values);
Result<std::shared_ptr<compute::Buffer>> upload_u32(compute::Backend& backend, std::span<const uint32_t> values);
Result<std::shared_ptr<compute::Weight>> upload_weight(compute::Backend& backend, std::span<const float> values, uint32_t rows,
                                                       uint32_t cols, DType dtype);
Result<std::vector<float>> download(compute::Backend& backend, const compute::Buffer& buffer);

// An output matrix [rows, cols] with a row stride, filled with NaN between sentinels; the view starts after the first sentinels.
struct GuardedOutput {
  std::shared_ptr<compute::Buffer> buffer;
  compute::MutableView view;
};
Result<GuardedOutput> make_output(compute::Backend& backend, uint32_t rows, uint32_t cols, uint32_t stride);
// The same, with `initial` [rows, cols] as content (for operations that add to their output).
Result<GuardedOutput> make_output(compute::Backend& backend, uint32_t rows, uint32_t cols, uint32_t stride, std::span<const float> initial);

// Compares a guarded output with `expected` [rows, cols]: largest |out - expected| / tolerance_of(i) where tolerance_of gives the absolute
// tolerance of element i. Fails on NaN, on a touched sentinel or stride gap. Fills error, tolerance (of the worst element) and pass.
CaseResult compare(compute::Backend& backend, const GuardedOutput& output, std::span<const double> expected,
                   const std::function<double(size_t)>& tolerance_of, std::string operation, std::string variant, std::string name);

// An input matrix [rows, cols] at `offset` with a row stride; everything around it is NaN.
struct StridedInput {
  std::shared_ptr<compute::Buffer> buffer;
  compute::View view;
};
Result<StridedInput> make_input(compute::Backend& backend, std::span<const float> values, uint32_t rows, uint32_t cols, uint32_t stride,
                                uint64_t offset);

// Calls `body` with every variant of the operation, forced, and, where there is a choice, with "" (the backend's own). Leaves none forced.
void for_each_variant(compute::Backend& backend, const std::string& operation, std::vector<CaseResult>& results,
                      const std::function<void(const std::string&)>& body);

CaseResult failed(std::string operation, std::string variant, std::string name, const Error& error);

}  // namespace chorus::selftest
