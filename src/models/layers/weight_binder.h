// Moves named tensors to a backend: checks their shapes and their range, stacks matrices. Shared by all models.
// Must not know: any model, any file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"
#include "formats/checkpoint.h"

namespace chorus::models {

using BufferPtr = std::shared_ptr<compute::Buffer>;
using WeightPtr = std::shared_ptr<compute::Weight>;

// Bytes of weights uploaded so far and in all.
using LoadProgress = std::function<void(uint64_t done, uint64_t total)>;

class WeightBinder {
 public:
  // A named tensor [rows, cols] that is a part of a stacked matrix.
  using Part = std::pair<std::string, uint32_t>;

  // Everything must outlive the binder. total: bytes for progress.
  WeightBinder(compute::Backend& backend, const formats::WeightSource& weights, DType dtype, LoadProgress progress, uint64_t total)
      : backend_(backend), weights_(weights), dtype_(dtype), progress_(std::move(progress)), total_(total) {}

  compute::Backend& backend() const { return backend_; }

  // A matrix whose rows are those of the named [rows_i, cols] tensors, one below the other.
  Result<WeightPtr> matrix(const std::string& label, const std::vector<Part>& parts, uint32_t cols);
  Result<WeightPtr> matrix(const std::string& name, uint32_t rows, uint32_t cols) { return matrix(name, {{name, rows}}, cols); }
  // A matrix that is computed from tensors.
  Result<WeightPtr> derived(const std::string& label, uint32_t rows, uint32_t cols, const compute::RowSource& source);

  // A small tensor of `rows` x `cols` values, kept in f32 whatever the matrices' type.
  Result<BufferPtr> values(const std::string& name, const std::vector<uint64_t>& shape, uint32_t rows, uint32_t cols);
  Result<BufferPtr> vector(const std::string& name, uint32_t size) { return values(name, {size}, 1, size); }
  // Null without a name.
  Result<BufferPtr> optional_vector(const std::string& name, uint32_t size);
  // The vectors one behind the other; null when none has a name. All or none have one.
  Result<BufferPtr> stacked_vectors(const std::vector<Part>& parts);

  // Rows of a tensor whose shape is [rows, cols].
  Status read_rows(const std::string& name, uint32_t rows, uint32_t cols, uint32_t first, uint32_t count, std::span<float> out);

 private:
  Status expect_shape(const std::string& name, const std::vector<uint64_t>& expected);
  Status read_stacked(const std::vector<Part>& parts, uint32_t cols, uint32_t first, uint32_t count, std::span<float> out);
  Status check_range(const std::string& name, std::span<const float> values) const;
  void report(uint64_t bytes);

  compute::Backend& backend_;
  const formats::WeightSource& weights_;
  DType dtype_;
  LoadProgress progress_;
  uint64_t total_;
  uint64_t done_ = 0;
};

}  // namespace chorus::models
