// What verification needs of a language model, whichever class runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "models/language_model.h"
#include "models/qwen35.h"

namespace chorus::verify {

class LanguageRunner {
 public:
  virtual ~LanguageRunner() = default;
  virtual uint32_t vocabulary() const = 0;
  virtual uint32_t hidden() const = 0;
  virtual bool selects_keys() const { return false; }  // sparse attention
  // Starts a sequence with room for `capacity` tokens. Logits of the last `rows` of the tokens: [rows, vocabulary].
  virtual Result<std::vector<float>> start(std::span<const uint32_t> tokens, uint32_t rows, uint32_t capacity) = 0;
  // Continues it. [vocabulary]
  virtual Result<std::vector<float>> next(uint32_t token) = 0;
  // After the embedding, each layer, and the final norm: [tokens, hidden] each.
  virtual Result<std::vector<std::vector<float>>> hidden_states(std::span<const uint32_t> tokens) = 0;
};

// The model must outlive the runner.
std::unique_ptr<LanguageRunner> make_runner(models::LanguageModel& model);
std::unique_ptr<LanguageRunner> make_runner(const models::Qwen35& model);

}  // namespace chorus::verify
