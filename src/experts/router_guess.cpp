#include "experts/router_guess.h"

#include <algorithm>

namespace chorus::experts {

using models::MoeSpec;

Result<std::shared_ptr<compute::Buffer>> RouterGuess::load_vector(const formats::WeightSource& weights, const std::string& name,
                                                                  uint32_t count) {
  if (name.empty()) return std::shared_ptr<compute::Buffer>();
  std::vector<float> values(count);
  CHORUS_TRY(weights.read_rows(name, 0, 1, values));
  CHORUS_ASSIGN(auto buffer, backend_.create_buffer(values.size() * sizeof(float), name));
  CHORUS_TRY(backend_.write(*buffer, 0, std::as_bytes(std::span(values))));
  return buffer;
}

Result<std::unique_ptr<RouterGuess>> RouterGuess::create(compute::Backend& backend, const models::Blueprint& blueprint,
                                                         const formats::WeightSource& weights, DType dtype) {
  std::unique_ptr<RouterGuess> guess(new RouterGuess(backend, weights, blueprint.hidden, dtype));
  guess->routers_.resize(blueprint.layers.size());
  uint32_t experts_max = 1, before = UINT32_MAX;
  for (uint32_t layer = 0; layer < guess->routers_.size(); ++layer) {
    const auto* moe = std::get_if<MoeSpec>(&blueprint.layers[layer].feed_forward);
    if (moe == nullptr) continue;
    if (before != UINT32_MAX) {
      Router& router = guess->routers_[before];
      router.next = layer;
      router.spec = *moe;
      CHORUS_ASSIGN(router.bias, guess->load_vector(weights, moe->router.bias, moe->experts));
      CHORUS_ASSIGN(router.correction, guess->load_vector(weights, moe->correction_bias, moe->experts));
      experts_max = std::max(experts_max, moe->experts);
    }
    before = layer;
  }
  const uint64_t routes_bytes = uint64_t{kRowsMax} * compute::kExpertsPerTokenMax * sizeof(uint32_t);
  CHORUS_ASSIGN(guess->logits_, backend.create_buffer(uint64_t{kRowsMax} * experts_max * sizeof(float), "guessed router logits"));
  CHORUS_ASSIGN(guess->experts_, backend.create_buffer(2 * routes_bytes, "guessed experts"));
  CHORUS_ASSIGN(guess->weights_, backend.create_buffer(routes_bytes, "guessed weights"));
  return guess;
}

Status RouterGuess::take_routers(std::span<const std::shared_ptr<compute::Weight>> routers) {
  if (source_ == nullptr) return {};
  for (Router& router : routers_) {
    if (router.next == 0) continue;
    const MoeSpec& spec = router.spec;
    if (router.next < routers.size()) router.weight = routers[router.next];
    if (router.weight && router.weight->rows() == spec.experts && router.weight->cols() == hidden_) continue;
    const auto source = [&](uint32_t row, uint32_t count, std::span<float> out) {
      return source_->read_rows(spec.router.weight, row, count, out);
    };
    CHORUS_ASSIGN(router.weight, backend_.create_weight(spec.router.weight, spec.experts, hidden_, dtype_, source));
  }
  source_ = nullptr;
  return {};
}

uint64_t RouterGuess::copied_bytes(const models::Blueprint& blueprint, DType dtype) {
  uint64_t bytes = 0;
  bool first = true;
  for (const auto& layer : blueprint.layers) {
    const auto* moe = std::get_if<MoeSpec>(&layer.feed_forward);
    if (moe == nullptr) continue;
    if (!first && moe->shared.inner > 0) bytes += uint64_t{moe->experts} * blueprint.hidden * dtype_bytes(dtype);
    first = false;
  }
  return bytes;
}

Result<bool> RouterGuess::record(compute::Batch& batch, const models::ExpertCall& call) {
  const Router& router = routers_[call.layer];
  const compute::View& x = call.x;
  if (router.next == 0 || !router.weight || x.rows == 0 || x.rows > kRowsMax) return false;
  const MoeSpec& spec = router.spec;
  const compute::MutableView logits{logits_.get(), 0, x.rows, spec.experts, spec.experts};
  CHORUS_TRY(batch.linear({x, router.weight.get(), router.bias.get(), logits, compute::LinearStore::overwrite}));
  CHORUS_TRY(batch.router({logits, router.correction.get(), spec.score, spec.groups, spec.groups_kept, spec.top_k, spec.renormalise,
                           spec.scale, experts_.get(), weights_.get()}));
  layer_ = router.next;
  top_k_ = spec.top_k;
  routes_ = x.rows * spec.top_k;
  constexpr uint64_t kBytes = sizeof(uint32_t);
  CHORUS_TRY(batch.copy({call.experts, 0, experts_.get(), routes_ * kBytes, uint64_t{x.rows} * call.top_k * kBytes}));
  return true;
}

Result<std::vector<ExpertKey>> RouterGuess::read(std::span<uint32_t> call_routes) {
  std::vector<uint32_t> routes(routes_ + call_routes.size());
  CHORUS_TRY(backend_.read(*experts_, 0, std::as_writable_bytes(std::span(routes))));
  std::copy(routes.begin() + routes_, routes.end(), call_routes.begin());
  std::vector<ExpertKey> keys;
  for (uint32_t rank = 0; rank < top_k_; ++rank) {
    for (uint32_t at = rank; at < routes_; at += top_k_) {
      const ExpertKey key{layer_, routes[at]};
      if (key.expert != compute::kNoSlot && std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  return keys;
}

}  // namespace chorus::experts
