// The public API of text (chorus/generate.h) over generation, models, experts and a chosen backend.
// A lost device drops everything on it; the next call builds it anew.
#include "runtime/text_model.h"

#include <algorithm>
#include <map>
#include <utility>

#include "experts/free_memory.h"
#include "formats/tokenizer.h"
#include "generation/chat_template.h"
#include "generation/generation_config.h"
#include "generation/scheduler.h"
#include "generation/text_stream.h"
#include "runtime/language_side.h"
#include "runtime/sequence_budget.h"

namespace chorus {

namespace {

using formats::JsonValue;
using generation::FinishReason;

DType weight_dtype(WeightType type) { return type == WeightType::f16 ? DType::f16 : type == WeightType::bf16 ? DType::bf16 : DType::f32; }

runtime::LanguageOptions language_options(const TextModelOptions& options) {
  runtime::LanguageOptions made;
  made.backend.device = options.device == DeviceChoice::webgpu ? runtime::DeviceRequest::webgpu
                        : options.device == DeviceChoice::cpu  ? runtime::DeviceRequest::cpu
                                                               : runtime::DeviceRequest::automatic;
  made.backend.adapter = options.adapter;
  made.backend.fast_toggles = options.fast_toggles;
  made.backend.profile_kernels = options.profile_kernels;
  made.backend.pipeline_cache = options.pipeline_cache;
  made.backend.cpu_threads = options.cpu_threads;
  if (options.log) made.log = [log = options.log](LogLevel, std::string_view line) { log(line); };
  made.backend.log = made.log;
  made.dtype = weight_dtype(options.dtype);
  made.experts.expert_ram_bytes = options.expert_ram_bytes;
  made.experts.expert_vram_bytes = options.expert_vram_bytes;
  made.experts.prefetch = options.expert_prefetch;
  made.progress = options.progress;
  return made;
}

generation::SamplingOptions sampling_of(const GenerateOptions& options, generation::SamplingOptions sampling) {
  const auto take = [](auto& target, const auto& value) {
    if (value) target = *value;
  };
  take(sampling.temperature, options.temperature);
  take(sampling.top_k, options.top_k);
  take(sampling.top_p, options.top_p);
  take(sampling.min_p, options.min_p);
  take(sampling.repetition_penalty, options.repetition_penalty);
  take(sampling.presence_penalty, options.presence_penalty);
  take(sampling.frequency_penalty, options.frequency_penalty);
  sampling.seed = options.seed;
  sampling.logprobs = options.logprobs;
  sampling.top_logprobs = options.top_logprobs;
  return sampling;
}

std::string finish_text(FinishReason reason) {
  switch (reason) {
    case FinishReason::end_token:
      return "end";
    case FinishReason::tokens_max:
    case FinishReason::context_full:
      return "length";
    case FinishReason::stopped:
    case FinishReason::failed:
      break;
  }
  return "caller";
}

// A conversation as JSON and what else its template gets.
struct Conversation {
  JsonValue messages;
  generation::ChatOptions options;
};

Result<Conversation> read_conversation(std::string_view text, const GenerateOptions& options) {
  Conversation made;
  CHORUS_ASSIGN(JsonValue body, formats::parse_json(text));
  if (body.is_object()) {
    CHORUS_ASSIGN(const JsonValue* messages, body.member("messages", "conversation"));
    made.messages = *messages;
    if (const JsonValue* tools = body.find("tools")) made.options.tools = *tools;
  } else {
    made.messages = std::move(body);
  }
  made.options.add_generation_prompt = options.add_generation_prompt;
  if (!options.template_variables.empty()) {
    CHORUS_ASSIGN(const JsonValue variables, formats::parse_json(options.template_variables));
    CHORUS_ASSIGN(const auto members, variables.as_object("template variables"));
    made.options.variables.assign(members.begin(), members.end());
  }
  return made;
}

uint64_t default_sequence_bytes_of(const runtime::LanguageSide& side) {
  const compute::BackendInfo& info = side.choice.backend->info();
  const experts::ExpertStatistics experts = side.experts->statistics();
  runtime::SequenceBudgetInput input;
  input.in_host_memory = info.kind == "cpu" || info.software;
  input.free_bytes = experts::free_memory_bytes();
  input.claimed_bytes = models::LanguageModelOptions().workspace_bytes_max;
  if (!experts.resident) input.claimed_bytes += (experts.host_slots + experts.device_slots) * experts.record_bytes;
  return runtime::default_sequence_bytes(input);
}

// One request while it runs: its text so far.
struct Answer {
  GeneratedText result;
  std::optional<generation::TextStream> stream;
  std::optional<Error> error;
  const TextModel::OnText* on_text = nullptr;
  bool ended_by_caller = false, done = false;

