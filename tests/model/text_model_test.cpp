// Text through the public API, with the shipped model on the CPU backend.
#include "runtime/text_model.h"

#include <gtest/gtest.h>

#include <sstream>

#include "backends/cpu/cpu_backend.h"
#include "formats/json.h"
#include "formats/test_files.h"
#include "formats/test_tools.h"
#include "model/failing_backend.h"

namespace chorus::runtime {
namespace {

using formats::JsonValue;
using formats::testing::expect_error;
using formats::testing::TemporaryFolder;

const std::string kModel = std::string(CHORUS_MODELS) + "/moe-mini";

TextModelOptions cpu_options(const std::string& model = kModel) {
  TextModelOptions options;
  options.model = model;
  options.device = DeviceChoice::cpu;
  return options;
}

TextModel& shipped() {
  static const std::unique_ptr<TextModel> model = [] {
    auto loaded = TextModel::load(cpu_options());
    EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().to_line());
    return loaded.ok() ? std::move(loaded).value() : nullptr;
  }();
  return *model;
}

struct Golden {
  std::string prompt, content, text;
  std::vector<uint32_t> ids;
};

// Prompts of the reference whose answers have no near ties.
std::vector<Golden> goldens(size_t count) {
  std::vector<Golden> found;
  std::istringstream lines(formats::read_test_file(std::string(CHORUS_TEST_DATA) + "/moe-mini.golden.jsonl"));
  for (std::string line; std::getline(lines, line) && found.size() < count;) {
    auto parsed = formats::parse_json(line);
    if (!parsed) break;
    if (*parsed->find("min_margin")->as_double("min_margin") < 0.01) continue;
    Golden golden;
    golden.prompt = *parsed->find("prompt")->string_if();
    if (golden.prompt.rfind("<|im_start|>user\n", 0) != 0) continue;  // not a conversation
    for (const JsonValue& id : parsed->find("greedy_ids")->items()) golden.ids.push_back(static_cast<uint32_t>(*id.as_uint64("id")));
    golden.text = *parsed->find("greedy_text")->string_if();
    const size_t begin = golden.prompt.find('\n') + 1;
    golden.content = golden.prompt.substr(begin, golden.prompt.find("<|im_end|>") - begin);
    if (const size_t end = golden.text.find("<|im_end|>"); end != std::string::npos) golden.text.resize(end);
    found.push_back(std::move(golden));
  }
  EXPECT_EQ(found.size(), count);
  return found;
}

std::vector<uint32_t> ids_of(const GeneratedText& text) {
  std::vector<uint32_t> ids;
  for (const GeneratedToken& token : text.tokens) ids.push_back(token.id);
  return ids;
}

TEST(TextModel, ChatGivesTheReferencesAnswer) {
  for (const Golden& golden : goldens(4)) {
    std::string streamed;
    const auto collect = [&](std::string_view piece) {
      streamed += piece;
      return true;
    };
    GenerateOptions options;
    options.tokens_max = static_cast<uint32_t>(golden.ids.size());
    const auto answer = shipped().chat({{"user", golden.content}}, options, collect);
    ASSERT_TRUE(answer.ok()) << answer.error().to_line();
    EXPECT_EQ(ids_of(*answer), golden.ids);
    EXPECT_EQ(answer->text, golden.text);
    EXPECT_EQ(streamed, golden.text);
    EXPECT_EQ(answer->finish, "end");
    const auto same = shipped().generate(golden.prompt, options);
    ASSERT_TRUE(same.ok());
    EXPECT_EQ(ids_of(*same), golden.ids);
  }
}

TEST(TextModel, BatchAndSeedsGiveTheSameText) {
  std::vector<std::string> prompts;
  for (const Golden& golden : goldens(5)) prompts.push_back(golden.prompt);
  GenerateOptions options;
  options.tokens_max = 12;
  options.ignore_end_tokens = true;
  options.temperature = 0.9f;
  options.top_k = 40;
  options.seed = 11;
  const auto together = shipped().generate_all(prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto alone = shipped().generate(prompts[i], options);
    ASSERT_TRUE(alone.ok() && together[i].ok());
    EXPECT_EQ(ids_of(*alone), ids_of(*together[i]));
    EXPECT_EQ(alone->tokens.size(), 12u);
  }
  options.seed = 12;
  bool differs = false;
  const auto other = shipped().generate_all(prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i) differs |= ids_of(*other[i]) != ids_of(*together[i]);
  EXPECT_TRUE(differs);
}

TEST(TextModel, OnePromptThatCannotBeReadLeavesTheOthers) {
  const Golden golden = goldens(1)[0];
  GenerateOptions options;
  options.tokens_max = 16;
  std::string endless;
  for (int i = 0; i < 5000; ++i) endless += " the";
  const auto all = shipped().generate_all({golden.prompt, "", endless, "\xff", golden.prompt}, options);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(ids_of(*all[0]), golden.ids);
  expect_error(all[1], "expected some text");
  expect_error(all[2], "the model reads at most 4096");
  expect_error(all[3], "UTF-8");
  EXPECT_EQ(ids_of(*all[4]), golden.ids);
}

TEST(TextModel, StopsAtStringsAndWhenTheCallerHasEnough) {
  const Golden golden = goldens(1)[0];
  ASSERT_GT(golden.text.size(), 6u);
  GenerateOptions options;
  options.tokens_max = 30;
  options.stops = {golden.text.substr(3, 3)};
  const auto stopped = shipped().chat({{"user", golden.content}}, options);
  ASSERT_TRUE(stopped.ok());
  EXPECT_EQ(stopped->text, golden.text.substr(0, golden.text.find(options.stops[0])));
  EXPECT_EQ(stopped->finish, "stop");
  EXPECT_EQ(stopped->stop, options.stops[0]);

  options.stops = {""};
  expect_error(shipped().chat({{"user", "x"}}, options), "stop string");
  options.stops.clear();
  const auto enough = shipped().chat({{"user", golden.content}}, options, [](std::string_view) { return false; });
  ASSERT_TRUE(enough.ok());
  EXPECT_EQ(enough->finish, "caller");
  EXPECT_EQ(enough->tokens.size(), 1u);
}

TEST(TextModel, LogprobsComeWithTheTokens) {
  const Golden golden = goldens(1)[0];
  GenerateOptions options;
  options.logprobs = true;
  options.top_logprobs = 3;
  options.tokens_max = 16;
  const auto answer = shipped().chat({{"user", golden.content}}, options);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(ids_of(*answer), golden.ids);
  for (const GeneratedToken& token : answer->tokens) {
    ASSERT_EQ(token.top.size(), 3u);
    EXPECT_EQ(token.top[0].first, token.id);
    EXPECT_EQ(token.top[0].second, token.logprob);
    EXPECT_LE(token.logprob, 0);
    EXPECT_GE(token.top[0].second, token.top[1].second);
  }
}

TEST(TextModel, AConversationGoesOnWhereItStands) {
  TextModelOptions keeping = cpu_options();
  keeping.keep_conversation = true;
  auto model = TextModel::load(keeping);
  ASSERT_TRUE(model.ok());
  const std::vector<Golden> golden = goldens(2);
  GenerateOptions options;
  options.tokens_max = 16;
  std::vector<ChatMessage> messages = {{"user", golden[0].content}};
  const auto first = (*model)->chat(messages, options);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->reused_tokens, 0u);
  messages.push_back({"assistant", first->text});
  messages.push_back({"user", golden[1].content});
  const auto second = (*model)->chat(messages, options);
  ASSERT_TRUE(second.ok()) << second.error().to_line();
  EXPECT_GE(second->reused_tokens, first->prompt_tokens);
  const auto fresh = shipped().chat(messages, options);
  ASSERT_TRUE(fresh.ok());
  EXPECT_EQ(fresh->reused_tokens, 0u);
  EXPECT_EQ(ids_of(*second), ids_of(*fresh));
}

