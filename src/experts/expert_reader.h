// Turns experts as they lie in safetensors files into records (compute::ExpertRecord).
// Owns: which bytes an expert is made of in every form of models::ExpertTensors, their checks and their conversion, MXFP4 included.
// Must not know: caches, budgets, devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"
#include "formats/safetensors.h"
#include "models/blueprint.h"

namespace chorus::experts {

// A run of bytes of one tensor.
struct ExpertPiece {
  const formats::TensorInfo* tensor = nullptr;  // tensor->file is the index into TensorStore::files()
  uint64_t offset = 0;                          // from the start of that file
  uint64_t bytes = 0;
};

// Immutable; safe to use from several threads.
class ExpertReader {
 public:
  // Checks that the tensors of every layer's experts are there, with their shapes. Records will hold `dtype`.
  static Result<ExpertReader> open(std::shared_ptr<const formats::TensorStore> store, const models::Blueprint& blueprint, DType dtype);

  const formats::TensorStore& store() const { return *store_; }
  uint32_t layers() const { return static_cast<uint32_t>(layers_.size()); }
  // Experts of a layer of the model; 0 when its feed-forward is dense.
  uint32_t experts(uint32_t layer) const { return layers_[layer].spec.experts; }
  const compute::ExpertShape& shape(uint32_t layer) const { return layers_[layer].shape; }

  // What one expert is made of, in the order that `assemble` takes it. Empty when there is no such expert.
  std::vector<ExpertPiece> pieces(uint32_t layer, uint32_t expert) const;
  // Fills a record of ExpertRecord(shape(layer)).bytes from the bytes of the pieces. Errors name layer, expert and tensor: a number that is
  // not finite or that `dtype` does not hold.
  Status assemble(uint32_t layer, uint32_t expert, std::span<const std::span<const std::byte>> raw, std::span<std::byte> record) const;
  // Both, through the mapped files.
  Status read(uint32_t layer, uint32_t expert, std::span<std::byte> record) const;

 private:
  struct Layer {
    models::MoeSpec spec;
    compute::ExpertShape shape;
  };
  ExpertReader() = default;
  Status check_layer(uint32_t index) const;
  Status check_tensor(uint32_t layer, const std::string& name, const std::vector<uint64_t>& shape, bool blocks) const;
  ExpertPiece slice(const std::string& name, uint64_t index, uint64_t count) const;

  std::shared_ptr<const formats::TensorStore> store_;
  std::vector<Layer> layers_;
};

}  // namespace chorus::experts