  // Gives text out; false when the caller wants no more.
  bool give(const std::string& piece) {
    result.text += piece;
    return piece.empty() || on_text == nullptr || !*on_text || (*on_text)(piece);
  }
};

class LoadedTextModel final : public TextModel {
 public:
  LoadedTextModel(TextModelOptions options, runtime::BackendFactory factory) : options_(std::move(options)), factory_(std::move(factory)) {}

  Status open() {
    CHORUS_ASSIGN(checkpoint_, models::open_language_checkpoint(options_.model));
    const formats::ModelFiles& files = checkpoint_.files;
    if (!files.tokenizer_json) return make_error(ErrorCode::not_found, options_.model.string() + ": expected tokenizer.json, found none");
    auto tokenizer = formats::Tokenizer::parse(*files.tokenizer_json);
    if (!tokenizer) return std::move(tokenizer).error().with_context("loading " + options_.model.string());
    tokenizer_.emplace(std::move(tokenizer).value());
    if (files.generation_config_json) {
      CHORUS_ASSIGN(config_, generation::parse_generation_config(*files.generation_config_json));
    }
    if (config_.end_tokens.empty()) config_.end_tokens = checkpoint_.blueprint.end_tokens;
    generation::TemplateFiles template_files{files.chat_template, files.tokenizer_config_json};
    auto opened = generation::ChatTemplate::open(template_files);
    if (opened) {
      for (const auto& [name, text] : opened->special_tokens()) {
        const auto id = tokenizer_->token_id(text);
        if (name == "eos_token" && id) config_.end_tokens.push_back(*id);
      }
      template_.emplace(std::move(opened).value());
    } else {
      template_error_ = std::move(opened).error();  // only a chat needs it
    }
    return ensure_side();
  }

  Result<GeneratedText> generate(std::string_view prompt, const GenerateOptions& options, const OnText& on_text) override {
    auto all = run({std::string(prompt)}, true, options, &on_text, false);
    return std::move(all[0]);
  }

  Result<GeneratedText> chat(const std::vector<ChatMessage>& messages, const GenerateOptions& options, const OnText& on_text) override {
    JsonValue list = JsonValue::array();
    for (const ChatMessage& message : messages) {
      JsonValue item = JsonValue::object();
      item.set("role", JsonValue::string(message.role));
      item.set("content", JsonValue::string(message.content));
      list.push_back(std::move(item));
    }
    formats::JsonStyle style;
    style.ensure_ascii = false;
    return chat_json(formats::json_dumps(list, style), options, on_text);
  }

  Result<GeneratedText> chat_json(std::string_view messages, const GenerateOptions& options, const OnText& on_text) override {
    if (!template_) return *template_error_;
    CHORUS_ASSIGN(const Conversation conversation, read_conversation(messages, options));
    CHORUS_ASSIGN(const std::string prompt, template_->render(conversation.messages, conversation.options));
    auto all = run({prompt}, false, options, &on_text, options_.keep_conversation);
    return std::move(all[0]);
  }

  std::vector<Result<GeneratedText>> generate_all(const std::vector<std::string>& prompts, const GenerateOptions& options) override {
    return run(prompts, true, options, nullptr, false);
  }

  Result<std::vector<uint32_t>> encode(std::string_view text) const override { return tokenizer_->encode(text); }
  Result<std::string> decode(const std::vector<uint32_t>& tokens) const override { return tokenizer_->decode(tokens); }
  TextModelDescription description() const override;
  TextModelStats stats() override;

 private:
  Status ensure_side() {
    if (side_) return {};
    CHORUS_ASSIGN(side_, runtime::load_language_side(checkpoint_, language_options(options_), factory_));
    generation::SchedulerOptions scheduling;
    scheduling.running_max = options_.running_max;
    scheduling.chunk = options_.chunk;
    sequence_bytes_max_ = options_.sequence_bytes_max > 0 ? options_.sequence_bytes_max : default_sequence_bytes_of(*side_);
    scheduling.sequence_bytes_max = sequence_bytes_max_;
    scheduler_ = std::make_unique<generation::Scheduler>(*side_->model, scheduling);
    return {};
  }

  void drop_side() {
    kept_.clear();
    scheduler_.reset();
    side_.reset();
  }

