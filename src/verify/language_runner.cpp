#include "verify/language_runner.h"

#include <numeric>

namespace chorus::verify {

namespace {

class FamilyRunner final : public LanguageRunner {
 public:
  explicit FamilyRunner(models::LanguageModel& model) : model_(model) {}
  uint32_t vocabulary() const override { return model_.blueprint().vocabulary; }
  uint32_t hidden() const override { return model_.blueprint().hidden; }
  bool selects_keys() const override {
    for (const models::LayerSpec& layer : model_.blueprint().layers) {
      const auto* latent = std::get_if<models::LatentAttentionSpec>(&layer.mixer);
      if (latent && latent->indexer) return true;
    }
    return false;
  }

  Result<std::vector<float>> start(std::span<const uint32_t> tokens, uint32_t rows, uint32_t capacity) override {
    CHORUS_ASSIGN(sequence_, model_.new_sequence(capacity));
    return forward(tokens, rows);
  }
  Result<std::vector<float>> next(uint32_t token) override { return forward(std::span(&token, 1), 1); }
  Result<std::vector<std::vector<float>>> hidden_states(std::span<const uint32_t> tokens) override { return model_.hidden_states(tokens); }

 private:
  Result<std::vector<float>> forward(std::span<const uint32_t> tokens, uint32_t rows) {
    const models::SequenceStep step{sequence_.get(), tokens};
    const auto outputs = rows == 1 ? models::OutputRows::last : models::OutputRows::all;
    CHORUS_ASSIGN(const models::Logits logits, model_.forward(std::span(&step, 1), outputs));
    CHORUS_CHECK(logits.rows >= rows);
    std::vector<float> values(static_cast<size_t>(rows) * vocabulary());
    const uint64_t skipped = 4ull * (logits.rows - rows) * vocabulary();
    CHORUS_TRY(model_.backend().read(*logits.buffer, skipped, std::as_writable_bytes(std::span(values))));
    return values;
  }

  models::LanguageModel& model_;
  std::unique_ptr<models::Sequence> sequence_;
};

class BackboneRunner final : public LanguageRunner {
 public:
  explicit BackboneRunner(const models::Qwen35& model) : model_(model) {}
  uint32_t vocabulary() const override { return model_.config().vocab_size; }
  uint32_t hidden() const override { return model_.config().hidden_size; }

  Result<std::vector<float>> start(std::span<const uint32_t> tokens, uint32_t rows, uint32_t capacity) override {
    CHORUS_ASSIGN(state_, model_.new_state(capacity));
    return forward(tokens, rows);
  }
  Result<std::vector<float>> next(uint32_t token) override { return forward(std::span(&token, 1), 1); }
  Result<std::vector<std::vector<float>>> hidden_states(std::span<const uint32_t> tokens) override { return model_.hidden_states(tokens); }

 private:
  Result<std::vector<float>> forward(std::span<const uint32_t> tokens, uint32_t rows) {
    std::vector<uint32_t> outputs(rows);
    std::iota(outputs.begin(), outputs.end(), static_cast<uint32_t>(tokens.size()) - rows);
    CHORUS_ASSIGN(const models::BufferPtr hidden, model_.advance(*state_, tokens, outputs));
    return model_.logits(*hidden, rows);
  }

  const models::Qwen35& model_;
  std::unique_ptr<models::SequenceState> state_;
};

}  // namespace

std::unique_ptr<LanguageRunner> make_runner(models::LanguageModel& model) { return std::make_unique<FamilyRunner>(model); }
std::unique_ptr<LanguageRunner> make_runner(const models::Qwen35& model) { return std::make_unique<BackboneRunner>(model); }

}  // namespace chorus::verify
