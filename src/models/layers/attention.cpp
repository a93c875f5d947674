// Softmax attention with grouped queries (Ainslie et al. 2023), rotary embeddings, optional norms of queries and keys, window and sinks.
// Queries, keys and values come from one product, so that a single row takes few steps.
#include "models/layers/layer.h"

namespace chorus::models::layers {

namespace {

using compute::LinearStore;
using Norm = AttentionSpec::QueryKeyNorm;

enum Scratch : size_t { kProjected, kQueries, kMixed };
enum State : size_t { kKeyRows, kValueRows };

struct AttentionWeights {
  WeightPtr in, out;  // in: rows of q, k and v
  BufferPtr in_bias, out_bias, q_norm, k_norm, sinks;
};

class Attention final : public Mixer {
 public:
  Attention(const AttentionSpec& spec, AttentionWeights weights, const Trunk& trunk)
      : spec_(spec), weights_(std::move(weights)), trunk_(trunk), rope_(trunk.ropes->add(spec.rope)) {}

  StateShape state_shape() const override { return {{keys(), keys()}, {}}; }
  ScratchColumns scratch_columns() const override {
    ScratchColumns columns{};
    columns[kProjected] = queries() + 2ull * keys();
    columns[kQueries] = columns[kMixed] = queries();
    return columns;
  }

  Status run(Pass& pass, size_t layer, const compute::RowNorm& norm) const override {
    const MutableView projected = pass.scratch(kProjected, queries() + 2 * keys());
    CHORUS_TRY(pass.batch->linear({pass.x, weights_.in.get(), weights_.in_bias.get(), projected, LinearStore::overwrite, norm}));
    const MutableView q = pass.scratch(kQueries, queries()), mixed = pass.scratch(kMixed, queries());
    for (const PassPart& part : pass.parts) {
      CHORUS_TRY(rotate(pass, part, layer, pass.part(projected, part), pass.part(q, part)));
      CHORUS_TRY(attend(pass, part, layer, pass.part(q, part), pass.part(mixed, part)));
    }
    return pass.batch->linear({mixed, weights_.out.get(), weights_.out_bias.get(), pass.x, LinearStore::add});
  }

 private:
  uint32_t queries() const { return spec_.query_heads * spec_.head_dim; }
  uint32_t keys() const { return spec_.kv_heads * spec_.head_dim; }

  // Norms and rotation; keys and values go into the cache.
  Status rotate(Pass& pass, const PassPart& part, size_t layer, const View& projected, const MutableView& q) const {
    compute::QkNormRopeArgs args;
    args.shape = {spec_.query_heads, spec_.kv_heads, spec_.head_dim};
    args.rotary_dim = spec_.rope.rotary_dim;
    args.epsilon = trunk_.epsilon;
    args.q_gate = columns_of(projected, 0, queries());
    args.kv = columns_of(projected, queries(), 2 * keys());
    args.q_weight = weights_.q_norm.get();
    args.k_weight = weights_.k_norm.get();
    args.cosine = pass.part(pass.cosine[rope_], part);
    args.sine = pass.part(pass.sine[rope_], part);
    args.q_out = q;
    args.k_out = pass.new_rows(part, layer, kKeyRows, keys());
    args.v_out = pass.new_rows(part, layer, kValueRows, keys());
    args.gated = false;
    args.norm = spec_.norm;
    args.form = trunk_.norm_form;
    return pass.batch->qk_norm_rope(args);
  }

  Status attend(Pass& pass, const PassPart& part, size_t layer, const View& q, const MutableView& mixed) const {
    compute::AttendArgs args;
    args.query_heads = spec_.query_heads;
    args.kv_heads = spec_.kv_heads;
    args.key_dim = args.value_dim = spec_.head_dim;
    args.scale = spec_.scale;
    args.window = spec_.window;
    args.q = q;
    args.keys = pass.seen_rows(part, layer, kKeyRows, keys());
    args.values = pass.seen_rows(part, layer, kValueRows, keys());
    args.sinks = weights_.sinks.get();
    args.out = mixed;
    return pass.batch->attend(args);
  }

  AttentionSpec spec_;
  AttentionWeights weights_;
  Trunk trunk_;
  size_t rope_;
};

}  // namespace

Result<MixerPtr> bind_attention(WeightBinder& binder, const AttentionSpec& spec, const Trunk& trunk) {
  if (spec.output_gate) return bind_gated_attention(binder, spec, trunk);
  CHORUS_CHECK(spec.rope.form == compute::RopeForm::halves);
  const uint32_t queries = spec.query_heads * spec.head_dim, keys = spec.kv_heads * spec.head_dim;
  const bool per_head = spec.norm == Norm::per_head;
  AttentionWeights weights;
  CHORUS_ASSIGN(weights.in,
                binder.matrix(spec.q.weight, {{spec.q.weight, queries}, {spec.k.weight, keys}, {spec.v.weight, keys}}, trunk.hidden));
  CHORUS_ASSIGN(weights.in_bias, binder.stacked_vectors({{spec.q.bias, queries}, {spec.k.bias, keys}, {spec.v.bias, keys}}));
  CHORUS_ASSIGN(weights.out, binder.matrix(spec.o.weight, trunk.hidden, queries));
  CHORUS_ASSIGN(weights.out_bias, binder.optional_vector(spec.o.bias, trunk.hidden));
  CHORUS_ASSIGN(weights.q_norm, binder.optional_vector(spec.q_norm, per_head ? spec.head_dim : queries));
  CHORUS_ASSIGN(weights.k_norm, binder.optional_vector(spec.k_norm, per_head ? spec.head_dim : keys));
  CHORUS_ASSIGN(weights.sinks, binder.optional_vector(spec.sinks, spec.query_heads));
  return MixerPtr(std::make_unique<Attention>(spec, std::move(weights), trunk));
}

}  // namespace chorus::models::layers
