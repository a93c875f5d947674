// Mixture of experts: a router chooses top_k experts a row, who computes them is the executor's business, their outputs are summed in the
// order of rank; a shared expert sees every row.
#include "models/layers/layer.h"

namespace chorus::models::layers {

namespace {

enum Scratch : size_t { kLogits, kGateUp, kActivated, kShared, kSharedGate };

struct MoeWeights {
  WeightPtr router, shared_gate;
  BufferPtr router_bias, correction_bias;
  DenseWeights shared;
};

class Moe final : public FeedForward {
 public:
  Moe(const MoeSpec& spec, MoeWeights weights, uint32_t hidden) : spec_(spec), weights_(std::move(weights)), hidden_(hidden) {}

  uint32_t routes() const override { return spec_.top_k; }
  uint32_t expert_inner() const override { return spec_.inner; }
  ScratchColumns scratch_columns() const override {
    ScratchColumns columns{};
    columns[kLogits] = spec_.experts;
    if (!weights_.shared.down) return columns;
    columns[kGateUp] = 2ull * weights_.shared.inner;
    columns[kActivated] = weights_.shared.inner;
    columns[kShared] = hidden_;
    columns[kSharedGate] = 1;
    return columns;
  }

  Status run(Pass& pass, size_t layer, const MutableView& x, const MutableView& normed) const override {
    compute::Batch& batch = *pass.batch;
    const MutableView logits = rows_of(pass.scratch(kLogits, spec_.experts), 0, x.rows);
    CHORUS_TRY(batch.linear({normed, weights_.router.get(), weights_.router_bias.get(), logits, compute::LinearStore::overwrite}));
    CHORUS_TRY(batch.router({logits, weights_.correction_bias.get(), spec_.score, spec_.groups, spec_.groups_kept, spec_.top_k,
                             spec_.renormalise, spec_.scale, pass.route_experts, pass.route_weights}));
    compute::CombineRoutesArgs combine;
    CHORUS_TRY(run_shared(pass, x.rows, normed, combine));
    combine.top_k = spec_.top_k;
    combine.routed = view_of(pass.routed, x.rows * spec_.top_k, hidden_);
    combine.weights = pass.route_weights;
    combine.out = x;
    ExpertCall call;
    call.layer = static_cast<uint32_t>(layer);
    call.top_k = spec_.top_k;
    call.x = normed;
    call.experts = pass.route_experts;
    call.out = view_of(pass.routed, x.rows * spec_.top_k, hidden_);
    CHORUS_CHECK(pass.experts != nullptr);
    CHORUS_TRY(pass.experts->run(batch, call));
    return batch.combine_routes(combine);
  }

 private:
  Status run_shared(Pass& pass, uint32_t rows, const View& normed, compute::CombineRoutesArgs& combine) const {
    if (!weights_.shared.down) return {};
    const MutableView gate_up = rows_of(pass.scratch(kGateUp, 2 * weights_.shared.inner), 0, rows);
    const MutableView activated = rows_of(pass.scratch(kActivated, weights_.shared.inner), 0, rows);
    const MutableView shared = rows_of(pass.scratch(kShared, hidden_), 0, rows);
    CHORUS_TRY(run_dense(*pass.batch, weights_.shared, normed, gate_up, activated, shared, compute::LinearStore::overwrite));
    combine.shared = shared;
    if (!weights_.shared_gate) return {};
    const MutableView gate = rows_of(pass.scratch(kSharedGate, 1), 0, rows);
    CHORUS_TRY(pass.batch->linear({normed, weights_.shared_gate.get(), nullptr, gate, compute::LinearStore::overwrite}));
    combine.shared_gate = gate;
    return {};
  }

  MoeSpec spec_;
  MoeWeights weights_;
  uint32_t hidden_;
};

}  // namespace

Result<FeedForwardPtr> bind_moe(WeightBinder& binder, const MoeSpec& spec, const Trunk& trunk) {
  MoeWeights weights;
  CHORUS_ASSIGN(weights.router, binder.matrix(spec.router.weight, spec.experts, trunk.hidden));
  CHORUS_ASSIGN(weights.router_bias, binder.optional_vector(spec.router.bias, spec.experts));
  CHORUS_ASSIGN(weights.correction_bias, binder.optional_vector(spec.correction_bias, spec.experts));
  if (spec.shared.inner > 0) {
    CHORUS_ASSIGN(weights.shared, bind_dense_weights(binder, spec.shared, trunk.hidden));
  }
  if (!spec.shared_gate.empty()) {
    CHORUS_ASSIGN(weights.shared_gate, binder.matrix(spec.shared_gate, 1, trunk.hidden));
  }
  return FeedForwardPtr(std::make_unique<Moe>(spec, std::move(weights), trunk.hidden));
}

}  // namespace chorus::models::layers