TEST(TextModel, APromptThatDoesNotFitTheSequenceMemoryLeavesTheOthers) {
  const Golden golden = goldens(1)[0];
  GenerateOptions options;
  options.tokens_max = 16;
  auto free = TextModel::load(cpu_options());
  ASSERT_TRUE(free.ok());
  EXPECT_GE((*free)->stats().sequence_bytes_max, 64u << 20);  // the default
  ASSERT_TRUE((*free)->generate(golden.prompt, options).ok());
  const uint64_t one = (*free)->stats().sequence_bytes_peak;
  ASSERT_GT(one, 0u);

  TextModelOptions tight = cpu_options();
  tight.sequence_bytes_max = one + one / 2;  // one at a time
  auto model = TextModel::load(tight);
  ASSERT_TRUE(model.ok());
  std::string long_text;
  for (int i = 0; i < 1000; ++i) long_text += " the";
  const auto all = (*model)->generate_all({golden.prompt, long_text, golden.prompt}, options);
  ASSERT_TRUE(all[0].ok() && all[2].ok());
  EXPECT_EQ(ids_of(*all[0]), golden.ids);
  EXPECT_EQ(ids_of(*all[2]), golden.ids);
  expect_error(all[1], "sequence memory: ");
  EXPECT_EQ(all[1].error().code, ErrorCode::out_of_memory);
  EXPECT_EQ((*model)->stats().sequence_bytes_max, tight.sequence_bytes_max);
  EXPECT_EQ((*model)->stats().sequence_bytes_peak, one);
  EXPECT_EQ((*model)->stats().sequence_bytes, 0u);
}

