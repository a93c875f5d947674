#include "models/blueprint_tensors.h"

namespace chorus::models {

namespace {

constexpr std::string_view kExpertMark = "{E}";

class Collector {
 public:
  explicit Collector(const Blueprint& blueprint) : hidden_(blueprint.hidden) {}
  std::vector<NamedShape> take() { return std::move(tensors_); }

  void add(const std::string& name, std::vector<uint64_t> shape) {
    if (!name.empty()) tensors_.push_back({name, std::move(shape)});
  }
  void linear(const LinearSpec& spec, uint64_t rows, uint64_t cols) {
    add(spec.weight, {rows, cols});
    add(spec.bias, {rows});
  }

  void mixer(const AttentionSpec& a) {
    const uint64_t queries = uint64_t{a.query_heads} * a.head_dim, keys = uint64_t{a.kv_heads} * a.head_dim;
    const bool per_head = a.norm == AttentionSpec::QueryKeyNorm::per_head;
    linear(a.q, a.output_gate ? 2 * queries : queries, hidden_);
    linear(a.k, keys, hidden_);
    linear(a.v, keys, hidden_);
    linear(a.o, hidden_, queries);
    add(a.q_norm, {per_head ? a.head_dim : queries});
    add(a.k_norm, {per_head ? a.head_dim : keys});
    add(a.sinks, {a.query_heads});
  }

  void mixer(const LatentAttentionSpec& a) {
    const uint64_t query_dim = uint64_t{a.nope_dim} + a.rope_dim;
    linear(a.q_a, a.q_rank, hidden_);
    add(a.q_a_norm, {a.q_rank});
    linear(a.q_b, a.heads * query_dim, a.q_rank > 0 ? a.q_rank : hidden_);
    linear(a.kv_a, uint64_t{a.kv_rank} + a.rope_dim, hidden_);
    add(a.kv_a_norm, {a.kv_rank});
    add(a.kv_b, {a.heads * (uint64_t{a.nope_dim} + a.value_dim), a.kv_rank});
    linear(a.o, hidden_, uint64_t{a.heads} * a.value_dim);
    if (!a.indexer || a.indexer->shared) return;
    const IndexerSpec& i = *a.indexer;
    add(i.wq_b, {uint64_t{i.heads} * i.head_dim, a.q_rank});
    add(i.wk, {i.head_dim, hidden_});
    add(i.k_norm_weight, {i.head_dim});
    add(i.k_norm_bias, {i.head_dim});
    add(i.weights_proj, {i.heads, hidden_});
  }

  void mixer(const DeltaSpec& d) {
    const uint64_t keys = uint64_t{d.shape.key_heads} * d.shape.key_dim, values = uint64_t{d.shape.value_heads} * d.shape.value_dim;
    add(d.in_qkv, {2 * keys + values, hidden_});
    add(d.in_z, {values, hidden_});
    add(d.in_b, {d.shape.value_heads, hidden_});
    add(d.in_a, {d.shape.value_heads, hidden_});
    add(d.conv, {2 * keys + values, 1, 4});
    add(d.a_log, {d.shape.value_heads});
    add(d.dt_bias, {d.shape.value_heads});
    add(d.norm, {d.shape.value_dim});
    add(d.out, {hidden_, values});
  }

  void feed_forward(const DenseSpec& d) {
    add(d.gate, {d.inner, hidden_});
    add(d.up, {d.inner, hidden_});
    add(d.down, {hidden_, d.inner});
  }

  void feed_forward(const MoeSpec& m) {
    linear(m.router, m.experts, hidden_);
    add(m.correction_bias, {m.experts});
    feed_forward(m.shared);
    add(m.shared_gate, {1, hidden_});
  }

 private:
  uint64_t hidden_;
  std::vector<NamedShape> tensors_;
};

}  // namespace

std::vector<NamedShape> resident_tensors(const Blueprint& blueprint) {
  Collector collector(blueprint);
  collector.add(blueprint.embedding, {blueprint.vocabulary, blueprint.hidden});
  if (blueprint.language_head != blueprint.embedding) collector.add(blueprint.language_head, {blueprint.vocabulary, blueprint.hidden});
  collector.add(blueprint.final_norm, {blueprint.hidden});
  for (const LayerSpec& layer : blueprint.layers) {
    collector.add(layer.input_norm, {blueprint.hidden});
    collector.add(layer.post_norm, {blueprint.hidden});
    std::visit([&](const auto& spec) { collector.mixer(spec); }, layer.mixer);
    std::visit([&](const auto& spec) { collector.feed_forward(spec); }, layer.feed_forward);
  }
  return collector.take();
}

std::string expert_tensor_name(const std::string& pattern, uint32_t expert) {
  const size_t at = pattern.find(kExpertMark);
  if (at == std::string::npos) return pattern;
  return pattern.substr(0, at) + std::to_string(expert) + pattern.substr(at + kExpertMark.size());
}

std::vector<std::string> expert_tensors(const MoeSpec& moe) {
  const ExpertTensors& t = moe.tensors;
  std::vector<std::string> names;
  if (t.form == ExpertTensors::Form::separate) {
    for (uint32_t expert = 0; expert < moe.experts; ++expert) {
      for (const std::string* pattern : {&t.gate, &t.up, &t.down}) names.push_back(expert_tensor_name(*pattern, expert));
    }
    return names;
  }
  for (const std::string* name : {&t.gate_up, &t.down}) {
    if (t.form == ExpertTensors::Form::mxfp4) {
      names.push_back(*name + "_blocks");
      names.push_back(*name + "_scales");
    } else {
      names.push_back(*name);
    }
  }
  for (const std::string* name : {&t.gate_up_bias, &t.down_bias}) {
    if (!name->empty()) names.push_back(*name);
  }
  return names;
}

}  // namespace chorus::models
