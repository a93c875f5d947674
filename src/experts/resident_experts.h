// Every expert of every layer in memory that the backend computes from: slots are expert ids, nothing is read back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"
#include "models/blueprint.h"
#include "models/expert_executor.h"

namespace chorus::experts {

// Fills `record` with one expert (ExpertReader::read, or seeded numbers).
using ExpertSource = std::function<Status(uint32_t layer, uint32_t expert, std::span<std::byte> record)>;

class ResidentExperts final : public models::ExpertExecutor {
 public:
  // `progress`: bytes loaded and bytes in all; may be empty.
  static Result<std::unique_ptr<ResidentExperts>> load(compute::Backend& backend, const models::Blueprint& blueprint, DType dtype,
                                                       const ExpertSource& source,
                                                       const std::function<void(uint64_t done, uint64_t total)>& progress = {});

  Status run(compute::Batch& batch, const models::ExpertCall& call) override;
  Status begin_pass(uint32_t) override { return {}; }
  void end_pass() override {}

  // Bytes of all experts of a model as records.
  static uint64_t bytes(const models::Blueprint& blueprint, DType dtype);

 private:
  struct Layer {
    std::shared_ptr<compute::ExpertBank> bank;  // null: no experts
    compute::ExpertActivation activation = compute::ExpertActivation::swiglu;
  };
  ResidentExperts() = default;
  std::vector<Layer> layers_;
};

}  // namespace chorus::experts
