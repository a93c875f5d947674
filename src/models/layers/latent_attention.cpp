// Multi-head latent attention (DeepSeek-V2, 2024) in its absorbed form. The cache holds one compressed row a token, c | rotated k, which is
// the key of every head; its first part is also the value. With W_k and W_v the halves of kv_b of a head:
//   q^T (W_k c) = (W_k^T q)^T c     and     sum_j p_j (W_v c_j) = W_v (sum_j p_j c_j)
// so queries go through W_k^T before attending and results through W_v after it. With an indexer (DeepSeek-V3.2) a row sees only the keys
// that score best.
#include <algorithm>
#include <cmath>

#include "models/layers/layer.h"

namespace chorus::models::layers {

namespace {

using compute::LinearStore;
using compute::NormWeight;

// kMixed holds what kQueries no longer needs.
enum Scratch : size_t { kCompressedQueries, kNormedQueries, kQueries, kAbsorbed, kCompressed, kMixed };
enum State : size_t { kKeyRows, kIndexRows };
// The indexer runs when the compressed queries are normed and before kAbsorbed and kMixed are used.
constexpr size_t kIndexQueries = kAbsorbed, kIndexKeys = kMixed, kNormedIndexKeys = kCompressed, kIndexWeights = kCompressedQueries;

struct IndexerWeights {
  WeightPtr wq_b, wk, weights_proj;
  BufferPtr k_norm_weight, k_norm_bias;
};

struct LatentWeights {
  WeightPtr q_a, q_b, kv_a, key_half, value_half, o;
  BufferPtr q_a_bias, q_b_bias, kv_a_bias, o_bias, q_a_norm, kv_a_norm;
  IndexerWeights indexer;
};

class LatentAttention final : public Mixer {
 public:
  LatentAttention(const LatentAttentionSpec& spec, LatentWeights weights, RopeTables& ropes)
      : spec_(spec), weights_(std::move(weights)), rope_(ropes.add(spec.rope)) {
    if (has_indexer()) index_rope_ = ropes.add(spec.indexer->rope);
  }

  StateShape state_shape() const override {
    StateShape shape{{key_dim()}, {}};
    if (has_indexer()) shape.row_elements.push_back(spec_.indexer->head_dim);
    return shape;
  }

  ScratchColumns scratch_columns() const override {
    ScratchColumns columns{};
    columns[kCompressedQueries] = columns[kNormedQueries] = spec_.q_rank;
    columns[kQueries] = uint64_t{spec_.heads} * std::max(query_dim(), spec_.value_dim);
    columns[kAbsorbed] = uint64_t{spec_.heads} * key_dim();
    columns[kCompressed] = key_dim();
    columns[kMixed] = uint64_t{spec_.heads} * spec_.kv_rank;
    if (!has_indexer()) return columns;
    const IndexerSpec& indexer = *spec_.indexer;
    columns[kIndexQueries] = std::max<uint64_t>(columns[kIndexQueries], uint64_t{indexer.heads} * indexer.head_dim);
    columns[kIndexKeys] = std::max<uint64_t>(columns[kIndexKeys], indexer.head_dim);
    columns[kNormedIndexKeys] = std::max<uint64_t>(columns[kNormedIndexKeys], indexer.head_dim);
    columns[kIndexWeights] = std::max<uint64_t>(columns[kIndexWeights], indexer.heads);
    return columns;
  }

  Status run(Pass& pass, size_t layer, const compute::RowNorm& norm) const override {
    CHORUS_TRY(pass.batch->rms_norm({pass.x, norm.weight, norm.epsilon, norm.form, norm.out}));  // several products read it
    compute::Batch& batch = *pass.batch;
    CHORUS_ASSIGN(const View compressed_queries, compress_queries(pass));
    if (has_indexer()) CHORUS_TRY(choose_keys(pass, layer, compressed_queries));
    const MutableView q = pass.scratch(kQueries, spec_.heads * query_dim());
    CHORUS_TRY(batch.linear({compressed_queries, weights_.q_b.get(), weights_.q_b_bias.get(), q, LinearStore::overwrite}));
    CHORUS_TRY(batch.rope(
        {spec_.heads, query_dim(), spec_.nope_dim, spec_.rope_dim, spec_.rope.form, q, pass.cosine[rope_], pass.sine[rope_], q}));
    CHORUS_TRY(store_keys(pass, layer));
    const MutableView absorbed = pass.scratch(kAbsorbed, spec_.heads * key_dim());
    CHORUS_TRY(batch.head_linear({spec_.heads, query_dim(), q, weights_.key_half.get(), absorbed}));
    const MutableView mixed = pass.scratch(kMixed, spec_.heads * spec_.kv_rank);
    for (size_t i = 0; i < pass.parts.size(); ++i) CHORUS_TRY(attend(pass, i, layer, absorbed, mixed));
    const MutableView values = pass.scratch(kQueries, spec_.heads * spec_.value_dim);
    CHORUS_TRY(batch.head_linear({spec_.heads, spec_.kv_rank, mixed, weights_.value_half.get(), values}));
    return batch.linear({values, weights_.o.get(), weights_.o_bias.get(), pass.x, LinearStore::add});
  }

