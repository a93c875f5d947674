// GatedDeltaNet (Yang et al. 2024) as Qwen3.5 has it: one projection to q | k | v, z, b, a; convolution; delta rule; gated norm.
#include "models/layers/layer.h"

namespace chorus::models::layers {

namespace {

using compute::LinearStore;

enum Scratch : size_t { kProjected, kConvolved, kMixed, kChunks };
enum State : size_t { kHistory, kRecurrent };

constexpr uint64_t kChunkRows = 64;  // of the chunked delta rule, whose scratch counts as columns here

struct DeltaWeights {
  WeightPtr in, out;
  BufferPtr conv, a_log, dt_bias, norm;
};

class Delta final : public Mixer {
 public:
  Delta(const DeltaSpec& spec, DeltaWeights weights, float epsilon) : shape_(spec.shape), weights_(std::move(weights)), epsilon_(epsilon) {}

  StateShape state_shape() const override { return {{}, {3ull * channels(), uint64_t{values()} * shape_.key_dim}}; }
  ScratchColumns scratch_columns() const override {
    ScratchColumns columns{};
    columns[kProjected] = projected();
    columns[kConvolved] = channels();
    columns[kMixed] = values();
    columns[kChunks] = shape_.value_heads * (uint64_t{shape_.key_dim} + shape_.value_dim + kChunkRows);
    return columns;
  }

  Status run(Pass& pass, size_t layer, const compute::RowNorm& norm) const override {
    compute::Batch& batch = *pass.batch;
    const MutableView projection = pass.scratch(kProjected, projected());
    const MutableView convolved = pass.scratch(kConvolved, channels()), mixed = pass.scratch(kMixed, values());
    CHORUS_TRY(batch.linear({pass.x, weights_.in.get(), nullptr, projection, LinearStore::overwrite, norm}));
    const uint32_t z = channels(), b = z + values(), a = b + shape_.value_heads;
    for (const PassPart& part : pass.parts) {
      const auto& carried = part.layers[layer].carried;
      const uint32_t now = part.current, next = 1 - now;
      const View rows = pass.part(projection, part);
      CHORUS_TRY(batch.causal_conv({columns_of(rows, 0, channels()), weights_.conv.get(), carried[kHistory][now].get(),
                                    carried[kHistory][next].get(), &pass.part_sequence, pass.part(convolved, part)}));
      CHORUS_TRY(batch.gated_delta({shape_, pass.part(convolved, part), columns_of(rows, b, shape_.value_heads),
                                    columns_of(rows, a, shape_.value_heads), weights_.a_log.get(), weights_.dt_bias.get(),
                                    carried[kRecurrent][now].get(), carried[kRecurrent][next].get(), &pass.part_sequence,
                                    pass.part(mixed, part)}));
    }
    CHORUS_TRY(
        batch.gated_rms_norm({mixed, columns_of(View(projection), z, values()), weights_.norm.get(), shape_.value_dim, epsilon_, mixed}));
    return batch.linear({mixed, weights_.out.get(), nullptr, pass.x, LinearStore::add});
  }

 private:
  uint32_t values() const { return shape_.value_heads * shape_.value_dim; }
  uint32_t channels() const { return 2 * shape_.key_heads * shape_.key_dim + values(); }
  uint32_t projected() const { return channels() + values() + 2 * shape_.value_heads; }

  compute::GatedDeltaShape shape_;
  DeltaWeights weights_;
  float epsilon_;
};

}  // namespace

Result<MixerPtr> bind_delta(WeightBinder& binder, const DeltaSpec& spec, const Trunk& trunk) {
  const compute::GatedDeltaShape& shape = spec.shape;
  const uint32_t values = shape.value_heads * shape.value_dim;
  const uint32_t channels = 2 * shape.key_heads * shape.key_dim + values;
  DeltaWeights weights;
  CHORUS_ASSIGN(
      weights.in,
      binder.matrix(spec.in_qkv,
                    {{spec.in_qkv, channels}, {spec.in_z, values}, {spec.in_b, shape.value_heads}, {spec.in_a, shape.value_heads}},
                    trunk.hidden));
  CHORUS_ASSIGN(weights.conv, binder.values(spec.conv, {channels, 1, 4}, channels, 4));
  CHORUS_ASSIGN(weights.a_log, binder.vector(spec.a_log, shape.value_heads));
  CHORUS_ASSIGN(weights.dt_bias, binder.vector(spec.dt_bias, shape.value_heads));
  CHORUS_ASSIGN(weights.norm, binder.vector(spec.norm, shape.value_dim));
  CHORUS_ASSIGN(weights.out, binder.matrix(spec.out, trunk.hidden, values));
  return MixerPtr(std::make_unique<Delta>(spec, std::move(weights), trunk.epsilon));
}

}  // namespace chorus::models::layers
