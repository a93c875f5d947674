// SwiGLU feed-forward (Shazeer 2020): down(silu(gate x) * up x).
#include "models/layers/layer.h"

namespace chorus::models::layers {

namespace {

using compute::LinearStore;

enum Scratch : size_t { kGateUp, kActivated };

class Dense final : public FeedForward {
 public:
  Dense(uint32_t inner, WeightPtr gate_up, WeightPtr down) : inner_(inner), gate_up_(std::move(gate_up)), down_(std::move(down)) {}

  ScratchColumns scratch_columns() const override {
    ScratchColumns columns{};
    columns[kGateUp] = 2ull * inner_;
    columns[kActivated] = inner_;
    return columns;
  }

  Status run(Pass& pass, size_t, const MutableView& x, const compute::RowNorm& norm) const override {
    const MutableView gate_up = rows_of(pass.scratch(kGateUp, 2 * inner_), 0, x.rows);
    const MutableView activated = rows_of(pass.scratch(kActivated, inner_), 0, x.rows);
    CHORUS_TRY(pass.batch->linear({x, gate_up_.get(), nullptr, gate_up, LinearStore::overwrite, norm}));
    CHORUS_TRY(pass.batch->swiglu({gate_up, activated}));
    return pass.batch->linear({activated, down_.get(), nullptr, x, LinearStore::add});
  }

 private:
  uint32_t inner_;
  WeightPtr gate_up_, down_;
};

}  // namespace

Result<FeedForwardPtr> bind_dense(WeightBinder& binder, const DenseSpec& spec, const Trunk& trunk) {
  CHORUS_ASSIGN(WeightPtr gate_up, binder.matrix(spec.gate, {{spec.gate, spec.inner}, {spec.up, spec.inner}}, trunk.hidden));
  CHORUS_ASSIGN(WeightPtr down, binder.matrix(spec.down, trunk.hidden, spec.inner));
  return FeedForwardPtr(std::make_unique<Dense>(spec.inner, std::move(gate_up), std::move(down)));
}

}  // namespace chorus::models::layers
