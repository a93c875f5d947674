// A backend and a language model for tests of this folder, without weights: logits are a function of every token read so far, so that a
// sequence that was mixed up, read twice or not rebuilt shows at once. Fails where a test says so.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "generation/sampling.h"
#include "models/language_model.h"

namespace chorus::generation::testing {

class ToyBuffer final : public compute::Buffer {
 public:
  explicit ToyBuffer(uint64_t bytes) : Buffer(bytes), data(bytes) {}
  std::vector<std::byte> data;

  template <typename T>
  static T* of(const compute::Buffer* buffer) {
    return reinterpret_cast<T*>(const_cast<ToyBuffer*>(static_cast<const ToyBuffer*>(buffer))->data.data());
  }
};

class ToyBatch final : public compute::Batch {
 public:
  Status embed(const compute::EmbedArgs&) override { return absent(); }
  Status linear(const compute::LinearArgs&) override { return absent(); }
  Status rms_norm(const compute::RmsNormArgs&) override { return absent(); }
  Status gated_rms_norm(const compute::GatedRmsNormArgs&) override { return absent(); }
  Status swiglu(const compute::SwigluArgs&) override { return absent(); }
  Status causal_conv(const compute::CausalConvArgs&) override { return absent(); }
  Status gated_delta(const compute::GatedDeltaArgs&) override { return absent(); }
  Status qk_norm_rope(const compute::QkNormRopeArgs&) override { return absent(); }
  Status attention(const compute::AttentionArgs&) override { return absent(); }
  Status gather_rows(const compute::GatherRowsArgs&) override { return absent(); }
  Status pointer_scores(const compute::PointerScoresArgs&) override { return absent(); }
  Status segment_softmax(const compute::SegmentSoftmaxArgs&) override { return absent(); }
  Status copy(const compute::CopyArgs&) override { return absent(); }
  Status argmax(const compute::ArgmaxArgs& args) override {
    for (uint32_t r = 0; r < args.x.rows; ++r) {
      SamplingOptions greedy;
      ToyBuffer::of<uint32_t>(args.indices)[r] = choose(args.x, r, greedy, 0);
    }
    return {};
  }
  Status sample(const compute::SampleArgs& args) override {
    for (uint32_t r = 0; r < args.logits.rows; ++r) {
      const auto row = ToyBuffer::of<compute::SampleRow>(args.rows)[r];
      SamplingOptions options;
      options.temperature = row.temperature;
      options.top_k = row.top_k;
      options.top_p = row.top_p;
      options.min_p = row.min_p;
      options.seed = row.seed_low | uint64_t{row.seed_high} << 32;
      ToyBuffer::of<uint32_t>(args.indices)[r] = choose(args.logits, r, options, row.step);
    }
    return {};
  }
  Status submit() override { return {}; }

 private:
  static Error absent() { return make_error(ErrorCode::unsupported, "the toy backend has no such operation"); }
  static uint32_t choose(const compute::View& view, uint32_t row, const SamplingOptions& options, uint32_t step) {
    const float* first = ToyBuffer::of<float>(view.buffer) + view.offset + uint64_t{row} * view.stride;
    std::vector<float> values(first, first + view.cols);
    const auto choice = choose_on_host(values, options, step, {});
    return choice.ok() ? choice->token : 0xffffffffu;
  }
};

class ToyBackend final : public compute::Backend {
 public:
  const compute::BackendInfo& info() const override { return info_; }
  Result<std::shared_ptr<compute::Buffer>> create_buffer(uint64_t bytes, std::string_view) override {
    return std::shared_ptr<compute::Buffer>(std::make_shared<ToyBuffer>(bytes));
  }
  Status write(compute::Buffer& buffer, uint64_t offset, std::span<const std::byte> data) override {
    std::memcpy(static_cast<ToyBuffer&>(buffer).data.data() + offset, data.data(), data.size());
    return {};
  }
  Status read(const compute::Buffer& buffer, uint64_t offset, std::span<std::byte> data) override {
    std::memcpy(data.data(), static_cast<const ToyBuffer&>(buffer).data.data() + offset, data.size());
    return {};
  }
  Result<std::shared_ptr<compute::Weight>> create_weight(std::string_view, uint32_t, uint32_t, DType, const compute::RowSource&) override {
    return make_error(ErrorCode::unsupported, "the toy backend has no weights");
  }
  Result<std::unique_ptr<compute::Batch>> begin_batch() override { return std::unique_ptr<compute::Batch>(std::make_unique<ToyBatch>()); }
  uint64_t weight_bytes(uint32_t, uint32_t, DType) const override { return 0; }
  uint64_t bytes_in_use() const override { return 0; }
  uint64_t bytes_peak() const override { return 0; }
  std::vector<compute::Fallback> fallbacks() const override { return {}; }
  std::vector<std::string> variants(std::string_view) const override { return {}; }
  Status force_variant(std::string_view, std::string_view) override { return {}; }
  Result<compute::DevicePeak> measure_peak() override { return compute::DevicePeak{}; }
  Result<std::vector<compute::KernelTime>> take_kernel_times() override { return std::vector<compute::KernelTime>(); }

 private:
  compute::BackendInfo info_{"toy", "toy", "", true, 1u << 30, 1u << 30};
};

class ToySequence final : public models::Sequence {
 public:
  explicit ToySequence(uint32_t room, std::shared_ptr<uint32_t> live = {}) : room_(room), live_(std::move(live)) {
    if (live_) ++*live_;
  }
  ~ToySequence() override {
    if (live_) --*live_;
  }
  ToySequence(const ToySequence&) = delete;
  uint32_t length() const override { return length_; }
  uint32_t capacity() const override { return room_; }

