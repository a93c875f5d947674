// Dawn Chorus, text: load a language model from a Hugging Face folder or a packed file, and let it write.
//
//   chorus::TextModelOptions options;
//   options.model = "models/moe-mini";
//   auto model = chorus::TextModel::load(options);
//   auto answer = (*model)->chat({{"user", "How did Iris feel?"}}, {}, [](std::string_view piece) { std::cout << piece; return true; });
//
// Every call returns a Result. Nothing throws or aborts. A TextModel is used by one thread at a time. Text is UTF-8.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chorus/chorus.h"
#include "chorus/result.h"

namespace chorus {

struct TextModelOptions {
  std::filesystem::path model;  // folder, or a file made by `chorus pack`
  DeviceChoice device = DeviceChoice::automatic;
  std::string adapter;  // part of a WebGPU adapter's name; empty: any
  WeightType dtype = WeightType::f32;
  uint32_t cpu_threads = 0;        // 0: all
  bool fast_toggles = true;        // WebGPU without validation and bounds checks; false: with them
  std::string pipeline_cache;      // folder for compiled pipelines; empty: none
  bool profile_kernels = false;    // times of kernels in TextModelStats; slows GPUs
  uint64_t expert_ram_bytes = 0;   // for experts; 0: from the memory that is free
  uint64_t expert_vram_bytes = 0;  // 0: what the device gives
  bool expert_prefetch = true;     // read the next layer's likely experts ahead
  // For what requests have read and what is kept of a conversation; 0: from the memory that is free, or what a device with its own gives.
  uint64_t sequence_bytes_max = 0;
  uint32_t running_max = 8;        // requests that run together
  uint32_t chunk = 512;            // tokens of a prompt that are read before the others get their next token
  bool keep_conversation = false;  // what the last chat read is kept, and a chat that begins with it continues there
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes of weights
  std::function<void(std::string_view line)> log;
};

// What is not given comes from the model's generation_config.json; without one, the most probable token is taken.
struct GenerateOptions {
  uint32_t tokens_max = 0;           // 0: as many as the context holds
  std::optional<float> temperature;  // 0: the most probable token
  std::optional<uint32_t> top_k;     // 0: all
  std::optional<float> top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  uint64_t seed = 0;
  std::vector<std::string> stops;  // the text ends before the first of them
  bool logprobs = false;           // of every token
  uint32_t top_logprobs = 0;       // and of as many most probable ones
  bool ignore_end_tokens = false;
  bool add_generation_prompt = true;  // chat: the template opens the answer
  std::string template_variables;     // chat: a JSON object of more variables for the template ("{\"enable_thinking\": false}")
};

struct ChatMessage {
  std::string role, content;
};

struct GeneratedToken {
  uint32_t id = 0;
  float logprob = 0;
  std::vector<std::pair<uint32_t, float>> top;
};

struct GeneratedText {
  std::string text;
  std::vector<GeneratedToken> tokens;  // the end token, if one came, is the last
  std::string finish;                  // "end", "length", "stop" (a stop string), "caller"
  std::string stop;                    // the stop string
  uint32_t prompt_tokens = 0;
  uint32_t reused_tokens = 0;  // of them, read by an earlier call
};

struct KernelSeconds {
  std::string kernel;
  uint64_t calls = 0;
  double seconds = 0;
};

// Since the model was loaded.
struct TextModelStats {
  uint64_t prompt_tokens = 0, answer_tokens = 0, reused_tokens = 0;
  double prompt_seconds = 0, decode_seconds = 0;
  uint64_t prompt_passes = 0, decode_passes = 0;
  uint64_t dispatches = 0;
  bool experts_resident = true;
  uint64_t expert_hits = 0, expert_misses = 0, expert_evictions = 0, expert_prefetches = 0, expert_prefetches_used = 0;
  uint64_t expert_bytes_read = 0, expert_bytes_written = 0;  // from disk; to device memory
  std::string expert_reads_buffered;                         // why reads do not pass by the page cache; empty: they do, or need not
  double expert_read_seconds = 0;                            // waiting for reads
  double expert_route_seconds = 0;                           // until routes were known on the host
  uint64_t sequence_bytes = 0, sequence_bytes_peak = 0;      // of running requests and kept conversations
  uint64_t sequence_bytes_max = 0;                           // their limit; 0: what the device gives
  uint64_t device_bytes = 0, device_bytes_peak = 0;
  uint64_t resident_bytes = 0, resident_bytes_peak = 0;  // of the process
  std::vector<KernelSeconds> kernels;                    // with profile_kernels; each call gives what came since the last
};

struct TextModelDescription {
  std::string model, architecture;
  std::string backend, device, driver;
  bool software = false;
  std::string choice_reason, dtype, expert_plan;
  uint32_t context = 0, vocabulary = 0;
  bool has_chat_template = false;
  std::vector<std::string> ignored_tensors, fallbacks;
};

class TextModel {
 public:
  // Called with each piece of text as soon as it is certain; false ends the answer ("caller").
  using OnText = std::function<bool(std::string_view piece)>;

  static Result<std::unique_ptr<TextModel>> load(const TextModelOptions& options);
  virtual ~TextModel() = default;

  // Continues a text. Special tokens that the tokenizer puts before a text are added.
  virtual Result<GeneratedText> generate(std::string_view prompt, const GenerateOptions& options = {}, const OnText& on_text = {}) = 0;
  // Answers a conversation, through the model's chat template.
  virtual Result<GeneratedText> chat(const std::vector<ChatMessage>& messages, const GenerateOptions& options = {},
                                     const OnText& on_text = {}) = 0;
  // The same from JSON: an array of messages, or an object with "messages" and perhaps "tools".
  virtual Result<GeneratedText> chat_json(std::string_view messages, const GenerateOptions& options = {}, const OnText& on_text = {}) = 0;
  // Several texts, continued together. The result of one does not depend on the others; one that fails leaves them alone.
  virtual std::vector<Result<GeneratedText>> generate_all(const std::vector<std::string>& prompts, const GenerateOptions& options = {}) = 0;

  virtual Result<std::vector<uint32_t>> encode(std::string_view text) const = 0;
  virtual Result<std::string> decode(const std::vector<uint32_t>& tokens) const = 0;
  virtual TextModelDescription description() const = 0;
  virtual TextModelStats stats() = 0;
};

}  // namespace chorus
