// Qwen3.5's attention: queries and keys normed per head by 1 + w, rotary embeddings, the output multiplied by sigmoid of a gate that the
// query projection also gives.
#include "models/layers/layer.h"

namespace chorus::models::layers {

namespace {

using compute::LinearStore;

enum Scratch : size_t { kProjected, kQueries, kMixed };
enum State : size_t { kKeyRows, kValueRows };

struct GatedAttentionWeights {
  WeightPtr in, out;  // in: rows of query | gate of each head, k and v
  BufferPtr q_norm, k_norm;
};

class GatedAttention final : public Mixer {
 public:
  GatedAttention(const AttentionSpec& spec, GatedAttentionWeights weights, const Trunk& trunk)
      : spec_(spec), weights_(std::move(weights)), epsilon_(trunk.epsilon), rope_(trunk.ropes->add(spec.rope)) {}

  StateShape state_shape() const override { return {{keys(), keys()}, {}}; }
  ScratchColumns scratch_columns() const override {
    ScratchColumns columns{};
    columns[kProjected] = 2ull * queries() + 2ull * keys();
    columns[kQueries] = columns[kMixed] = queries();
    return columns;
  }

  Status run(Pass& pass, size_t layer, const compute::RowNorm& norm) const override {
    compute::Batch& batch = *pass.batch;
    const MutableView projected = pass.scratch(kProjected, 2 * queries() + 2 * keys());
    const View q_gate = columns_of(projected, 0, 2 * queries()), kv = columns_of(projected, 2 * queries(), 2 * keys());
    const MutableView q = pass.scratch(kQueries, queries()), mixed = pass.scratch(kMixed, queries());
    CHORUS_TRY(batch.linear({pass.x, weights_.in.get(), nullptr, projected, LinearStore::overwrite, norm}));
    const compute::AttentionShape shape{spec_.query_heads, spec_.kv_heads, spec_.head_dim};
    for (const PassPart& part : pass.parts) {
      const View part_gate = pass.part(q_gate, part);
      const MutableView part_q = pass.part(q, part);
      const MutableView own_k = pass.new_rows(part, layer, kKeyRows, keys()), own_v = pass.new_rows(part, layer, kValueRows, keys());
      CHORUS_TRY(batch.qk_norm_rope({shape, spec_.rope.rotary_dim, epsilon_, part_gate, pass.part(kv, part), weights_.q_norm.get(),
                                     weights_.k_norm.get(), pass.part(pass.cosine[rope_], part), pass.part(pass.sine[rope_], part), part_q,
                                     own_k, own_v, true, compute::QueryKeyNorm::per_head, compute::NormWeight::one_plus}));
      const View before_k = rows_of(pass.seen_rows(part, layer, kKeyRows, keys()), 0, part.position);
      const View before_v = rows_of(pass.seen_rows(part, layer, kValueRows, keys()), 0, part.position);
      CHORUS_TRY(batch.attention(
          {shape, spec_.scale, part_q, part_gate, before_k, before_v, own_k, own_v, &pass.part_sequence, pass.part(mixed, part)}));
    }
    return batch.linear({mixed, weights_.out.get(), nullptr, pass.x, LinearStore::add});
  }

 private:
  uint32_t queries() const { return spec_.query_heads * spec_.head_dim; }
  uint32_t keys() const { return spec_.kv_heads * spec_.head_dim; }

  AttentionSpec spec_;
  GatedAttentionWeights weights_;
  float epsilon_;
  size_t rope_;
};

}  // namespace

Result<MixerPtr> bind_gated_attention(WeightBinder& binder, const AttentionSpec& spec, const Trunk& trunk) {
  CHORUS_CHECK(spec.norm == AttentionSpec::QueryKeyNorm::per_head && trunk.norm_form == compute::NormWeight::one_plus);
  CHORUS_CHECK(spec.window == 0 && spec.sinks.empty() && spec.rope.form == compute::RopeForm::halves);
  CHORUS_CHECK(spec.q.bias.empty() && spec.k.bias.empty() && spec.v.bias.empty() && spec.o.bias.empty());
  const uint32_t queries = spec.query_heads * spec.head_dim, keys = spec.kv_heads * spec.head_dim;
  GatedAttentionWeights weights;
  CHORUS_ASSIGN(weights.in,
                binder.matrix(spec.q.weight, {{spec.q.weight, 2 * queries}, {spec.k.weight, keys}, {spec.v.weight, keys}}, trunk.hidden));
  CHORUS_ASSIGN(weights.out, binder.matrix(spec.o.weight, trunk.hidden, queries));
  CHORUS_ASSIGN(weights.q_norm, binder.vector(spec.q_norm, spec.head_dim));
  CHORUS_ASSIGN(weights.k_norm, binder.vector(spec.k_norm, spec.head_dim));
  return MixerPtr(std::make_unique<GatedAttention>(spec, std::move(weights), trunk));
}

}  // namespace chorus::models::layers
