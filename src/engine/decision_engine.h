// A loaded decision model on one backend: token rows in, logits and probabilities out.
// Owns: backbone, pointer head on the device, snapshots, the split of questions into passes, the memory plan.
// Must not know: text, JSON, answers. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "compute/backend.h"
#include "formats/checkpoint.h"
#include "models/qwen35.h"

namespace chorus::engine {

// Device bytes, by purpose.
struct MemoryPlan {
  uint64_t weights = 0;
  uint64_t workspace = 0;  // activations of one pass and room for the delta rule; scratch of other kernels comes on top
  uint64_t snapshot = 0;   // one prefix of `snapshot_tokens`
  uint32_t snapshot_tokens = 0;
  uint64_t largest_buffer = 0;
  uint64_t total() const { return weights + workspace + snapshot; }
  std::string to_line() const;
};

// Outside of these a temperature is a mistake, and logits over it would leave f32.
inline constexpr double kTemperatureMin = 1e-6;
inline constexpr double kTemperatureMax = 1e6;

struct EngineOptions {
  DType dtype = DType::f32;
  uint32_t plan_tokens = 2048;    // prefix length the memory plan counts with
  uint64_t memory_bytes_max = 0;  // refuse a plan above this; 0: only the backend's own limits
  uint64_t workspace_bytes_max = 170ull << 20;
  uint32_t rows_max = 2048;  // rows of one pass, at most
  double temperature = 0;    // 0: the checkpoint's
  models::LoadProgress progress;
  LogSink log;
};

// What a loaded checkpoint would take, without loading it.
MemoryPlan plan_memory(const formats::TextConfig& config, const compute::Backend& backend, const EngineOptions& options);

// Names of the operations that reading and, with a head, answering run; as Backend::variants takes them.
std::vector<std::string_view> operations_of(const formats::TextConfig& config, bool with_head);

// A text read once: an immutable snapshot of every layer. Belongs to the engine that made it; several may live at once.
class Prefix {
 public:
  uint32_t tokens() const { return state_->length(); }
  const models::SequenceState& state() const { return *state_; }

 private:
  friend class DecisionEngine;
  explicit Prefix(std::shared_ptr<const models::SequenceState> state) : state_(std::move(state)) {}
  std::shared_ptr<const models::SequenceState> state_;
};

// One question as tokens that continue a prefix.
struct BranchQuery {
  std::vector<uint32_t> tokens;
  std::vector<uint32_t> option_ends;  // indices into tokens, ascending
  uint32_t decide = 0;                // index into tokens, after the last option end
};

struct BranchScores {
  std::vector<float> logits;         // one per option, already divided by the temperature
  std::vector<float> probabilities;  // softmax of the logits, f32
};

// Which branches go through one pass: `count` branches from `first`; `tokens` rows in all. Pure.
struct BranchPass {
  size_t first = 0;
  size_t count = 0;
  uint64_t tokens = 0;
};
// Fills passes in order up to `rows_max` rows. A branch longer than that gets a pass of its own (it is then read in pieces).
std::vector<BranchPass> plan_branch_passes(std::span<const uint32_t> branch_tokens, uint32_t rows_max);

class DecisionEngine {
 public:
  // Errors: unsupported (no head), out_of_memory (the plan does not fit), and those of reading the weights.
  static Result<std::unique_ptr<DecisionEngine>> load(compute::Backend& backend, const formats::Checkpoint& checkpoint,
                                                      const EngineOptions& options);
  // The same from parts, for models that have no files (benchmarks).
  static Result<std::unique_ptr<DecisionEngine>> load(compute::Backend& backend, const formats::TextConfig& config,
                                                      const formats::WeightSource& weights, const formats::PointerHead& head,
                                                      double temperature, const EngineOptions& options);

  // Reads a state (delimiter included). Errors: out_of_memory, device_lost, limit_exceeded (over the model's positions).
  Result<Prefix> prefill(std::span<const uint32_t> tokens) const;
  // Answers any number of questions from one snapshot; never writes it.
  Result<std::vector<BranchScores>> evaluate(const Prefix& prefix, std::span<const BranchQuery> branches) const;
  // Waits until the device has finished everything submitted.
  Status finish() const;

  double temperature() const { return temperature_; }
  const MemoryPlan& memory_plan() const { return plan_; }
  const models::Qwen35& model() const { return *model_; }

 private:
  DecisionEngine() = default;
  Status bind_head(const formats::PointerHead& head);
  Result<models::BufferPtr> read_branches(const Prefix& prefix, std::span<const BranchQuery> branches) const;
  Status score(const compute::Buffer& hidden, std::span<const BranchQuery> branches, std::vector<BranchScores>& out) const;

  std::unique_ptr<models::Qwen35> model_;
  models::WeightPtr query_weight_, key_weight_;
  models::BufferPtr query_bias_, key_bias_;
  uint32_t head_dim_ = 0;
  double temperature_ = 1;
  MemoryPlan plan_;
};

}  // namespace chorus::engine
