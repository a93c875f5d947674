// The public API (chorus/chorus.h) over decisions, engine, formats and a chosen backend.
// A lost device drops engine and backend; the next call builds them anew. Prefixes of the lost device are then refused.
#include "runtime/model.h"

#include <chrono>
#include <utility>

#include "chorus/chorus.h"
#include "decisions/answers.h"
#include "decisions/pack.h"
#include "decisions/render.h"
#include "decisions/request.h"
#include "engine/decision_engine.h"
#include "formats/checkpoint.h"
#include "formats/json.h"
#include "formats/tokenizer.h"

namespace chorus {

// What one build of the device side holds. Destroyed engine first. Prefixes share it, so that their buffers outlive no backend.
struct DeviceSide {
  runtime::BackendChoice choice;
  std::unique_ptr<engine::DecisionEngine> engine;
};

struct Prefix::Data {
  std::shared_ptr<const DeviceSide> device;
  engine::Prefix snapshot;
  uint64_t full_tokens = 0;
};

Prefix::Prefix(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
uint32_t Prefix::tokens() const { return data_->snapshot.tokens(); }
bool Prefix::truncated() const { return data_->full_tokens != data_->snapshot.tokens(); }

namespace {

DType dtype_of(WeightType type) {
  switch (type) {
    case WeightType::f16:
      return DType::f16;
    case WeightType::bf16:
      return DType::bf16;
    case WeightType::f32:
      break;
  }
  return DType::f32;
}

runtime::DeviceRequest device_of(DeviceChoice choice) {
  switch (choice) {
    case DeviceChoice::webgpu:
      return runtime::DeviceRequest::webgpu;
    case DeviceChoice::cpu:
      return runtime::DeviceRequest::cpu;
    case DeviceChoice::automatic:
      break;
  }
  return runtime::DeviceRequest::automatic;
}

formats::JsonValue description_json(const std::optional<std::string>& text) {
  return text ? formats::JsonValue::string(*text) : formats::JsonValue();
}

// The question as the request form has it, so that both ways in share one set of rules.
Result<decisions::Question> internal_question(const Question& question) {
  using formats::JsonValue;
  JsonValue body = JsonValue::object();
  body.set("instructions", JsonValue::string(question.instructions));
  switch (question.kind) {
    case QuestionKind::noul: {
      body.set("type", JsonValue::string("noul"));
      if (question.options.empty()) break;
      if (question.options.size() != 2) {
        return make_error(ErrorCode::invalid_argument, "question " + question.id + ": a noul takes no options or two (no, yes), found " +
                                                           std::to_string(question.options.size()));
      }
      JsonValue criteria = JsonValue::object();
      criteria.set("false", description_json(question.options[0].description));
      criteria.set("true", description_json(question.options[1].description));
      body.set("criteria", std::move(criteria));
      break;
    }
    case QuestionKind::choice: {
      body.set("type", JsonValue::string("choice"));
      JsonValue criteria = JsonValue::object();
      for (const QuestionOption& option : question.options) {
        if (criteria.find(option.name)) {
          return make_error(ErrorCode::invalid_argument, "question " + question.id + ": option '" + option.name + "' appears twice");
        }
        criteria.append(option.name, description_json(option.description));
      }
      body.set("criteria", std::move(criteria));
      break;
    }
    case QuestionKind::score: {
      body.set("type", JsonValue::string("score"));
      JsonValue criteria = JsonValue::array();
      for (const QuestionOption& option : question.options) criteria.push_back(JsonValue::string(option.name));
      body.set("criteria", std::move(criteria));
      break;
    }
  }
  return decisions::question_from_json(question.id, body);
}

QuestionKind kind_of(decisions::QuestionType type) {
  switch (type) {
    case decisions::QuestionType::choice:
      return QuestionKind::choice;
    case decisions::QuestionType::score:
      return QuestionKind::score;
    case decisions::QuestionType::noul:
      break;
  }
  return QuestionKind::noul;
}

class LoadedModel final : public Model {
 public:
  LoadedModel(ModelOptions options, runtime::BackendFactory factory, formats::Checkpoint checkpoint, formats::Tokenizer tokenizer,
              decisions::Delimiters delimiters)
      : options_(std::move(options)),
        factory_(std::move(factory)),
        checkpoint_(std::move(checkpoint)),
        tokenizer_(std::move(tokenizer)),
        delimiters_(delimiters),
        limits_(decisions::limits_within(options_.state_tokens_max, options_.row_tokens_max, checkpoint_.config.max_positions,
                                         options_.truncate_state)) {}

  Status ensure_device() {
    if (device_) return {};
    runtime::BackendRequest request;
    request.device = device_of(options_.device);
    request.adapter = options_.adapter;
    request.fast_toggles = options_.fast_toggles;
    request.profile_kernels = options_.profile_kernels;
    request.pipeline_cache = options_.pipeline_cache;
    request.cpu_threads = options_.cpu_threads;
    request.log = log_sink();
    auto side = std::make_shared<DeviceSide>();
    CHORUS_ASSIGN(side->choice, factory_(request));
    engine::EngineOptions engine_options;
    engine_options.dtype = dtype_of(options_.dtype);
    engine_options.memory_bytes_max = options_.memory_bytes_max;
    engine_options.temperature = options_.temperature;
    engine_options.progress = options_.progress;
    engine_options.log = log_sink();
    CHORUS_ASSIGN(side->engine, engine::DecisionEngine::load(*side->choice.backend, checkpoint_, engine_options));
    device_ = std::move(side);
    return {};
  }

  Result<Prefix> prefill(std::string_view state) override { return prefill_value(formats::JsonValue::string(std::string(state))); }

  Result<Prefix> prefill_json(std::string_view state_json) override {
    CHORUS_ASSIGN(const formats::JsonValue state, formats::parse_json(state_json));
    return prefill_value(state);
  }

  Result<std::vector<Answer>> evaluate(const Prefix& prefix, std::span<const Question> questions) override {
    std::vector<decisions::Question> internal;
    for (const Question& question : questions) {
      CHORUS_ASSIGN(decisions::Question converted, internal_question(question));
      internal.push_back(std::move(converted));
    }
    std::vector<decisions::PackedBranch> branches;
    for (const decisions::Question& question : internal) {
      CHORUS_ASSIGN(decisions::PackedBranch branch, decisions::pack_question(question, prefix.tokens(), tokenizer_, delimiters_, limits_));
      branches.push_back(std::move(branch));
    }
    return answer(prefix, internal, std::move(branches));
  }

  Result<std::vector<Answer>> system_one(std::string_view state, std::span<const Question> questions) override {
    CHORUS_ASSIGN(const Prefix prefix, prefill(state));
    return evaluate(prefix, questions);
  }

  Result<std::string> system_one_json(std::string_view request_json) override {
    decisions::RequestOptions request_options;
    request_options.date_facts = options_.date_facts;
    CHORUS_ASSIGN(const decisions::DecisionRequest request, decisions::parse_request(request_json, request_options));
    CHORUS_ASSIGN(decisions::PackedDecision packed, decisions::pack(request, tokenizer_, limits_));
    const auto start = std::chrono::steady_clock::now();
    CHORUS_ASSIGN(const Prefix prefix, prefill_tokens(packed.state));
    CHORUS_ASSIGN(const std::vector<Answer> answers, answer(prefix, request.questions, std::move(packed.branches)));
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;

    std::vector<decisions::Answer> internal;
    for (size_t i = 0; i < answers.size(); ++i) {
      internal.push_back({request.questions[i].type, answers[i].probabilities, answers[i].best, answers[i].value, answers[i].confidence});
    }
    formats::JsonValue body = decisions::answers_json(request.questions, internal);
    decisions::ResponseFacts facts;
    facts.model = request.model;
    facts.input_tokens = packed.input_tokens;
    CHORUS_ASSIGN(facts.output_tokens, decisions::count_output_tokens(body, tokenizer_));
    facts.latency_ms = elapsed.count();
    if (options_.truncate_state) facts.truncation = decisions::TruncationReport{packed.state.full_tokens, packed.state.tokens.size()};
    return formats::json_dumps(decisions::response_json(facts, std::move(body)));
  }

  ModelDescription description() const override {
    const formats::CheckpointMetadata& meta = checkpoint_.metadata;
    ModelDescription text;
    text.model = checkpoint_.path.string();
    text.base = meta.base;
    text.base_revision = meta.base_revision.value_or("");
    text.checkpoint_id = meta.checkpoint_id;
    text.form = std::string(formats::checkpoint_form_name(meta.form));
    text.dtype = std::string(dtype_name(dtype_of(options_.dtype)));
    text.temperature = options_.temperature > 0 ? options_.temperature : meta.temperature;
    if (!device_) return text;
    const compute::BackendInfo& info = device_->choice.backend->info();
    text.backend = info.kind;
    text.device = info.device;
    text.driver = info.driver;
    text.software = info.software;
    text.choice_reason = device_->choice.reason;
    text.memory_plan = device_->engine->memory_plan().to_line();
    for (const compute::Fallback& fallback : device_->choice.backend->fallbacks()) {
      text.fallbacks.push_back(fallback.operation + ": " + fallback.reason);
    }
    return text;
  }

 private:
  LogSink log_sink() const {
    if (!options_.log) return {};
    return [log = options_.log](LogLevel, std::string_view line) { log(line); };
  }

  // After a lost device the next call starts afresh; the error itself still reaches the caller.
  Error note(Error error) {
    if (error.code == ErrorCode::device_lost) device_.reset();
    return error;
  }

  Result<Prefix> prefill_value(const formats::JsonValue& state) {
    const std::string text = decisions::render(options_.date_facts ? decisions::with_date_facts(state) : state);
    CHORUS_ASSIGN(const decisions::PackedState packed, decisions::pack_state(text, tokenizer_, delimiters_, limits_));
    return prefill_tokens(packed);
  }

  Result<Prefix> prefill_tokens(const decisions::PackedState& packed) {
    CHORUS_TRY(ensure_device());
    auto snapshot = device_->engine->prefill(packed.tokens);
    if (!snapshot) return note(std::move(snapshot).error());
    return Prefix(std::make_shared<const Prefix::Data>(Prefix::Data{device_, std::move(snapshot).value(), packed.full_tokens}));
  }

  Result<std::vector<Answer>> answer(const Prefix& prefix, const std::vector<decisions::Question>& questions,
                                     std::vector<decisions::PackedBranch> branches) {
    if (!device_ || prefix.data().device != device_) {
      return make_error(ErrorCode::invalid_argument, "prefix: belongs to another model or to a device that was lost; read the state again");
    }
    std::vector<engine::BranchQuery> queries;
    for (decisions::PackedBranch& branch : branches) {
      queries.push_back({std::move(branch.tokens), std::move(branch.option_ends), branch.decide});
    }
    auto scores = device_->engine->evaluate(prefix.data().snapshot, queries);
    if (!scores) return note(std::move(scores).error());
    std::vector<Answer> answers;
    for (size_t i = 0; i < questions.size(); ++i) {
      CHORUS_ASSIGN(decisions::Answer made, decisions::make_answer(questions[i], (*scores)[i].probabilities));
      answers.push_back({questions[i].id, kind_of(questions[i].type), std::move((*scores)[i].logits), std::move(made.probabilities),
                         made.best, made.value, made.confidence});
    }
    return answers;
  }

  ModelOptions options_;
  runtime::BackendFactory factory_;
  formats::Checkpoint checkpoint_;
  formats::Tokenizer tokenizer_;
  decisions::Delimiters delimiters_;
  decisions::PackLimits limits_;
  std::shared_ptr<DeviceSide> device_;
};

}  // namespace

Result<std::unique_ptr<Model>> Model::load(const ModelOptions& options) { return runtime::load_model(options, runtime::choose_backend); }

Result<std::unique_ptr<Model>> runtime::load_model(const ModelOptions& options, BackendFactory factory) {
  formats::OpenOptions open;
  open.base = options.base;
  CHORUS_ASSIGN(formats::Checkpoint checkpoint, formats::open_checkpoint(options.model, open));
  CHORUS_ASSIGN(const std::string tokenizer_json, checkpoint.tokenizer_json());
  auto parsed = formats::Tokenizer::parse(tokenizer_json);
  if (!parsed) {
    const bool packed = checkpoint.packed_tokenizer_json.has_value();
    return std::move(parsed).error().with_context("loading " + (packed ? checkpoint.path : checkpoint.tokenizer_path).string());
  }
  formats::Tokenizer tokenizer = std::move(parsed).value();
  CHORUS_ASSIGN(const decisions::Delimiters delimiters, decisions::find_delimiters(tokenizer));
  auto model = std::make_unique<LoadedModel>(options, std::move(factory), std::move(checkpoint), std::move(tokenizer), delimiters);
  CHORUS_TRY(model->ensure_device());
  return model;
}

}  // namespace chorus