TEST(TextModel, AConversationGoesOnThoughWhatItKeptHasNoRoom) {
  const std::vector<Golden> golden = goldens(2);
  GenerateOptions options;
  options.tokens_max = 16;
  std::vector<ChatMessage> messages = {{"user", golden[0].content}};
  const auto first = shipped().chat(messages, options);
  ASSERT_TRUE(first.ok());
  messages.push_back({"assistant", first->text});
  messages.push_back({"user", golden[1].content});
  const auto expected = shipped().chat(messages, options);
  ASSERT_TRUE(expected.ok());
  auto fresh = TextModel::load(cpu_options());
  ASSERT_TRUE(fresh.ok() && (*fresh)->chat(messages, options).ok());

  TextModelOptions tight = cpu_options();
  tight.keep_conversation = true;
  tight.sequence_bytes_max = (*fresh)->stats().sequence_bytes_peak;  // the second turn's, and nothing beside it
  auto model = TextModel::load(tight);
  ASSERT_TRUE(model.ok());
  ASSERT_TRUE((*model)->chat({{"user", golden[0].content}}, options).ok());
  EXPECT_GT((*model)->stats().sequence_bytes, 0u) << "where the conversation stands is kept";
  const auto second = (*model)->chat(messages, options);
  ASSERT_TRUE(second.ok()) << second.error().to_line();
  EXPECT_EQ(ids_of(*second), ids_of(*expected));
  EXPECT_EQ(second->reused_tokens, 0u);
}

TEST(TextModel, ADeviceThatWasLostIsMadeAnew) {
  auto plan = std::make_shared<FailurePlan>();
  auto model = load_text_model(cpu_options(), [plan](const BackendRequest&) -> Result<BackendChoice> {
    BackendChoice choice;
    choice.backend = std::make_unique<FailingBackend>(backends::create_cpu_backend({}), plan);
    choice.reason = "a test";
    return choice;
  });
  ASSERT_TRUE(model.ok()) << model.error().to_line();
  const Golden golden = goldens(1)[0];
  GenerateOptions options;
  options.tokens_max = 16;
  plan->reads_left = 2;
  const auto lost = (*model)->chat({{"user", golden.content}}, options);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::device_lost);
  plan->reads_left = -1;
  const auto again = (*model)->chat({{"user", golden.content}}, options);
  ASSERT_TRUE(again.ok()) << again.error().to_line();
  EXPECT_EQ(ids_of(*again), golden.ids);
}

TEST(TextModel, KernelTimesThatCannotBeReadAreSaid) {
  auto plan = std::make_shared<FailurePlan>();
  std::vector<std::string> lines;
  TextModelOptions options = cpu_options();
  options.log = [&](std::string_view line) { lines.emplace_back(line); };
  auto model = load_text_model(options, [plan](const BackendRequest&) -> Result<BackendChoice> {
    BackendChoice choice;
    choice.backend = std::make_unique<FailingBackend>(backends::create_cpu_backend({}), plan);
    return choice;
  });
  ASSERT_TRUE(model.ok()) << model.error().to_line();
  plan->times_fail = true;
  lines.clear();
  EXPECT_TRUE((*model)->stats().kernels.empty());
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("kernel times: "), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("planned failure: no times"), std::string::npos) << lines[0];
}

TEST(TextModel, BadFilesAndRequestsAreOneLine) {
  expect_error(TextModel::load(cpu_options("no-such-model")), "no-such-model");
  expect_error(shipped().chat({}), "at least one");
  expect_error(shipped().chat_json("{"), "line 1");
  expect_error(shipped().chat_json("{}"), "messages");
  expect_error(shipped().chat_json("5"), "messages");
  GenerateOptions options;
  options.template_variables = "[]";
  expect_error(shipped().chat({{"user", "x"}}, options), "template variables");
  options.template_variables.clear();
  options.temperature = -1;
  expect_error(shipped().generate("x", options), "temperature");

  TemporaryFolder folder;
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
    std::filesystem::copy_file(kModel + "/" + name, folder.path() / name);
  }
  auto without = TextModel::load(cpu_options(folder.path()));
  ASSERT_TRUE(without.ok()) << without.error().to_line();
  expect_error((*without)->chat({{"user", "x"}}), "no chat template");
  options = {};
  options.tokens_max = 1;
  EXPECT_TRUE((*without)->generate("The", options).ok()) << "a plain prompt needs none";
  folder.write("chat_template.jinja", "{% for m in messages %}");
  auto broken = TextModel::load(cpu_options(folder.path()));
  ASSERT_TRUE(broken.ok());
  expect_error((*broken)->chat({{"user", "x"}}), "chat template: line 1");
  folder.write("chat_template.jinja", "a\n{{ raise_exception('only english') }}");
  auto refusing = TextModel::load(cpu_options(folder.path()));
  ASSERT_TRUE(refusing.ok());
  expect_error((*refusing)->chat({{"user", "x"}}), "line 2: the template refuses: \"only english\"");
  folder.write("generation_config.json", R"({"eos_token_id": "x"})");
  expect_error(TextModel::load(cpu_options(folder.path())), "eos_token_id");
}

}  // namespace
}  // namespace chorus::runtime
