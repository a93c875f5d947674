// Dawn Chorus, the library: load a Kev decision model, read a text once, ask it any number of typed questions.
//
//   chorus::ModelOptions options;
//   options.model = "models/kev-mini";
//   auto model = chorus::Model::load(options);
//   auto prefix = (*model)->prefill("The parcel came late and one shoe is missing.");
//   auto answers = (*model)->evaluate(*prefix, questions);
//
// Every call returns a Result: a value, or an Error that says what, where, expected and found. Nothing throws or aborts.
// A Model is used by one thread at a time. Text is UTF-8.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chorus/result.h"

namespace chorus {

enum class DeviceChoice {
  automatic,  // a hardware WebGPU adapter if there is one, else the CPU; ModelDescription says why
  webgpu,     // WebGPU or an error; software adapters count
  cpu,
};

enum class WeightType { f32, f16, bf16 };  // of weight matrices on the device; activations and sums are always f32

struct ModelOptions {
  std::filesystem::path model;                // Kev checkpoint folder, or a file made by `chorus pack`
  std::optional<std::filesystem::path> base;  // base model of an adapter checkpoint; default: beside it or in the Hugging Face cache
  DeviceChoice device = DeviceChoice::automatic;
  std::string adapter;  // part of a WebGPU adapter's name; empty: any
  WeightType dtype = WeightType::f32;
  uint32_t cpu_threads = 0;                                     // 0: all
  bool fast_toggles = true;                                     // WebGPU without validation and bounds checks; false: with them
  double temperature = 0;                                       // 0: the checkpoint's
  uint32_t state_tokens_max = 65536;                            // a state with its delimiter
  uint32_t row_tokens_max = 73728;                              // a state and one question
  bool truncate_state = false;                                  // cut an over-long state (reported); a question keeps room
  bool date_facts = false;                                      // annotate states with date differences
  uint64_t memory_bytes_max = 0;                                // refuse to load above this; 0: the device's own limits
  bool profile_kernels = false;                                 // GPU timestamps per kernel
  std::string pipeline_cache;                                   // folder for compiled pipelines; empty: none
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes of weights
  std::function<void(std::string_view line)> log;
};

enum class QuestionKind { noul, choice, score };

struct QuestionOption {
  std::string name;
  std::optional<std::string> description;
};

struct Question {
  std::string id;  // the caller's own; the model never sees it
  QuestionKind kind = QuestionKind::noul;
  std::string instructions;  // may be empty
  // choice: 1 to 255 names with optional descriptions; score: 1 to 255 levels (names only), lowest first;
  // noul: none, or two of which the descriptions are used (no, then yes).
  std::vector<QuestionOption> options;
};

struct Answer {
  std::string id;
  QuestionKind kind = QuestionKind::noul;
  std::vector<float> logits;          // per option, divided by the temperature
  std::vector<double> probabilities;  // per option, not rounded; noul: no, yes
  uint32_t best = 0;                  // index of the first maximum
  double value = 0;                   // noul: probability of yes; score: expected level, from 0; choice: probability of the best
  double confidence = 0;              // choice and score (Kev 1.0 formulas)
};

// A text read once. Immutable; several may live at once; it keeps its device alive.
class Prefix {
 public:
  uint32_t tokens() const;  // read, delimiter included
  bool truncated() const;

  struct Data;
  explicit Prefix(std::shared_ptr<const Data> data);
  const Data& data() const { return *data_; }

 private:
  std::shared_ptr<const Data> data_;
};

struct ModelDescription {
  std::string model, form, base, base_revision, checkpoint_id;
  double temperature = 1;
  std::string backend, device, driver;  // backend: "webgpu" or "cpu"
  bool software = false;                // a software adapter
  std::string choice_reason;            // why this backend
  std::string dtype;
  std::string memory_plan;
  std::vector<std::string> fallbacks;  // operations that ran otherwise than asked, each with its reason
};

class Model {
 public:
  static Result<std::unique_ptr<Model>> load(const ModelOptions& options);
  virtual ~Model() = default;

  // Reads a state: plain text, or any JSON value, which is rendered as Kev does.
  virtual Result<Prefix> prefill(std::string_view state) = 0;
  virtual Result<Prefix> prefill_json(std::string_view state_json) = 0;

  // Answers in the order of the questions. Never changes the prefix; the same call gives the same bits on the same device.
  virtual Result<std::vector<Answer>> evaluate(const Prefix& prefix, std::span<const Question> questions) = 0;

  // prefill and evaluate in one.
  virtual Result<std::vector<Answer>> system_one(std::string_view state, std::span<const Question> questions) = 0;
  // A System One request body to the Kev 1.0 response body, both JSON.
  virtual Result<std::string> system_one_json(std::string_view request_json) = 0;

  virtual ModelDescription description() const = 0;
};

}  // namespace chorus