 private:
  uint32_t query_dim() const { return spec_.nope_dim + spec_.rope_dim; }
  uint32_t key_dim() const { return spec_.kv_rank + spec_.rope_dim; }
  bool has_indexer() const { return spec_.indexer && !spec_.indexer->shared; }

  Result<View> compress_queries(Pass& pass) const {
    if (spec_.q_rank == 0) return View(pass.normed);
    const MutableView plain = pass.scratch(kCompressedQueries, spec_.q_rank), normed = pass.scratch(kNormedQueries, spec_.q_rank);
    CHORUS_TRY(pass.batch->linear({pass.normed, weights_.q_a.get(), weights_.q_a_bias.get(), plain, LinearStore::overwrite}));
    CHORUS_TRY(pass.batch->rms_norm({plain, weights_.q_a_norm.get(), spec_.norm_epsilon, NormWeight::plain, normed}));
    return View(normed);
  }

  // c normed, k rotated, into the cache.
  Status store_keys(Pass& pass, size_t layer) const {
    const MutableView compressed = pass.scratch(kCompressed, key_dim());
    CHORUS_TRY(pass.batch->linear({pass.normed, weights_.kv_a.get(), weights_.kv_a_bias.get(), compressed, LinearStore::overwrite}));
    for (const PassPart& part : pass.parts) {
      const View from = pass.part(compressed, part);
      const MutableView to = pass.new_rows(part, layer, kKeyRows, key_dim());
      CHORUS_TRY(pass.batch->rms_norm({columns_of(from, 0, spec_.kv_rank), weights_.kv_a_norm.get(), spec_.norm_epsilon, NormWeight::plain,
                                       columns_of(to, 0, spec_.kv_rank)}));
      CHORUS_TRY(pass.batch->rope({1, spec_.rope_dim, 0, spec_.rope_dim, spec_.rope.form, columns_of(from, spec_.kv_rank, spec_.rope_dim),
                                   pass.part(pass.cosine[rope_], part), pass.part(pass.sine[rope_], part),
                                   columns_of(to, spec_.kv_rank, spec_.rope_dim)}));
    }
    return {};
  }

  Status attend(Pass& pass, size_t index, size_t layer, const MutableView& absorbed, const MutableView& mixed) const {
    const PassPart& part = pass.parts[index];
    const View keys = pass.seen_rows(part, layer, kKeyRows, key_dim());
    compute::AttendArgs args;
    args.query_heads = spec_.heads;
    args.kv_heads = 1;
    args.key_dim = key_dim();
    args.value_dim = spec_.kv_rank;
    args.scale = spec_.scale;
    args.q = pass.part(absorbed, part);
    args.keys = keys;
    args.values = columns_of(keys, 0, spec_.kv_rank);
    if (spec_.indexer) args.selected = pass.selected[index];
    args.out = pass.part(mixed, part);
    return pass.batch->attend(args);
  }