  std::vector<Result<GeneratedText>> run(const std::vector<std::string>& prompts, bool leading, const GenerateOptions& options,
                                         const OnText* on_text, bool keep);
  Result<generation::GenerationRequest> request_of(const std::string& prompt, bool leading, const GenerateOptions& options,
                                                   bool keep) const;
  void take_event(generation::Event event, Answer& answer);
  void remember(const generation::Event& event);

  TextModelOptions options_;
  runtime::BackendFactory factory_;
  models::LanguageCheckpoint checkpoint_;
  std::optional<formats::Tokenizer> tokenizer_;
  generation::GenerationConfig config_;
  std::optional<generation::ChatTemplate> template_;
  std::optional<Error> template_error_;
  std::unique_ptr<runtime::LanguageSide> side_;
  std::unique_ptr<generation::Scheduler> scheduler_;
  uint64_t sequence_bytes_max_ = 0;
  std::vector<generation::SnapshotPtr> kept_;  // of the last conversation
};

Result<generation::GenerationRequest> LoadedTextModel::request_of(const std::string& prompt, bool leading, const GenerateOptions& options,
                                                                  bool keep) const {
  generation::GenerationRequest request;
  if (leading) request.prompt.assign(tokenizer_->leading_tokens().begin(), tokenizer_->leading_tokens().end());
  CHORUS_ASSIGN(const std::vector<uint32_t> tokens, tokenizer_->encode(prompt));
  request.prompt.insert(request.prompt.end(), tokens.begin(), tokens.end());
  if (request.prompt.empty()) return make_error(ErrorCode::invalid_argument, "prompt: expected some text, found none");
  request.sampling = sampling_of(options, config_.sampling);
  request.tokens_max = options.tokens_max;
  if (!options.ignore_end_tokens) request.end_tokens = config_.end_tokens;
  if (!keep) return request;
  request.keep_prompt = request.keep_end = true;
  for (const generation::SnapshotPtr& snapshot : kept_) {  // the longest that the prompt begins with
    const std::vector<uint32_t>& begun = snapshot->tokens;
    if (begun.size() >= request.prompt.size() || !std::equal(begun.begin(), begun.end(), request.prompt.begin())) continue;
    if (!request.start || request.start->tokens.size() < begun.size()) request.start = snapshot;
  }
  return request;
}

void LoadedTextModel::take_event(generation::Event event, Answer& answer) {
  if (event.token && !answer.ended_by_caller && !answer.stream->stopped()) {
    GeneratedToken token;
    token.id = event.token->token;
    token.logprob = event.token->logprob;
    for (const auto& top : event.token->top_logprobs) token.top.emplace_back(top.token, top.logprob);
    answer.result.tokens.push_back(std::move(token));
    auto piece = answer.stream->add(event.token->token);
    if (!piece) {
      answer.error = std::move(piece).error();
      scheduler_->stop(event.request);
      return;
    }
    const bool wanted = answer.give(*piece);
    answer.ended_by_caller = !wanted;
    if (!wanted || answer.stream->stopped()) scheduler_->stop(event.request);
  }
  if (!event.finished) return;
  answer.done = true;
  answer.result.reused_tokens = event.reused_tokens;
  if (event.error) answer.error = std::move(event.error);
  if (!answer.ended_by_caller) answer.give(answer.stream->finish());
  answer.result.finish = answer.stream->stopped() ? "stop" : answer.ended_by_caller ? "caller" : finish_text(*event.finished);
  answer.result.stop = answer.stream->stop();
}

// Keeps where the conversation stands: after its prompt, and after the answer.
void LoadedTextModel::remember(const generation::Event& event) {
  if (!event.finished || (!event.prompt && !event.end)) return;
  kept_.clear();
  if (event.prompt) kept_.push_back(event.prompt);
  if (event.end) kept_.push_back(event.end);
}

std::vector<Result<GeneratedText>> LoadedTextModel::run(const std::vector<std::string>& prompts, bool leading,
                                                        const GenerateOptions& options, const OnText* on_text, bool keep) {
  std::vector<Answer> answers(prompts.size());
  std::map<generation::RequestId, Answer*> running;
  Status ready = generation::check_stop_strings(options.stops);
  if (ready) ready = ensure_side();
  for (size_t i = 0; i < prompts.size(); ++i) {
    Answer& answer = answers[i];
    if (!ready) {
      answer.error = ready.error();
      continue;
    }
    auto request = request_of(prompts[i], leading, options, keep);
    if (!request) {
      answer.error = std::move(request).error();
      continue;
    }
    answer.stream.emplace(*tokenizer_, options.stops);
    answer.on_text = on_text;
    answer.result.prompt_tokens = static_cast<uint32_t>(request->prompt.size());
    auto id = scheduler_->submit(std::move(request).value());
    if (id) {
      running[*id] = &answer;
      if (keep) kept_.clear();  // the request has the one it starts from, and may give it up for want of memory
    } else {
      answer.error = std::move(id).error();
    }
  }
  bool lost = false;
  while (ready && !scheduler_->idle()) {
    for (generation::Event& event : scheduler_->step()) {
      if (keep) remember(event);
      lost |= event.error && event.error->code == ErrorCode::device_lost;
      if (const auto found = running.find(event.request); found != running.end() && !found->second->done) {
        take_event(std::move(event), *found->second);
      }
    }
  }
  if (lost) drop_side();
  std::vector<Result<GeneratedText>> results;
  for (Answer& answer : answers) {
    if (answer.error) {
      results.emplace_back(std::move(*answer.error));
    } else {
      results.emplace_back(std::move(answer.result));
    }
  }
  return results;
}

TextModelDescription LoadedTextModel::description() const {
  TextModelDescription text;
  text.model = options_.model.string();
  text.architecture = checkpoint_.blueprint.model_type;
  text.context = checkpoint_.blueprint.context;
  text.vocabulary = checkpoint_.blueprint.vocabulary;
  text.dtype = std::string(dtype_name(weight_dtype(options_.dtype)));
  text.has_chat_template = template_.has_value();
  text.ignored_tensors = checkpoint_.ignored_tensors;
  if (!side_) return text;
  const compute::BackendInfo& info = side_->choice.backend->info();
  text.backend = info.kind;
  text.device = info.device;
  text.driver = info.driver;
  text.software = info.software;
  text.choice_reason = side_->choice.reason;
  text.expert_plan = side_->experts->plan();
  for (const compute::Fallback& fallback : side_->choice.backend->fallbacks())
    text.fallbacks.push_back(fallback.operation + ": " + fallback.reason);
  return text;
}

TextModelStats LoadedTextModel::stats() {
  TextModelStats stats;
  const runtime::ProcessMemory memory = runtime::process_memory();
  stats.resident_bytes = memory.resident;
  stats.resident_bytes_peak = memory.peak;
  if (!side_) return stats;
  const generation::SchedulerStats& done = scheduler_->stats();
  stats.prompt_tokens = done.prompt_tokens;
  stats.answer_tokens = done.answer_tokens;
  stats.reused_tokens = done.reused_tokens;
  stats.prompt_seconds = done.prompt_seconds;
  stats.decode_seconds = done.decode_seconds;
  stats.prompt_passes = done.prompt_passes;
  stats.decode_passes = done.decode_passes;
  stats.sequence_bytes = done.sequence_bytes;
  stats.sequence_bytes_peak = done.sequence_bytes_peak;
  stats.sequence_bytes_max = sequence_bytes_max_;
  const experts::ExpertStatistics experts = side_->experts->statistics();
  stats.experts_resident = experts.resident;
  stats.expert_hits = experts.cache.hits;
  stats.expert_misses = experts.cache.misses;
  stats.expert_evictions = experts.cache.evictions;
  stats.expert_prefetches = experts.cache.prefetches;
  stats.expert_prefetches_used = experts.cache.prefetches_used;
  stats.expert_bytes_read = experts.cache.bytes_read;
  stats.expert_bytes_written = experts.device.bytes_written;
  stats.expert_reads_buffered = experts.buffered_reason;
  stats.expert_read_seconds = experts.times.reads;
  stats.expert_route_seconds = experts.times.routes;
  compute::Backend& backend = *side_->choice.backend;
  stats.dispatches = backend.dispatches();
  stats.device_bytes = backend.bytes_in_use();
  stats.device_bytes_peak = backend.bytes_peak();
  if (auto times = backend.take_kernel_times()) {
    for (const compute::KernelTime& time : *times) stats.kernels.push_back({time.kernel, time.calls, time.milliseconds / 1000});
  } else if (options_.log) {
    options_.log("kernel times: " + times.error().to_line());
  }
  return stats;
}

}  // namespace

Result<std::unique_ptr<TextModel>> TextModel::load(const TextModelOptions& options) {
  return runtime::load_text_model(options, runtime::choose_backend);
}

Result<std::unique_ptr<TextModel>> runtime::load_text_model(const TextModelOptions& options, BackendFactory factory) {
  auto model = std::make_unique<LoadedTextModel>(options, std::move(factory));
  CHORUS_TRY(model->open());
  return std::unique_ptr<TextModel>(std::move(model));
}

}  // namespace chorus
