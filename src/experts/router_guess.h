// A guess at the next layer's experts by its own router, on a row that it has not seen yet: the input of this layer's experts, which
// differs from that of the next layer by one layer's contribution. Never changes a result: it has its own weights and buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"
#include "experts/expert_store.h"
#include "formats/checkpoint.h"
#include "models/blueprint.h"
#include "models/expert_executor.h"

namespace chorus::experts {

class RouterGuess {
 public:
  static constexpr uint32_t kRowsMax = 16;  // a call with more rows uses most experts of the next layer anyway

  // Makes no guesses before take_routers. `weights` must live until then.
  static Result<std::unique_ptr<RouterGuess>> create(compute::Backend& backend, const models::Blueprint& blueprint,
                                                     const formats::WeightSource& weights, DType dtype);
  // Routers of the model, by layer: shared where they are whole matrices. Where a model has stacked the router on the first product of a
  // shared expert (null here), a guess with that matrix would compute the shared expert's part too, several times the router's own; such
  // routers, but the first layer's, are loaded once more: copied_bytes.
  Status take_routers(std::span<const std::shared_ptr<compute::Weight>> routers);
  static uint64_t copied_bytes(const models::Blueprint& blueprint, DType dtype);

  // Records the guess for the layer after call.layer, and a copy of the call's routes behind it, so that one read gives both; false when
  // there is no guess to make (the last layer, too many rows).
  Result<bool> record(compute::Batch& batch, const models::ExpertCall& call);
  // What was recorded: the call's routes, and experts of the next layer, best ranks of all rows first, each once.
  Result<std::vector<ExpertKey>> read(std::span<uint32_t> call_routes);

 private:
  struct Router {
    uint32_t next = 0;  // the layer after this one that has experts; 0: none
    models::MoeSpec spec;
    std::shared_ptr<compute::Weight> weight;
    std::shared_ptr<compute::Buffer> bias, correction;
  };
  RouterGuess(compute::Backend& backend, const formats::WeightSource& weights, uint32_t hidden, DType dtype)
      : backend_(backend), source_(&weights), hidden_(hidden), dtype_(dtype) {}
  Result<std::shared_ptr<compute::Buffer>> load_vector(const formats::WeightSource& weights, const std::string& name, uint32_t count);

  compute::Backend& backend_;
  const formats::WeightSource* source_;  // null once the routers are there
  uint32_t hidden_;
  DType dtype_;
  std::vector<Router> routers_;  // by layer
  std::shared_ptr<compute::Buffer> logits_, weights_;
  std::shared_ptr<compute::Buffer> experts_;     // guessed, then those of the call
  uint32_t layer_ = 0, routes_ = 0, top_k_ = 0;  // of the recorded guess
};

}  // namespace chorus::experts