  // Stores this layer's index keys and, where a row sees more keys than the indexer takes, chooses among them.
  Status choose_keys(Pass& pass, size_t layer, const View& compressed_queries) const {
    const IndexerSpec& indexer = *spec_.indexer;
    const IndexerWeights& w = weights_.indexer;
    compute::Batch& batch = *pass.batch;
    const MutableView q = pass.scratch(kIndexQueries, indexer.heads * indexer.head_dim);
    const MutableView k = pass.scratch(kIndexKeys, indexer.head_dim), normed_k = pass.scratch(kNormedIndexKeys, indexer.head_dim);
    const MutableView weights = pass.scratch(kIndexWeights, indexer.heads);
    const View cosine = pass.cosine[index_rope_], sine = pass.sine[index_rope_];
    const uint32_t rotary = indexer.rope.rotary_dim;
    CHORUS_TRY(batch.linear({compressed_queries, w.wq_b.get(), nullptr, q, LinearStore::overwrite}));
    CHORUS_TRY(batch.rope({indexer.heads, indexer.head_dim, 0, rotary, indexer.rope.form, q, cosine, sine, q}));
    CHORUS_TRY(batch.linear({pass.normed, w.wk.get(), nullptr, k, LinearStore::overwrite}));
    CHORUS_TRY(batch.layer_norm({k, w.k_norm_weight.get(), w.k_norm_bias.get(), indexer.norm_epsilon, normed_k}));
    CHORUS_TRY(batch.linear({pass.normed, w.weights_proj.get(), nullptr, weights, LinearStore::overwrite}));
    for (size_t i = 0; i < pass.parts.size(); ++i) {
      const PassPart& part = pass.parts[i];
      CHORUS_TRY(batch.rope({1, indexer.head_dim, 0, rotary, indexer.rope.form, pass.part(normed_k, part), pass.part(cosine, part),
                             pass.part(sine, part), pass.new_rows(part, layer, kIndexRows, indexer.head_dim)}));
      const View keys = pass.seen_rows(part, layer, kIndexRows, indexer.head_dim);
      pass.selected[i] = nullptr;
      if (keys.rows <= indexer.top_k) continue;
      CHORUS_ASSIGN(compute::Buffer * selected, selection_buffer(pass, i, keys.rows));
      // The reference also divides the weights by the square root of the heads, which moves no rank.
      const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(indexer.head_dim) * indexer.heads));
      CHORUS_TRY(batch.select_keys({indexer.heads, indexer.head_dim, indexer.top_k, scale, pass.part(q, part), keys,
                                    pass.part(weights, part), selected, part.horizon}));
      pass.selected[i] = selected;
    }
    return {};
  }

  static Result<compute::Buffer*> selection_buffer(Pass& pass, size_t part, uint32_t keys) {
    std::vector<BufferPtr>& buffers = *pass.selection_buffers;
    if (buffers.size() <= part) buffers.resize(part + 1);
    const uint64_t bytes = 4ull * pass.part_rows * ((keys + 31) / 32);
    if (!buffers[part] || buffers[part]->bytes() < bytes) {
      CHORUS_ASSIGN(buffers[part], pass.backend->create_buffer(bytes + bytes / 2 / 4 * 4, "selected keys"));
    }
    return buffers[part].get();
  }

  LatentAttentionSpec spec_;
  LatentWeights weights_;
  size_t rope_, index_rope_ = 0;
};

// W_k^T of each head, and below it the identity that lets the rotated columns pass: [heads * (kv_rank + rope), nope + rope].
Result<WeightPtr> bind_key_half(WeightBinder& binder, const LatentAttentionSpec& spec) {
  const uint32_t rows = spec.kv_rank + spec.rope_dim, cols = spec.nope_dim + spec.rope_dim;
  const uint32_t head_rows = spec.nope_dim + spec.value_dim;  // of kv_b
  std::vector<float> block(static_cast<size_t>(spec.nope_dim) * spec.kv_rank);
  const auto source = [&](uint32_t first, uint32_t count, std::span<float> out) -> Status {
    std::fill(out.begin(), out.end(), 0.0f);
    uint32_t read_head = UINT32_MAX;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t head = (first + i) / rows, row = (first + i) % rows;
      const std::span<float> target = out.subspan(static_cast<size_t>(i) * cols, cols);
      if (row >= spec.kv_rank) {
        target[spec.nope_dim + row - spec.kv_rank] = 1;
        continue;
      }
      if (head != read_head)
        CHORUS_TRY(binder.read_rows(spec.kv_b, spec.heads * head_rows, spec.kv_rank, head * head_rows, spec.nope_dim, block));
      read_head = head;
      for (uint32_t k = 0; k < spec.nope_dim; ++k) target[k] = block[static_cast<size_t>(k) * spec.kv_rank + row];
    }
    return {};
  };
  return binder.derived(spec.kv_b + " (keys)", spec.heads * rows, cols, source);
}

