// A causal language model of any supported family on one backend: token rows in, next-token logits out.
// Owns: the forward pass over a Blueprint, sequence state, the workspace. Must not know: devices, files, text, a family's name.
// One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"
#include "formats/checkpoint.h"
#include "models/blueprint.h"
#include "models/expert_executor.h"

namespace chorus::models {

// What one sequence has left behind in every layer: keys and values, compressed keys, or recurrent state and convolution history.
// Belongs to the model that made it.
class Sequence {
 public:
  virtual ~Sequence() = default;
  virtual uint32_t length() const = 0;    // tokens read
  virtual uint32_t capacity() const = 0;  // tokens it has room for
};

// Tokens that continue a sequence.
struct SequenceStep {
  Sequence* sequence = nullptr;
  std::span<const uint32_t> tokens;  // at least one
  // Tokens of the same text that later steps will bring, where that is known. The reference reads whole prompts, and how long they are
  // decides which of equally good keys sparse attention takes; nothing else depends on it.
  uint32_t following = 0;
};

enum class OutputRows { last, all };

// Logits on the device, one row per output, in the order of steps and tokens: f32 [rows, vocabulary].
struct Logits {
  std::shared_ptr<compute::Buffer> buffer;
  uint32_t rows = 0;
};

struct LanguageModelOptions {
  DType dtype = DType::f32;                     // of matrices; vectors are f32 always
  uint64_t workspace_bytes_max = 170ull << 20;  // bounds the rows of one pass
  uint32_t rows_max = 2048;                     // rows of one pass, at most
  std::function<void(uint64_t done, uint64_t total)> progress;
};

class LanguageModel {
 public:
  // `experts` must outlive the model; null for models without routed experts.
  static Result<std::unique_ptr<LanguageModel>> load(compute::Backend& backend, const Blueprint& blueprint,
                                                     const formats::WeightSource& weights, ExpertExecutor* experts,
                                                     const LanguageModelOptions& options);
  virtual ~LanguageModel() = default;

  virtual const Blueprint& blueprint() const = 0;
  virtual compute::Backend& backend() const = 0;
  virtual uint32_t pass_rows_max() const = 0;

  // An empty sequence with room for `capacity` tokens. Errors: out_of_memory, limit_exceeded (over the model's context).
  virtual Result<std::unique_ptr<Sequence>> new_sequence(uint32_t capacity) const = 0;
  // A private copy with room for `capacity` >= length tokens: the snapshot from which a sequence branches or is rolled back.
  virtual Result<std::unique_ptr<Sequence>> clone(const Sequence& sequence, uint32_t capacity) const = 0;
  // Device bytes of a sequence, without making one.
  virtual uint64_t sequence_bytes(uint32_t capacity) const = 0;

  // Reads every step's tokens into its sequence (each sequence at most once) and returns logits: of the last token of each step, or of all
  // tokens. Long steps are split into passes. A sequence's results do not depend on the other steps of a call of one-token steps.
  // Errors: limit_exceeded (no room, token id outside the vocabulary), out_of_memory, device_lost, those of the experts. After an error the
  // sequences of the call are unusable.
  virtual Result<Logits> forward(std::span<const SequenceStep> steps, OutputRows outputs) = 0;

  // For references: hidden states after the embedding, each layer, and the final norm, of every token: [tokens, hidden] each.
  virtual Result<std::vector<std::vector<float>>> hidden_states(std::span<const uint32_t> tokens) = 0;
};

}  // namespace chorus::models
