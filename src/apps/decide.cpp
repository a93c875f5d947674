// `chorus decide`: answers to typed questions about one text.
#include <cstdio>
#include <memory>

#include "apps/command.h"
#include "apps/help.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "decisions/request.h"
#include "engine/decision_engine.h"
#include "formats/unicode.h"

namespace chorus::apps {

namespace {

using formats::JsonValue;

struct DecideFlags {
  DeviceFlags device;
  std::string model, base, request, state;
  std::vector<std::string> asks;
  double temperature = 0;
  uint32_t state_tokens_max = limits::kStateTokensDefault;
  uint32_t row_tokens_max = limits::kRowTokensDefault;
  uint64_t memory_mib = 0;
  bool truncate = false, date_facts = false, json = false, explain = false;
};

// The request body: a file, standard input, or --state with --ask.
Result<std::string> request_body(const DecideFlags& flags) {
  if (!flags.request.empty()) return read_text(flags.request, limits::kRequestBytesMax);
  std::string state = flags.state;
  if (!state.empty() && state.front() == '@') {
    CHORUS_ASSIGN(state, read_text(state.substr(1), limits::kTextBytesMax));
  }
  if (Status valid = formats::check_utf8(state); !valid) return std::move(valid).error().with_context("reading the state");
  JsonValue body = JsonValue::object(), questions = JsonValue::object();
  for (const std::string& ask : flags.asks) {
    CHORUS_ASSIGN(auto question, decisions::ask_to_json(ask));
    if (questions.find(question.first)) {
      return make_error(ErrorCode::invalid_argument, "--ask: question id " + quote_text(question.first) + " is used twice");
    }
    questions.set(question.first, std::move(question.second));
  }
  body.set("state", JsonValue::string(std::move(state)));
  body.set("questions", std::move(questions));
  return formats::json_dumps(body);
}

std::string number_text(const JsonValue* value) { return value ? formats::json_dumps(*value) : "?"; }

void print_answer(const std::string& id, const JsonValue& answer) {
  if (const JsonValue* noul = answer.find("noul")) {
    print("%s: %s probability of yes\n", id.c_str(), number_text(noul).c_str());
    return;
  }
  const JsonValue* choice = answer.find("choice");
  const std::string value = choice && choice->string_if() ? *choice->string_if() : number_text(answer.find("score"));
  print("%s: %s (confidence %s)\n", id.c_str(), value.c_str(), number_text(answer.find("confidence")).c_str());
  const JsonValue* legend = answer.find("legend");
  const JsonValue* probabilities = answer.find("probabilities");
  if (!probabilities) return;
  for (const formats::JsonMember& member : probabilities->members()) {
    const JsonValue* name = legend ? legend->find(member.key) : nullptr;
    const std::string label = name && name->string_if() ? member.key + " " + *name->string_if() : member.key;
    print("    %-8s %s\n", formats::json_dumps(member.value).c_str(), label.c_str());
  }
}

JsonValue explain_json(const ModelDescription& about) {
  JsonValue explain = JsonValue::object(), fallbacks = JsonValue::array();
  auto text = [&](const char* key, const std::string& value) { explain.set(key, JsonValue::string(value)); };
  text("backend", about.backend);
  text("device", about.device);
  text("driver", about.driver);
  explain.set("software_adapter", JsonValue::boolean(about.software));
  text("reason", about.choice_reason);
  text("dtype", about.dtype);
  text("checkpoint", about.checkpoint_id);
  text("base", about.base);
  text("base_revision", about.base_revision);
  explain.set("temperature", JsonValue::floating(about.temperature));
  text("memory_plan", about.memory_plan);
  for (const std::string& line : about.fallbacks) fallbacks.push_back(JsonValue::string(line));
  explain.set("fallbacks", std::move(fallbacks));
  return explain;
}

void print_explanation(const ModelDescription& about) {
  std::fprintf(stderr, "backend: %s on %s%s%s%s\n", about.backend.c_str(), about.device.c_str(), about.driver.empty() ? "" : ", ",
               about.driver.c_str(), about.software ? " (software adapter: for tests, not for speed)" : "");
  std::fprintf(stderr, "reason: %s\nweights: %s, checkpoint %s, base %s, temperature %.6g\n%s\n", about.choice_reason.c_str(),
               about.dtype.c_str(), about.checkpoint_id.c_str(), about.base.c_str(), about.temperature, about.memory_plan.c_str());
  if (about.fallbacks.empty()) std::fprintf(stderr, "fallbacks: none\n");
  for (const std::string& line : about.fallbacks) std::fprintf(stderr, "fallback: %s\n", line.c_str());
}

void print_response(const JsonValue& response, const ModelDescription& about) {
  if (const JsonValue* answers = response.find("answers")) {
    for (const formats::JsonMember& member : answers->members()) print_answer(member.key, member.value);
  }
  const JsonValue* usage = response.find("usage");
  auto used = [&](const char* key) { return number_text(usage ? usage->find(key) : nullptr); };
  print("\n%s tokens read, %s ms on %s (%s%s)\n", used("input_tokens").c_str(), number_text(response.find("latency_ms")).c_str(),
        about.device.c_str(), about.backend.c_str(), about.software ? ", software adapter" : "");
  if (const JsonValue* cut = response.find("truncated"); cut && cut->boolean_if() && *cut->boolean_if()) {
    print("the state was cut to %s of %s tokens\n", used("state_tokens_used").c_str(), used("state_tokens").c_str());
  }
}

Result<std::unique_ptr<Model>> load_model(const DecideFlags& flags) {
  ModelOptions options = model_options(flags.device);
  options.model = flags.model;
  if (!flags.base.empty()) options.base = flags.base;
  options.temperature = flags.temperature;
  options.state_tokens_max = flags.state_tokens_max;
  options.row_tokens_max = flags.row_tokens_max;
  options.truncate_state = flags.truncate;
  options.date_facts = flags.date_facts;
  options.memory_bytes_max = flags.memory_mib << 20;
  return Model::load(options);
}

int run_decide(const DecideFlags& flags) {
  auto body = request_body(flags);
  if (!body) return fail(body.error());
  auto model = load_model(flags);
  if (!model) return fail(model.error());
  auto response = (*model)->system_one_json(*body);
  if (!response) {
    Error error = std::move(response).error();
    if (flags.request.empty()) return fail(error);
    return fail(std::move(error).with_context("answering " + (flags.request == "-" ? "standard input" : flags.request)));
  }
  auto parsed = formats::parse_json(*response);
  if (!parsed) return fail(parsed.error());
  const ModelDescription about = (*model)->description();
  const bool explain = flags.explain || !about.fallbacks.empty();
  if (flags.json) {
    if (explain) parsed->set("explain", explain_json(about));
    print("%s\n", formats::json_dumps(*parsed).c_str());
    return kExitOk;
  }
  print_response(*parsed, about);
  if (explain) print_explanation(about);
  return kExitOk;
}

}  // namespace

Command add_decide(CLI::App& app) {
  auto flags = std::make_shared<DecideFlags>();
  CLI::App* command = app.add_subcommand("decide", "Answer typed questions about a text")->group("Run models");
  command->add_option("--model", flags->model, "Kev checkpoint folder or packed file")->option_text("PATH")->required()->group(kModelGroup);
  add_base_option(*command, flags->base);
  auto* request = command->add_option("--request", flags->request, "System One request as JSON; -: standard input");
  request->option_text("FILE")->group(kInputGroup);
  auto* state = command->add_option("--state", flags->state, "Without --request: the text to read, or @FILE");
  state->group(kInputGroup);
  auto* ask =
      command->add_option("--ask", flags->asks, "With --state, repeatable: 'id:type:instructions:optA|optB'; types: noul, choice, score");
  ask->option_text("QUESTION")->group(kInputGroup);
  request->excludes(state)->excludes(ask);
  state->needs(ask);
  ask->needs(state);
  command->add_flag("--truncate", flags->truncate, "Cut an over-long state (and say so) instead of refusing it; a question keeps room")
      ->group(kInputGroup);
  add_device_flags(*command, flags->device);
  command->add_flag("--json", flags->json, "Print the Kev 1.0 response body")->group(kOutputGroup);
  command->add_flag("--explain", flags->explain, "Say which backend ran and why, and what ran otherwise than asked")->group(kOutputGroup);
  command->add_option("--temperature", flags->temperature, "Instead of the checkpoint's; above 1: less sure")
      ->check(CLI::Range(engine::kTemperatureMin, engine::kTemperatureMax))
      ->group(kRareGroup);
  command->add_flag("--date-facts", flags->date_facts, "Tell the model the differences between dates in the state")->group(kRareGroup);
  command->add_option("--state-tokens-max", flags->state_tokens_max, "Longest state, in tokens with its delimiter")
      ->check(CLI::Range(1u, UINT32_MAX))
      ->capture_default_str()
      ->group(kRareGroup);
  command->add_option("--row-tokens-max", flags->row_tokens_max, "Longest state plus question, in tokens")
      ->check(CLI::Range(1u, UINT32_MAX))
      ->capture_default_str()
      ->group(kRareGroup);
  command->add_option("--memory-max", flags->memory_mib, "Refuse to load when the memory plan is above this many MiB")
      ->check(CLI::Range(uint64_t{1}, UINT64_MAX >> 20))
      ->group(kRareGroup);
  add_rare_flags(*command, flags->device);
  return {command, [flags]() -> int {
            if (flags->request.empty() && flags->asks.empty()) {
              std::fprintf(stderr, "chorus: decide needs --request, or --state with at least one --ask\n");
              return kExitUsage;
            }
            return run_decide(*flags);
          }};
}

}  // namespace chorus::apps
