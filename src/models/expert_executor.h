// The seam between a model and its experts: "these rows, this layer, these routes: give me the outputs". The model cannot tell whether an
// expert was resident, on disk or elsewhere. Implementations: experts/ (local); later, other machines.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"

namespace chorus::models {

// One layer's routed rows. The router's output is on the device; who needs it on the host submits the batch and reads it.
struct ExpertCall {
  uint32_t layer = 0;  // index of the model's layer
  uint32_t top_k = 0;
  compute::View x;                           // [rows, hidden]
  const compute::Buffer* experts = nullptr;  // u32 [rows * top_k], kNoSlot where the router failed
  compute::MutableView out;                  // [rows * top_k, hidden]: every route's row, unweighted, is to be filled
};

class ExpertExecutor {
 public:
  virtual ~ExpertExecutor() = default;
  // Records the work on `batch`, which it may submit on the way (what was recorded before runs before). After an error the batch is lost.
  // Errors name layer and expert.
  virtual Status run(compute::Batch& batch, const ExpertCall& call) = 0;
  // Called once by the model that is loaded, before any pass: the routers that it has on the device, by layer; null where a layer has none,
  // or has it as a part of a larger matrix. Whoever guesses the next layer's experts needs no copy of them.
  virtual Status take_routers(std::span<const std::shared_ptr<compute::Weight>>) { return {}; }
  // Called before the first and after the last layer of a pass.
  virtual Status begin_pass(uint32_t rows) = 0;
  virtual void end_pass() = 0;
};

}  // namespace chorus::models