// W_v of each head: [heads * value_dim, kv_rank].
Result<WeightPtr> bind_value_half(WeightBinder& binder, const LatentAttentionSpec& spec) {
  const uint32_t head_rows = spec.nope_dim + spec.value_dim;
  const auto source = [&](uint32_t first, uint32_t count, std::span<float> out) -> Status {
    for (uint32_t done = 0; done < count;) {
      const uint32_t head = (first + done) / spec.value_dim, row = (first + done) % spec.value_dim;
      const uint32_t piece = std::min(count - done, spec.value_dim - row);
      CHORUS_TRY(binder.read_rows(spec.kv_b, spec.heads * head_rows, spec.kv_rank, head * head_rows + spec.nope_dim + row, piece,
                                  out.subspan(static_cast<size_t>(done) * spec.kv_rank, static_cast<size_t>(piece) * spec.kv_rank)));
      done += piece;
    }
    return {};
  };
  return binder.derived(spec.kv_b + " (values)", spec.heads * spec.value_dim, spec.kv_rank, source);
}

Result<IndexerWeights> bind_indexer(WeightBinder& binder, const IndexerSpec& spec, uint32_t q_rank, uint32_t hidden) {
  IndexerWeights weights;
  CHORUS_ASSIGN(weights.wq_b, binder.matrix(spec.wq_b, spec.heads * spec.head_dim, q_rank));
  CHORUS_ASSIGN(weights.wk, binder.matrix(spec.wk, spec.head_dim, hidden));
  CHORUS_ASSIGN(weights.weights_proj, binder.matrix(spec.weights_proj, spec.heads, hidden));
  CHORUS_ASSIGN(weights.k_norm_weight, binder.vector(spec.k_norm_weight, spec.head_dim));
  CHORUS_ASSIGN(weights.k_norm_bias, binder.vector(spec.k_norm_bias, spec.head_dim));
  return weights;
}

}  // namespace

Result<MixerPtr> bind_latent_attention(WeightBinder& binder, const LatentAttentionSpec& spec, const Trunk& trunk) {
  const uint32_t queries = spec.heads * (spec.nope_dim + spec.rope_dim), compressed = spec.kv_rank + spec.rope_dim;
  LatentWeights weights;
  if (spec.q_rank > 0) {
    CHORUS_ASSIGN(weights.q_a, binder.matrix(spec.q_a.weight, spec.q_rank, trunk.hidden));
    CHORUS_ASSIGN(weights.q_a_bias, binder.optional_vector(spec.q_a.bias, spec.q_rank));
    CHORUS_ASSIGN(weights.q_a_norm, binder.vector(spec.q_a_norm, spec.q_rank));
  }
  CHORUS_ASSIGN(weights.q_b, binder.matrix(spec.q_b.weight, queries, spec.q_rank > 0 ? spec.q_rank : trunk.hidden));
  CHORUS_ASSIGN(weights.q_b_bias, binder.optional_vector(spec.q_b.bias, queries));
  CHORUS_ASSIGN(weights.kv_a, binder.matrix(spec.kv_a.weight, compressed, trunk.hidden));
  CHORUS_ASSIGN(weights.kv_a_bias, binder.optional_vector(spec.kv_a.bias, compressed));
  CHORUS_ASSIGN(weights.kv_a_norm, binder.vector(spec.kv_a_norm, spec.kv_rank));
  CHORUS_ASSIGN(weights.key_half, bind_key_half(binder, spec));
  CHORUS_ASSIGN(weights.value_half, bind_value_half(binder, spec));
  CHORUS_ASSIGN(weights.o, binder.matrix(spec.o.weight, trunk.hidden, spec.heads * spec.value_dim));
  CHORUS_ASSIGN(weights.o_bias, binder.optional_vector(spec.o.bias, trunk.hidden));
  if (spec.indexer && !spec.indexer->shared) {
    CHORUS_ASSIGN(weights.indexer, bind_indexer(binder, *spec.indexer, spec.q_rank, trunk.hidden));
  }
  return MixerPtr(std::make_unique<LatentAttention>(spec, std::move(weights), *trunk.ropes));
}

}  // namespace chorus::models::layers
