// SwiGLU feed-forward (Shazeer 2020): down(silu(gate x) * up x).
#include "models/layers/layer.h"

namespace chorus::models::layers {

namespace {

enum Scratch : size_t { kGateUp, kActivated };

class Dense final : public FeedForward {
 public:
  explicit Dense(DenseWeights weights) : weights_(std::move(weights)) {}

  ScratchColumns scratch_columns() const override {
    ScratchColumns columns{};
    columns[kGateUp] = 2ull * weights_.inner;
    columns[kActivated] = weights_.inner;
    return columns;
  }

  Status run(Pass& pass, size_t, const MutableView& x, const MutableView& normed) const override {
    const MutableView gate_up = rows_of(pass.scratch(kGateUp, 2 * weights_.inner), 0, x.rows);
    const MutableView activated = rows_of(pass.scratch(kActivated, weights_.inner), 0, x.rows);
    return run_dense(*pass.batch, weights_, normed, gate_up, activated, x, compute::LinearStore::add);
  }

 private:
  DenseWeights weights_;
};

}  // namespace

Result<DenseWeights> bind_dense_weights(WeightBinder& binder, const DenseSpec& spec, uint32_t hidden) {
  DenseWeights weights;
  weights.inner = spec.inner;
  CHORUS_ASSIGN(weights.gate_up, binder.matrix(spec.gate, {{spec.gate, spec.inner}, {spec.up, spec.inner}}, hidden));
  CHORUS_ASSIGN(weights.down, binder.matrix(spec.down, hidden, spec.inner));
  return weights;
}

Status run_dense(compute::Batch& batch, const DenseWeights& weights, const View& x, const MutableView& gate_up,
                 const MutableView& activated, const MutableView& out, compute::LinearStore store) {
  CHORUS_TRY(batch.linear({x, weights.gate_up.get(), nullptr, gate_up, compute::LinearStore::overwrite}));
  CHORUS_TRY(batch.swiglu({gate_up, activated}));
  return batch.linear({activated, weights.down.get(), nullptr, out, store});
}

Result<FeedForwardPtr> bind_dense(WeightBinder& binder, const DenseSpec& spec, const Trunk& trunk) {
  CHORUS_ASSIGN(DenseWeights weights, bind_dense_weights(binder, spec, trunk.hidden));
  return FeedForwardPtr(std::make_unique<Dense>(std::move(weights)));
}

}  // namespace chorus::models::layers
