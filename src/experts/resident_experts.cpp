#include "experts/resident_experts.h"

#include <string>

#include "experts/expert_shape.h"

namespace chorus::experts {

using compute::ExpertRecord;
using models::MoeSpec;

uint64_t ResidentExperts::bytes(const models::Blueprint& blueprint, DType dtype) {
  uint64_t total = 0;
  for (uint32_t layer = 0; layer < blueprint.layers.size(); ++layer) {
    const auto* moe = std::get_if<MoeSpec>(&blueprint.layers[layer].feed_forward);
    if (moe) total += moe->experts * ExpertRecord(expert_shape(blueprint, layer, dtype)).bytes;
  }
  return total;
}

Result<std::unique_ptr<ResidentExperts>> ResidentExperts::load(compute::Backend& backend, const models::Blueprint& blueprint, DType dtype,
                                                               const ExpertSource& source,
                                                               const std::function<void(uint64_t, uint64_t)>& progress) {
  std::unique_ptr<ResidentExperts> resident(new ResidentExperts);
  resident->layers_.resize(blueprint.layers.size());
  const uint64_t total = bytes(blueprint, dtype);
  uint64_t done = 0;
  std::vector<std::byte> staging;
  for (uint32_t index = 0; index < blueprint.layers.size(); ++index) {
    const auto* moe = std::get_if<MoeSpec>(&blueprint.layers[index].feed_forward);
    if (!moe) continue;
    const compute::ExpertShape shape = expert_shape(blueprint, index, dtype);
    const uint64_t record_bytes = ExpertRecord(shape).bytes;
    Layer& layer = resident->layers_[index];
    layer.activation = moe->activation;
    auto bank = backend.create_expert_bank(shape, moe->experts, "experts of layer " + std::to_string(index));
    if (!bank) return std::move(bank).error().with_context("making room for the experts of layer " + std::to_string(index));
    layer.bank = std::move(bank).value();
    for (uint32_t expert = 0; expert < moe->experts; ++expert) {
      if (std::byte* memory = backend.expert_memory(*layer.bank, expert)) {
        CHORUS_TRY(source(index, expert, {memory, record_bytes}));
      } else {
        staging.resize(record_bytes);
        CHORUS_TRY(source(index, expert, staging));
        CHORUS_TRY(backend.write_expert(*layer.bank, expert, staging));
      }
      done += record_bytes;
      if (progress) progress(done, total);
    }
  }
  return resident;
}

Status ResidentExperts::run(compute::Batch& batch, const models::ExpertCall& call) {
  CHORUS_CHECK(call.layer < layers_.size() && layers_[call.layer].bank != nullptr);
  const Layer& layer = layers_[call.layer];
  compute::ExpertFfnArgs args;
  args.bank = layer.bank.get();
  args.top_k = call.top_k;
  args.activation = layer.activation;
  args.x = call.x;
  args.slots = call.experts;
  args.out = call.out;
  return batch.expert_ffn(args);
}

}  // namespace chorus::experts
