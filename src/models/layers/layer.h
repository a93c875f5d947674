// What a language model's layers are made of: a mixer that lets rows of a sequence see each other, and a feed-forward that does not.
// Each kind is one file of this folder; they know sizes and weights, no family and no tensor's fate outside their layer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"
#include "models/blueprint.h"
#include "models/expert_executor.h"
#include "models/layers/views.h"
#include "models/layers/weight_binder.h"

namespace chorus::models::layers {

using compute::MutableView;
using compute::View;

// Scratch buffers of a pass, as wide as the widest layer needs each. An operation must not read and write one buffer, so a layer
// spreads its intermediate results over them.
inline constexpr size_t kScratchCount = 6;
using ScratchColumns = std::array<uint64_t, kScratchCount>;  // f32 columns a row

// What a layer keeps of a sequence, in f32 elements.
struct StateShape {
  std::vector<uint64_t> row_elements;      // of buffers with a row for each token
  std::vector<uint64_t> carried_elements;  // of buffers that every pass reads and replaces
};

struct LayerState {
  std::vector<BufferPtr> rows;
  std::vector<std::array<BufferPtr, 2>> carried;  // [current] is live, the other receives the next
};

// The rows of one sequence in a pass.
struct PassPart {
  uint32_t start = 0;     // first row
  uint32_t position = 0;  // tokens of the sequence before them
  uint32_t current = 0;   // which of the carried buffers is live
  uint32_t horizon = 0;   // tokens of the sequence as far as they are known
  std::span<const LayerState> layers;
};

struct Pass {
  compute::Backend* backend = nullptr;
  compute::Batch* batch = nullptr;
  uint32_t rows = 0;
  uint32_t part_rows = 0;  // of every part: one part with all rows, or parts of one row
  std::vector<PassPart> parts;
  compute::Sequences part_sequence;  // one sequence of part_rows rows
  MutableView x;                     // the residual stream
  MutableView normed;                // and where its norms go
  std::array<compute::Buffer*, kScratchCount> scratch_buffers{};
  std::vector<View> cosine, sine;  // of each rope table: [rows, rotary_dim / 2]

  // Routes of a layer with experts.
  compute::Buffer* route_experts = nullptr;
  compute::Buffer* route_weights = nullptr;
  compute::Buffer* routed = nullptr;
  ExpertExecutor* experts = nullptr;

  // The last choice of keys, of each part; null: all keys.
  std::vector<const compute::Buffer*> selected;
  std::vector<BufferPtr>* selection_buffers = nullptr;  // grown as needed, kept between passes

  // Rows start at multiples of four elements, whatever their width.
  MutableView scratch(size_t index, uint32_t cols) const { return {scratch_buffers[index], 0, rows, cols, padded_columns(cols)}; }
  // This part's rows of a matrix of the pass's rows.
  View part(const View& whole, const PassPart& p) const { return rows_of(whole, p.start, part_rows); }
  MutableView part(const MutableView& whole, const PassPart& p) const { return rows_of(whole, p.start, part_rows); }
  // The rows of a state's buffer that this pass fills, and all up to and with them.
  MutableView new_rows(const PassPart& p, size_t layer, size_t buffer, uint32_t cols) const {
    return view_of(p.layers[layer].rows[buffer].get(), part_rows, cols, uint64_t{p.position} * cols);
  }
  View seen_rows(const PassPart& p, size_t layer, size_t buffer, uint32_t cols) const {
    return view_of(p.layers[layer].rows[buffer].get(), p.position + part_rows, cols);
  }
};

// The distinct rotary embeddings of a model; layers name theirs by index.
class RopeTables {
 public:
  size_t add(const RopeSpec& rope);
  size_t count() const { return tables_.size(); }
  uint32_t half(size_t index) const { return static_cast<uint32_t>(tables_[index].inverse_frequencies.size()); }
  // cosine and sine: half(index) numbers each.
  void fill(size_t index, uint32_t position, std::span<float> cosine, std::span<float> sine) const;

 private:
  std::vector<RopeSpec> tables_;
};

// What layers take from the model they belong to.
struct Trunk {
  uint32_t hidden = 0;
  float epsilon = 1e-6f;
  compute::NormWeight norm_form = compute::NormWeight::plain;
  RopeTables* ropes = nullptr;
};

class Mixer {
 public:
  virtual ~Mixer() = default;
  virtual StateShape state_shape() const = 0;
  virtual ScratchColumns scratch_columns() const = 0;
  // Reads pass.x by way of `norm`, which leaves pass.normed, adds its result to pass.x, continues the states of the pass's parts.
  virtual Status run(Pass& pass, size_t layer, const compute::RowNorm& norm) const = 0;
};

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  virtual ScratchColumns scratch_columns() const = 0;
  virtual uint32_t routes() const { return 0; }         // per row
  virtual uint32_t expert_inner() const { return 0; }   // inner size of routed experts
  virtual WeightPtr router() const { return nullptr; }  // a matrix of its own: [experts, hidden]
  // Reads x by way of `norm`, which leaves norm.out, adds its result to x. x may have fewer rows than the pass.
  virtual Status run(Pass& pass, size_t layer, const MutableView& x, const compute::RowNorm& norm) const = 0;
};

using MixerPtr = std::unique_ptr<Mixer>;
using FeedForwardPtr = std::unique_ptr<FeedForward>;

Result<MixerPtr> bind_attention(WeightBinder& binder, const AttentionSpec& spec, const Trunk& trunk);
Result<MixerPtr> bind_gated_attention(WeightBinder& binder, const AttentionSpec& spec, const Trunk& trunk);
Result<MixerPtr> bind_latent_attention(WeightBinder& binder, const LatentAttentionSpec& spec, const Trunk& trunk);
Result<MixerPtr> bind_delta(WeightBinder& binder, const DeltaSpec& spec, const Trunk& trunk);
Result<FeedForwardPtr> bind_dense(WeightBinder& binder, const DenseSpec& spec, const Trunk& trunk);
Result<FeedForwardPtr> bind_moe(WeightBinder& binder, const MoeSpec& spec, const Trunk& trunk);

}  // namespace chorus::models::layers
