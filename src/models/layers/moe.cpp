// Mixture of experts: a router chooses top_k experts a row, who computes them is the executor's business, their outputs are summed in the
// order of rank; a shared expert sees every row. Everything that multiplies the row itself is one product.
#include "models/layers/layer.h"

namespace chorus::models::layers {

namespace {

enum Scratch : size_t { kProjected, kActivated, kShared };

struct MoeWeights {
  WeightPtr in;           // rows of the router, gate and up of the shared expert, its gate
  WeightPtr shared_down;  // null: no shared expert
  BufferPtr router_bias, correction_bias;
};

class Moe final : public FeedForward {
 public:
  Moe(const MoeSpec& spec, MoeWeights weights, uint32_t hidden) : spec_(spec), weights_(std::move(weights)), hidden_(hidden) {}

  uint32_t routes() const override { return spec_.top_k; }
  uint32_t expert_inner() const override { return spec_.inner; }
  WeightPtr router() const override { return weights_.shared_down ? nullptr : weights_.in; }
  ScratchColumns scratch_columns() const override {
    ScratchColumns columns{};
    columns[kProjected] = projected();
    if (!weights_.shared_down) return columns;
    columns[kActivated] = spec_.shared.inner;
    columns[kShared] = hidden_;
    return columns;
  }

  Status run(Pass& pass, size_t layer, const MutableView& x, const compute::RowNorm& norm) const override {
    compute::Batch& batch = *pass.batch;
    const MutableView projection = rows_of(pass.scratch(kProjected, projected()), 0, x.rows);
    const View logits = columns_of(View(projection), 0, spec_.experts);
    CHORUS_TRY(batch.linear({x, weights_.in.get(), weights_.router_bias.get(), projection, compute::LinearStore::overwrite, norm}));
    CHORUS_TRY(batch.router({logits, weights_.correction_bias.get(), spec_.score, spec_.groups, spec_.groups_kept, spec_.top_k,
                             spec_.renormalise, spec_.scale, pass.route_experts, pass.route_weights}));
    compute::CombineRoutesArgs combine;
    CHORUS_TRY(run_shared(pass, projection, combine));
    combine.top_k = spec_.top_k;
    combine.routed = view_of(pass.routed, x.rows * spec_.top_k, hidden_);
    combine.weights = pass.route_weights;
    combine.out = x;
    ExpertCall call;
    call.layer = static_cast<uint32_t>(layer);
    call.top_k = spec_.top_k;
    call.x = norm.out;
    call.experts = pass.route_experts;
    call.out = view_of(pass.routed, x.rows * spec_.top_k, hidden_);
    CHORUS_CHECK(pass.experts != nullptr);
    CHORUS_TRY(pass.experts->run(batch, call));
    return batch.combine_routes(combine);
  }

 private:
  uint32_t projected() const { return spec_.experts + 2 * spec_.shared.inner + (spec_.shared_gate.empty() ? 0 : 1); }

  Status run_shared(Pass& pass, const View& projection, compute::CombineRoutesArgs& combine) const {
    if (!weights_.shared_down) return {};
    const uint32_t inner = spec_.shared.inner;
    const MutableView activated = rows_of(pass.scratch(kActivated, inner), 0, projection.rows);
    const MutableView shared = rows_of(pass.scratch(kShared, hidden_), 0, projection.rows);
    CHORUS_TRY(pass.batch->swiglu({columns_of(projection, spec_.experts, 2 * inner), activated}));
    CHORUS_TRY(pass.batch->linear({activated, weights_.shared_down.get(), nullptr, shared, compute::LinearStore::overwrite}));
    combine.shared = shared;
    if (!spec_.shared_gate.empty()) combine.shared_gate = columns_of(projection, spec_.experts + 2 * inner, 1);
    return {};
  }

  MoeSpec spec_;
  MoeWeights weights_;
  uint32_t hidden_;
};

}  // namespace

Result<FeedForwardPtr> bind_moe(WeightBinder& binder, const MoeSpec& spec, const Trunk& trunk) {
  MoeWeights weights;
  std::vector<WeightBinder::Part> parts = {{spec.router.weight, spec.experts}};
  if (spec.shared.inner > 0) {
    CHORUS_CHECK(spec.router.bias.empty());  // it would have to be as long as all parts
    parts.push_back({spec.shared.gate, spec.shared.inner});
    parts.push_back({spec.shared.up, spec.shared.inner});
    if (!spec.shared_gate.empty()) parts.push_back({spec.shared_gate, 1});
    CHORUS_ASSIGN(weights.shared_down, binder.matrix(spec.shared.down, trunk.hidden, spec.shared.inner));
  }
  CHORUS_ASSIGN(weights.in, binder.matrix(spec.router.weight, parts, trunk.hidden));
  CHORUS_ASSIGN(weights.router_bias, binder.optional_vector(spec.router.bias, spec.experts));
  CHORUS_ASSIGN(weights.correction_bias, binder.optional_vector(spec.correction_bias, spec.experts));
  return FeedForwardPtr(std::make_unique<Moe>(spec, std::move(weights), trunk.hidden));
}

}  // namespace chorus::models::layers