  uint32_t room_, length_ = 0;
  std::shared_ptr<uint32_t> live_;  // how many there are
  uint64_t state_ = 1;
  bool broken_ = false;
};

class ToyModel final : public models::LanguageModel {
 public:
  ToyModel(uint32_t vocabulary, uint32_t context) {
    blueprint_.vocabulary = vocabulary;
    blueprint_.context = context;
  }

  // What the test plans. `fails` is asked about every token read: an error fails the whole call.
  std::function<std::optional<Error>(uint32_t token, uint32_t position)> fails;
  std::function<bool(uint32_t token)> makes_nan;
  uint32_t sequences_max = UINT32_MAX;  // that may exist at once

  // What the model saw.
  uint32_t calls = 0, widest_call = 0, longest_step = 0;
  uint32_t live_sequences() const { return *live_; }

  const models::Blueprint& blueprint() const override { return blueprint_; }
  compute::Backend& backend() const override { return backend_; }
  uint32_t pass_rows_max() const override { return 64; }

  Result<std::unique_ptr<models::Sequence>> new_sequence(uint32_t capacity) const override {
    if (capacity > blueprint_.context) return make_error(ErrorCode::limit_exceeded, "toy: over the context");
    if (*live_ >= sequences_max) return make_error(ErrorCode::out_of_memory, "toy: no memory for a sequence");
    return std::unique_ptr<models::Sequence>(std::make_unique<ToySequence>(capacity, live_));
  }
  Result<std::unique_ptr<models::Sequence>> clone(const models::Sequence& sequence, uint32_t capacity) const override {
    const auto& from = static_cast<const ToySequence&>(sequence);
    if (from.broken_) return make_error(ErrorCode::internal, "toy: clone of an unusable sequence");
    if (capacity < from.length_) return make_error(ErrorCode::internal, "toy: a clone without room");
    if (*live_ >= sequences_max) return make_error(ErrorCode::out_of_memory, "toy: no memory for a sequence");
    auto made = std::make_unique<ToySequence>(capacity, live_);
    made->length_ = from.length_;
    made->state_ = from.state_;
    return std::unique_ptr<models::Sequence>(std::move(made));
  }
  uint64_t sequence_bytes(uint32_t capacity) const override { return 100 + capacity; }

  Result<models::Logits> forward(std::span<const models::SequenceStep> steps, models::OutputRows outputs) override {
    ++calls;
    widest_call = std::max(widest_call, static_cast<uint32_t>(steps.size()));
    std::vector<std::vector<float>> rows;
    std::optional<Error> failure;
    for (const models::SequenceStep& step : steps) {
      auto& sequence = static_cast<ToySequence&>(*step.sequence);
      if (sequence.broken_) return make_error(ErrorCode::internal, "toy: an unusable sequence was used");
      if (step.tokens.empty() || sequence.length_ + step.tokens.size() > sequence.room_)
        return make_error(ErrorCode::internal, "toy: no room");
      longest_step = std::max(longest_step, static_cast<uint32_t>(step.tokens.size()));
      for (size_t i = 0; i < step.tokens.size(); ++i) {
        if (fails && !failure) failure = fails(step.tokens[i], sequence.length_);
        sequence.state_ = mix(sequence.state_ * 31 + step.tokens[i]);
        ++sequence.length_;
        if (outputs == models::OutputRows::all || i + 1 == step.tokens.size()) rows.push_back(row_of(sequence, step.tokens[i]));
      }
    }
    if (failure) {
      for (const models::SequenceStep& step : steps) static_cast<ToySequence&>(*step.sequence).broken_ = true;
      return *failure;
    }
    models::Logits logits;
    logits.rows = static_cast<uint32_t>(rows.size());
    CHORUS_ASSIGN(logits.buffer, backend_.create_buffer(uint64_t{4} * blueprint_.vocabulary * rows.size(), "logits"));
    for (size_t i = 0; i < rows.size(); ++i) {
      CHORUS_TRY(backend_.write(*logits.buffer, uint64_t{4} * blueprint_.vocabulary * i, std::as_bytes(std::span<const float>(rows[i]))));
    }
    return logits;
  }
  Result<std::vector<std::vector<float>>> hidden_states(std::span<const uint32_t>) override { return std::vector<std::vector<float>>(); }

  // The logits after a list of tokens.
  std::vector<float> logits_after(std::span<const uint32_t> tokens) const {
    ToySequence sequence(UINT32_MAX);
    for (const uint32_t token : tokens) sequence.state_ = mix(sequence.state_ * 31 + token);
    return row_of(sequence, tokens.back());
  }

 private:
  static uint64_t mix(uint64_t value) {  // splitmix64
    value += 0x9e3779b97f4a7c15ull;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
    return value ^ (value >> 31);
  }
  std::vector<float> row_of(const ToySequence& sequence, uint32_t token) const {
    std::vector<float> row(blueprint_.vocabulary);
    for (uint32_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(mix(sequence.state_ + i) >> 40) * 0x1p-21f - 4.0f;
    if (makes_nan && makes_nan(token)) row[row.size() / 2] = std::numeric_limits<float>::quiet_NaN();
    return row;
  }

  models::Blueprint blueprint_;
  mutable ToyBackend backend_;
  std::shared_ptr<uint32_t> live_ = std::make_shared<uint32_t>(0);
};

}  // namespace chorus::generation::testing
