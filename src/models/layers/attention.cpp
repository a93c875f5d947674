// Softmax attention with grouped queries (Ainslie et al. 2023), rotary embeddings, optional norms of queries and keys, window and sinks.
#include "models/layers/layer.h"

namespace chorus::models::layers {

namespace {

using compute::LinearStore;
using Norm = AttentionSpec::QueryKeyNorm;

enum Scratch : size_t { kQueries, kNormedQueries, kKeys, kNormedKeys, kValues };
enum State : size_t { kKeyRows, kValueRows };

struct AttentionWeights {
  WeightPtr q, k, v, o;
  BufferPtr q_bias, k_bias, v_bias, o_bias, q_norm, k_norm, sinks;
};

class Attention final : public Mixer {
 public:
  Attention(const AttentionSpec& spec, AttentionWeights weights, const Trunk& trunk)
      : spec_(spec), weights_(std::move(weights)), trunk_(trunk), rope_(trunk.ropes->add(spec.rope)) {}

  StateShape state_shape() const override { return {{keys(), keys()}, {}}; }
  ScratchColumns scratch_columns() const override {
    ScratchColumns columns{};
    columns[kQueries] = columns[kNormedQueries] = queries();  // one of them holds the mixed values in the end
    columns[kKeys] = columns[kNormedKeys] = columns[kValues] = keys();
    return columns;
  }

  Status run(Pass& pass, size_t layer) const override {
    compute::Batch& batch = *pass.batch;
    CHORUS_ASSIGN(const MutableView q, project(pass, weights_.q, weights_.q_bias, weights_.q_norm, kQueries, queries()));
    CHORUS_ASSIGN(const MutableView k, project(pass, weights_.k, weights_.k_bias, weights_.k_norm, kKeys, keys()));
    const MutableView mixed = pass.scratch(spec_.norm == Norm::none ? kNormedQueries : kQueries, queries());
    CHORUS_TRY(batch.rope(rope_args(spec_.query_heads, q, pass.cosine[rope_], pass.sine[rope_], q)));
    CHORUS_TRY(store_values(pass, layer));
    for (const PassPart& part : pass.parts) {
      CHORUS_TRY(batch.rope(rope_args(spec_.kv_heads, pass.part(k, part), pass.part(pass.cosine[rope_], part),
                                      pass.part(pass.sine[rope_], part), pass.new_rows(part, layer, kKeyRows, keys()))));
      compute::AttendArgs args;
      args.query_heads = spec_.query_heads;
      args.kv_heads = spec_.kv_heads;
      args.key_dim = args.value_dim = spec_.head_dim;
      args.scale = spec_.scale;
      args.window = spec_.window;
      args.q = pass.part(q, part);
      args.keys = pass.seen_rows(part, layer, kKeyRows, keys());
      args.values = pass.seen_rows(part, layer, kValueRows, keys());
      args.sinks = weights_.sinks.get();
      args.out = pass.part(mixed, part);
      CHORUS_TRY(batch.attend(args));
    }
    return batch.linear({mixed, weights_.o.get(), weights_.o_bias.get(), pass.x, LinearStore::add});
  }

 private:
  uint32_t queries() const { return spec_.query_heads * spec_.head_dim; }
  uint32_t keys() const { return spec_.kv_heads * spec_.head_dim; }

  // Queries or keys before their rotation; the norm writes into the scratch buffer behind the projection's.
  Result<MutableView> project(Pass& pass, const WeightPtr& weight, const BufferPtr& bias, const BufferPtr& norm, size_t scratch,
                              uint32_t cols) const {
    const MutableView plain = pass.scratch(scratch, cols);
    CHORUS_TRY(pass.batch->linear({pass.normed, weight.get(), bias.get(), plain, LinearStore::overwrite}));
    if (spec_.norm == Norm::none) return plain;
    const MutableView normed = pass.scratch(scratch + 1, cols);
    const uint32_t width = spec_.norm == Norm::per_head ? spec_.head_dim : cols;
    CHORUS_TRY(pass.batch->rms_norm({heads_of(plain, width), norm.get(), trunk_.epsilon, trunk_.norm_form, heads_of(normed, width)}));
    return normed;
  }

  // Straight into the cache when there is one sequence.
  Status store_values(Pass& pass, size_t layer) const {
    const bool direct = pass.parts.size() == 1;
    const MutableView v = direct ? pass.new_rows(pass.parts[0], layer, kValueRows, keys()) : pass.scratch(kValues, keys());
    CHORUS_TRY(pass.batch->linear({pass.normed, weights_.v.get(), weights_.v_bias.get(), v, LinearStore::overwrite}));
    if (direct) return {};
    for (const PassPart& part : pass.parts) {
      const MutableView from = pass.part(v, part), to = pass.new_rows(part, layer, kValueRows, keys());
      CHORUS_TRY(pass.batch->copy({from.buffer, from.offset * 4, to.buffer, to.offset * 4, uint64_t{from.rows} * from.cols * 4}));
    }
    return {};
  }

  compute::RopeArgs rope_args(uint32_t heads, const View& x, const View& cosine, const View& sine, const MutableView& out) const {
    return {heads, spec_.head_dim, 0, spec_.rope.rotary_dim, spec_.rope.form, x, cosine, sine, out};
  }

  AttentionSpec spec_;
  AttentionWeights weights_;
  Trunk trunk_;
  size_t rope_;
};

}  // namespace

Result<MixerPtr> bind_attention(WeightBinder& binder, const AttentionSpec& spec, const Trunk& trunk) {
  if (spec.output_gate) return bind_gated_attention(binder, spec, trunk);
  const uint32_t queries = spec.query_heads * spec.head_dim, keys = spec.kv_heads * spec.head_dim;
  const bool per_head = spec.norm == Norm::per_head;
  AttentionWeights weights;
  CHORUS_ASSIGN(weights.q, binder.matrix(spec.q.weight, queries, trunk.hidden));
  CHORUS_ASSIGN(weights.k, binder.matrix(spec.k.weight, keys, trunk.hidden));
  CHORUS_ASSIGN(weights.v, binder.matrix(spec.v.weight, keys, trunk.hidden));
  CHORUS_ASSIGN(weights.o, binder.matrix(spec.o.weight, trunk.hidden, queries));
  CHORUS_ASSIGN(weights.q_bias, binder.optional_vector(spec.q.bias, queries));
  CHORUS_ASSIGN(weights.k_bias, binder.optional_vector(spec.k.bias, keys));
  CHORUS_ASSIGN(weights.v_bias, binder.optional_vector(spec.v.bias, keys));
  CHORUS_ASSIGN(weights.o_bias, binder.optional_vector(spec.o.bias, trunk.hidden));
  CHORUS_ASSIGN(weights.q_norm, binder.optional_vector(spec.q_norm, per_head ? spec.head_dim : queries));
  CHORUS_ASSIGN(weights.k_norm, binder.optional_vector(spec.k_norm, per_head ? spec.head_dim : keys));
  CHORUS_ASSIGN(weights.sinks, binder.optional_vector(spec.sinks, spec.query_heads));
  return MixerPtr(std::make_unique<Attention>(spec, std::move(weights), trunk));
}

}  // namespace chorus::models::layers
