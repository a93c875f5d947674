#include "generation/scheduler.h"

#include <gtest/gtest.h>

#include <map>

#include "formats/test_tools.h"
#include "generation/generation_test_tools.h"

namespace chorus::generation {
namespace {

using formats::testing::expect_error;
using testing::ToyModel;

constexpr uint32_t kVocabulary = 97;

GenerationRequest request_of(std::vector<uint32_t> prompt, uint32_t tokens_max) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.tokens_max = tokens_max;
  return request;
}

std::vector<uint32_t> prompt_of(uint32_t seed, uint32_t length) {
  std::vector<uint32_t> prompt;
  for (uint32_t i = 0; i < length; ++i) prompt.push_back((seed * 7919 + i * 31) % kVocabulary);
  return prompt;
}

// What a request must give: token by token from the logits of everything before it.
std::vector<uint32_t> expected_tokens(const ToyModel& model, const GenerationRequest& request) {
  std::vector<uint32_t> tokens = request.prompt, answer;
  TokenHistory history;
  history.prompt.insert(tokens.begin(), tokens.end());
  for (uint32_t step = 0; step < request.tokens_max; ++step) {
    std::vector<float> row = model.logits_after(tokens);
    auto choice = choose_on_host(row, request.sampling, step, history);
    if (!choice) break;
    answer.push_back(choice->token);
    tokens.push_back(choice->token);
    ++history.answer[choice->token];
    if (std::count(request.end_tokens.begin(), request.end_tokens.end(), choice->token) > 0) break;
  }
  return answer;
}

struct Outcome {
  std::vector<uint32_t> tokens;
  std::optional<FinishReason> reason;
  std::optional<Error> error;
  SnapshotPtr prompt, end;
  uint32_t steps = 0;  // when it ended
};

void collect(std::map<RequestId, Outcome>& outcomes, std::vector<Event> events, uint32_t step = 0) {
  for (Event& event : events) {
    Outcome& outcome = outcomes[event.request];
    EXPECT_FALSE(outcome.reason) << "an event after the end of request " << event.request;
    if (event.token) outcome.tokens.push_back(event.token->token);
    if (!event.finished) continue;
    outcome.reason = event.finished;
    outcome.error = event.error;
    outcome.prompt = event.prompt;
    outcome.end = event.end;
    outcome.steps = step;
  }
}

std::map<RequestId, Outcome> run_all(Scheduler& scheduler) {
  std::map<RequestId, Outcome> outcomes;
  for (uint32_t step = 0; !scheduler.idle(); ++step) {
    if (step > 10000) {
      ADD_FAILURE() << "the scheduler does not come to an end";
      break;
    }
    collect(outcomes, scheduler.step(), step);
  }
  return outcomes;
}

Outcome run_one(ToyModel& model, GenerationRequest request, const SchedulerOptions& options = {}) {
  Scheduler scheduler(model, options);
  const auto id = scheduler.submit(std::move(request));
  EXPECT_TRUE(id.ok()) << (id.ok() ? "" : id.error().to_line());
  if (!id) return {};
  return run_all(scheduler)[*id];
}

TEST(Scheduler, OneRequestGetsItsTokens) {
  ToyModel model(kVocabulary, 4096);
  for (const uint32_t chunk : {1u, 7u, 64u, 512u}) {
    SchedulerOptions options;
    options.chunk = chunk;
    const GenerationRequest request = request_of(prompt_of(1, 150), 600);  // longer than a sequence has room for at first
    const Outcome outcome = run_one(model, request, options);
    EXPECT_EQ(outcome.reason, FinishReason::tokens_max);
    EXPECT_EQ(outcome.tokens, expected_tokens(model, request)) << "chunk " << chunk;
    EXPECT_EQ(model.live_sequences(), 0u);
  }
  EXPECT_EQ(model.longest_step, 150u);
}

std::vector<GenerationRequest> mixed_requests(uint32_t count) {
  std::vector<GenerationRequest> requests;
  for (uint32_t i = 0; i < count; ++i) {
    GenerationRequest request = request_of(prompt_of(i, 1 + i * 13 % 40), 3 + i * 5 % 17);
    if (i % 3 == 1) {
      request.sampling.temperature = 0.5f + 0.1f * static_cast<float>(i);
      request.sampling.top_p = 0.9f;
      request.sampling.seed = 1000 + i;
    }
    if (i % 4 == 2) {
      request.sampling.repetition_penalty = 1.3f;
      request.sampling.presence_penalty = 0.5f;
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST(Scheduler, TokensDoNotDependOnCompany) {
  ToyModel model(kVocabulary, 4096);
  const std::vector<GenerationRequest> requests = mixed_requests(20);
  SchedulerOptions options;
  options.chunk = 9;
  for (const uint32_t running : {1u, 3u, 8u, 32u}) {
    options.running_max = running;
    Scheduler scheduler(model, options);
    std::map<RequestId, const GenerationRequest*> submitted;
    std::map<RequestId, Outcome> outcomes;
    uint32_t step = 0;
    for (const GenerationRequest& request : requests) {  // they join while others run
      const auto id = scheduler.submit(request);
      ASSERT_TRUE(id.ok());
      submitted[*id] = &request;
      if (++step % 2 == 0) collect(outcomes, scheduler.step());
    }
    for (auto& [id, outcome] : run_all(scheduler)) {
      Outcome& whole = outcomes[id];
      whole.tokens.insert(whole.tokens.end(), outcome.tokens.begin(), outcome.tokens.end());
      whole.reason = outcome.reason;
    }
    ASSERT_EQ(outcomes.size(), requests.size());
    for (const auto& [id, request] : submitted) {
      EXPECT_EQ(outcomes[id].tokens, expected_tokens(model, *request)) << "request " << id << " of " << running << " at once";
    }
    EXPECT_LE(model.widest_call, running);
    model.widest_call = 0;
    EXPECT_EQ(model.live_sequences(), 0u);
  }
}

TEST(Scheduler, RunningAnswersGoOnWhileAPromptIsRead) {
  ToyModel model(kVocabulary, 4096);
  SchedulerOptions options;
  options.chunk = 10;
  Scheduler scheduler(model, options);
  const auto quick = scheduler.submit(request_of(prompt_of(1, 5), 12));
  ASSERT_TRUE(quick.ok());
  std::map<RequestId, Outcome> outcomes;
  collect(outcomes, scheduler.step());
  const auto slow = scheduler.submit(request_of(prompt_of(2, 200), 2));
  ASSERT_TRUE(slow.ok());
  for (uint32_t i = 0; i < 11; ++i) collect(outcomes, scheduler.step());
  EXPECT_EQ(outcomes[*quick].tokens.size(), 12u) << "one token a step, whatever else is read";
  EXPECT_TRUE(outcomes[*quick].reason);
  EXPECT_TRUE(outcomes[*slow].tokens.empty());
}

TEST(Scheduler, AnswersEndAtEndTokensLimitsAndTheContext) {
  ToyModel model(kVocabulary, 60);
  GenerationRequest request = request_of(prompt_of(3, 20), 30);
  const std::vector<uint32_t> free = expected_tokens(model, request);
  request.end_tokens = {free[11], kVocabulary + 5};
  const Outcome ended = run_one(model, request);
  EXPECT_EQ(ended.reason, FinishReason::end_token);
  EXPECT_EQ(ended.tokens, expected_tokens(model, request));
  EXPECT_EQ(ended.tokens.back(), free[11]);

  request.end_tokens.clear();
  request.tokens_max = 0;
  const Outcome full = run_one(model, request);
  EXPECT_EQ(full.reason, FinishReason::context_full);
  EXPECT_EQ(full.tokens.size(), 41u);  // every position is read, and one more token is known

  request.tokens_max = 1;
  EXPECT_EQ(run_one(model, request).tokens.size(), 1u);
  const Outcome longest = run_one(model, request_of(prompt_of(1, 60), 5));
  EXPECT_EQ(longest.reason, FinishReason::context_full);
  EXPECT_EQ(longest.tokens.size(), 1u);
}

TEST(Scheduler, StopEndsARequestAndLeavesTheOthers) {
  ToyModel model(kVocabulary, 4096);
  SchedulerOptions options;
  options.running_max = 2;
  Scheduler scheduler(model, options);
  std::vector<RequestId> ids;
  for (uint32_t i = 0; i < 4; ++i) ids.push_back(*scheduler.submit(request_of(prompt_of(i, 10), 20)));
  std::map<RequestId, Outcome> outcomes;
  for (uint32_t i = 0; i < 6; ++i) collect(outcomes, scheduler.step());
  scheduler.stop(ids[0]);  // runs
  scheduler.stop(ids[3]);  // waits
  scheduler.stop(12345);   // is not there
  while (!scheduler.idle()) collect(outcomes, scheduler.step());
  EXPECT_EQ(outcomes[ids[0]].reason, FinishReason::stopped);
  EXPECT_LT(outcomes[ids[0]].tokens.size(), 20u);
  EXPECT_EQ(outcomes[ids[3]].reason, FinishReason::stopped);
  EXPECT_TRUE(outcomes[ids[3]].tokens.empty());
  for (const size_t i : {1u, 2u}) {
    EXPECT_EQ(outcomes[ids[i]].tokens, expected_tokens(model, request_of(prompt_of(static_cast<uint32_t>(i), 10), 20)));
  }
}

TEST(Scheduler, AFailingRequestEndsAlone) {
  ToyModel model(kVocabulary, 4096);
  std::vector<GenerationRequest> requests = mixed_requests(8);
  for (GenerationRequest& request : requests) request.tokens_max = 60;  // so that they still run when the prompts are read
  // The third request fails once it has read the fourth token of its answer.
  const std::vector<uint32_t> doomed = expected_tokens(model, requests[3]);
  ASSERT_GT(doomed.size(), 4u);
  const uint32_t position = static_cast<uint32_t>(requests[3].prompt.size()) + 3;
  std::vector<std::vector<uint32_t>> expected;
  for (const GenerationRequest& request : requests) expected.push_back(expected_tokens(model, request));
  // Others may read the same token at the same position: those are not of this request, so check that none does.
  for (size_t i = 0; i < requests.size(); ++i) {
    const size_t at = position - requests[i].prompt.size();
    ASSERT_FALSE(i != 3 && at < expected[i].size() && expected[i][at] == doomed[3]);
    ASSERT_FALSE(i != 3 && position < requests[i].prompt.size() && requests[i].prompt[position] == doomed[3]);
  }
  model.fails = [&](uint32_t token, uint32_t at) -> std::optional<Error> {
    if (token != doomed[3] || at != position) return {};
    return make_error(ErrorCode::io_failed, "layer 3, expert 5: cannot read");
  };
  SchedulerOptions options;
  options.chunk = 4;
  Scheduler scheduler(model, options);
  std::vector<RequestId> ids;
  for (const GenerationRequest& request : requests) ids.push_back(*scheduler.submit(request));
  auto outcomes = run_all(scheduler);
  for (size_t i = 0; i < ids.size(); ++i) {
    const Outcome& outcome = outcomes[ids[i]];
    if (i == 3) {
      EXPECT_EQ(outcome.reason, FinishReason::failed);
      ASSERT_TRUE(outcome.error);
      EXPECT_EQ(outcome.error->message, "layer 3, expert 5: cannot read");
      EXPECT_EQ(outcome.tokens, std::vector<uint32_t>(doomed.begin(), doomed.begin() + 4));
    } else {
      EXPECT_EQ(outcome.tokens, expected[i]) << "request " << i;
      EXPECT_FALSE(outcome.error);
    }
  }
  EXPECT_GT(scheduler.stats().replayed_tokens, 0u);
  EXPECT_EQ(model.live_sequences(), 0u);
}

TEST(Scheduler, AFailingPromptEndsAlone) {
  ToyModel model(kVocabulary, 4096);
  const GenerationRequest good = request_of(prompt_of(1, 10), 15);
  const std::vector<uint32_t> expected = expected_tokens(model, good);
  GenerationRequest bad = request_of(std::vector<uint32_t>(30, 96), 5);
  model.fails = [](uint32_t token, uint32_t position) -> std::optional<Error> {
    if (token != 96 || position != 25) return {};
    return make_error(ErrorCode::io_failed, "planned");
  };
  SchedulerOptions options;
  options.chunk = 8;
  Scheduler scheduler(model, options);
  const RequestId first = *scheduler.submit(good), second = *scheduler.submit(bad);
  auto outcomes = run_all(scheduler);
  EXPECT_EQ(outcomes[first].tokens, expected);
  EXPECT_EQ(outcomes[second].reason, FinishReason::failed);
  EXPECT_TRUE(outcomes[second].tokens.empty());
}

TEST(Scheduler, NanIsAnErrorOfItsSequence) {
  ToyModel model(kVocabulary, 4096);
  std::vector<GenerationRequest> requests;
  for (uint32_t i = 0; i < 3; ++i) requests.push_back(request_of(prompt_of(i + 5, 10), 15));
  requests[1].sampling.temperature = 1;
  requests[2].sampling.logprobs = true;
  for (size_t sick = 0; sick < 3; ++sick) {
    model.makes_nan = nullptr;
    std::vector<std::vector<uint32_t>> expected;
    for (const GenerationRequest& request : requests) expected.push_back(expected_tokens(model, request));
    // A token that only the sick request reads.
    uint32_t token = UINT32_MAX;
    for (const uint32_t candidate : expected[sick]) {
      bool elsewhere = false;
      for (size_t i = 0; i < 3; ++i) elsewhere |= i != sick && std::count(expected[i].begin(), expected[i].end(), candidate) > 0;
      if (!elsewhere) token = candidate;
    }
    ASSERT_NE(token, UINT32_MAX);
    const auto at = std::find(expected[sick].begin(), expected[sick].end(), token);
    if (at + 1 == expected[sick].end()) continue;
    model.makes_nan = [token](uint32_t read) { return read == token; };
    Scheduler scheduler(model, {});
    std::vector<RequestId> ids;
    for (const GenerationRequest& request : requests) ids.push_back(*scheduler.submit(request));
    auto outcomes = run_all(scheduler);
    for (size_t i = 0; i < 3; ++i) {
      if (i == sick) {
        EXPECT_EQ(outcomes[ids[i]].reason, FinishReason::failed) << i;
        ASSERT_TRUE(outcomes[ids[i]].error);
        EXPECT_NE(outcomes[ids[i]].error->message.find("NaN"), std::string::npos);
      } else {
        EXPECT_EQ(outcomes[ids[i]].tokens, expected[i]) << i;
      }
    }
    EXPECT_EQ(scheduler.stats().replayed_tokens, 0u);
  }
}

TEST(Scheduler, ALostDeviceEndsEverything) {
  ToyModel model(kVocabulary, 4096);
  model.fails = [](uint32_t, uint32_t position) -> std::optional<Error> {
    if (position != 12) return {};
    return make_error(ErrorCode::device_lost, "gone");
  };
  Scheduler scheduler(model, {});
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(scheduler.submit(request_of(prompt_of(i, 10), 15)).ok());
  for (const auto& [id, outcome] : run_all(scheduler)) {
    EXPECT_EQ(outcome.reason, FinishReason::failed);
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->code, ErrorCode::device_lost);
  }
}

TEST(Scheduler, SnapshotsBranchAndRollBack) {
  ToyModel model(kVocabulary, 4096);
  GenerationRequest first = request_of(prompt_of(1, 20), 10);
  first.keep_prompt = first.keep_end = true;
  const Outcome outcome = run_one(model, first);
  ASSERT_TRUE(outcome.prompt && outcome.end);
  EXPECT_EQ(outcome.prompt->tokens, first.prompt);
  std::vector<uint32_t> read = first.prompt;
  read.insert(read.end(), outcome.tokens.begin(), outcome.tokens.end() - 1);  // the last token was never read
  EXPECT_EQ(outcome.end->tokens, read);

  // Two branches of the end, one of the prompt, at once and after the one that made them.
  Scheduler scheduler(model, {});
  std::map<RequestId, GenerationRequest> requests;
  for (uint32_t i = 0; i < 3; ++i) {
    const SnapshotPtr& start = i < 2 ? outcome.end : outcome.prompt;
    GenerationRequest request = request_of(start->tokens, 12);
    for (uint32_t k = 0; k <= i * 5; ++k) request.prompt.push_back(50 + i + k);
    request.start = start;
    requests[*scheduler.submit(request)] = request;
  }
  const uint32_t calls = model.calls;
  for (const auto& [id, branch] : run_all(scheduler)) EXPECT_EQ(branch.tokens, expected_tokens(model, requests[id]));
  EXPECT_GT(model.calls, calls);
  EXPECT_EQ(scheduler.stats().prompt_tokens, 1u + 6u + 11u);
  EXPECT_EQ(scheduler.stats().reused_tokens, 2 * read.size() + first.prompt.size());

  GenerationRequest wrong = request_of(prompt_of(9, 40), 5);
  wrong.start = outcome.end;
  expect_error(scheduler.submit(wrong), "not a proper beginning");
  wrong.prompt = outcome.end->tokens;
  expect_error(scheduler.submit(wrong), "not a proper beginning");
}

TEST(Scheduler, BranchesSurviveAFailedCall) {
  ToyModel model(kVocabulary, 4096);
  GenerationRequest first = request_of(prompt_of(1, 20), 1);
  first.keep_prompt = true;
  const SnapshotPtr start = run_one(model, first).prompt;
  ASSERT_TRUE(start);
  GenerationRequest branch = request_of(start->tokens, 10);
  branch.prompt.push_back(3);
  branch.start = start;
  GenerationRequest other = request_of(std::vector<uint32_t>{96, 1}, 10);
  const std::vector<uint32_t> expected = expected_tokens(model, branch);
  const std::vector<uint32_t> doomed = expected_tokens(model, other);
  model.fails = [&](uint32_t token, uint32_t position) -> std::optional<Error> {
    if (position != 5 || token != doomed[3]) return {};
    return make_error(ErrorCode::io_failed, "planned");
  };
  ASSERT_NE(start->tokens[5], doomed[3]);
  Scheduler scheduler(model, {});
  const RequestId a = *scheduler.submit(branch), b = *scheduler.submit(other);
  auto outcomes = run_all(scheduler);
  EXPECT_EQ(outcomes[a].tokens, expected);
  EXPECT_EQ(outcomes[b].reason, FinishReason::failed);
}

TEST(Scheduler, MemoryForSequencesIsABudget) {
  ToyModel model(kVocabulary, 4096);
  SchedulerOptions options;
  options.sequence_bytes_max = 2 * (100 + 10 + 20);
  Scheduler scheduler(model, options);
  for (uint32_t i = 0; i < 5; ++i) ASSERT_TRUE(scheduler.submit(request_of(prompt_of(i, 10), 20)).ok());
  const RequestId large = *scheduler.submit(request_of(prompt_of(1, 200), 20));
  auto outcomes = run_all(scheduler);
  EXPECT_EQ(model.widest_call, 2u);
  for (const auto& [id, outcome] : outcomes) {
    if (id == large) {
      EXPECT_EQ(outcome.reason, FinishReason::failed);
      ASSERT_TRUE(outcome.error);
      EXPECT_EQ(outcome.error->code, ErrorCode::out_of_memory);
    } else {
      EXPECT_EQ(outcome.reason, FinishReason::tokens_max);
    }
  }

  model.sequences_max = 3;  // the device says no: later ones wait for the earlier
  Scheduler tight(model, {});
  for (uint32_t i = 0; i < 6; ++i) ASSERT_TRUE(tight.submit(request_of(prompt_of(i, 10), 5)).ok());
  for (const auto& [id, outcome] : run_all(tight)) EXPECT_EQ(outcome.reason, FinishReason::tokens_max);
}

TEST(Scheduler, SnapshotsCountAsLongAsSomebodyHasThem) {
  ToyModel model(kVocabulary, 4096);
  SchedulerOptions options;
  options.sequence_bytes_max = 450;
  Scheduler scheduler(model, options);
  GenerationRequest first = request_of(prompt_of(1, 10), 20);  // 130 bytes, 110 for the prompt's snapshot
  first.keep_prompt = first.keep_end = true;
  const RequestId id = *scheduler.submit(first);
  Outcome kept = std::move(run_all(scheduler)[id]);
  ASSERT_TRUE(kept.prompt && kept.end);
  EXPECT_EQ(scheduler.stats().sequence_bytes, 110u + 130u);
  EXPECT_EQ(scheduler.stats().sequence_bytes_peak, 110u + 130u);
  const GenerationRequest second = request_of(prompt_of(2, 100), 50);  // 250 bytes
  const RequestId refused = *scheduler.submit(second);
  Outcome outcome = std::move(run_all(scheduler)[refused]);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::out_of_memory);
  EXPECT_EQ(outcome.error->message,
            "sequence memory: 250 bytes for 150 tokens, over the limit of 450 for all sequences and snapshots, of which 240 are in use");
  kept.prompt.reset();
  EXPECT_EQ(scheduler.stats().sequence_bytes, 130u);
  const RequestId again = *scheduler.submit(second);
  EXPECT_EQ(run_all(scheduler)[again].tokens, expected_tokens(model, second));
  kept.end.reset();
  EXPECT_EQ(scheduler.stats().sequence_bytes, 0u);
  EXPECT_EQ(model.live_sequences(), 0u);
}

TEST(Scheduler, AStartWithoutRoomBesideItIsGivenUp) {
  ToyModel model(kVocabulary, 4096);
  SchedulerOptions options;
  options.sequence_bytes_max = 400;
  Scheduler scheduler(model, options);
  GenerationRequest first = request_of(prompt_of(1, 100), 20);
  first.keep_end = true;
  const RequestId id = *scheduler.submit(first);
  SnapshotPtr end = std::move(run_all(scheduler)[id].end);
  ASSERT_TRUE(end);  // 220 bytes
  GenerationRequest next = request_of(end->tokens, 10);
  next.prompt.push_back(7);
  next.start = std::move(end);
  const std::vector<uint32_t> expected = expected_tokens(model, next);
  uint32_t reused = 99;
  std::vector<uint32_t> tokens;
  ASSERT_TRUE(scheduler.submit(std::move(next)).ok());
  while (!scheduler.idle()) {
    for (const Event& event : scheduler.step()) {
      EXPECT_FALSE(event.error) << event.error->to_line();
      if (event.token) tokens.push_back(event.token->token);
      if (event.finished) reused = event.reused_tokens;
    }
  }
  EXPECT_EQ(tokens, expected);
  EXPECT_EQ(reused, 0u);
  EXPECT_EQ(scheduler.stats().starts_given_up, 1u);
  EXPECT_EQ(scheduler.stats().sequence_bytes, 0u);
}

TEST(Scheduler, APromptThatCannotBeKeptIsAnsweredAllTheSame) {
  ToyModel model(kVocabulary, 4096);
  SchedulerOptions options;
  options.sequence_bytes_max = 200;
  Scheduler scheduler(model, options);
  GenerationRequest request = request_of(prompt_of(1, 50), 20);  // 170 bytes, 150 for the snapshot
  request.keep_prompt = request.keep_end = true;
  const RequestId id = *scheduler.submit(request);
  const Outcome outcome = std::move(run_all(scheduler)[id]);
  EXPECT_EQ(outcome.tokens, expected_tokens(model, request));
  EXPECT_FALSE(outcome.prompt);
  EXPECT_TRUE(outcome.end);
  EXPECT_EQ(scheduler.stats().prompts_not_kept, 1u);
}

TEST(Scheduler, ASequenceThatMustGrowWaitsForOthersToEnd) {
  ToyModel model(kVocabulary, 4096);
  SchedulerOptions options;
  options.sequence_bytes_max = 1200;
  options.chunk = 64;
  Scheduler scheduler(model, options);
  // 366 bytes at first and 622 after 266 tokens, for which the other's 656 bytes must go; a third one would fit in and waits too.
  const GenerationRequest grows = request_of(prompt_of(1, 10), 400), other = request_of(prompt_of(2, 300), 256),
                          third = request_of(prompt_of(3, 10), 5);
  const RequestId a = *scheduler.submit(grows), b = *scheduler.submit(other);
  std::map<RequestId, Outcome> outcomes;
  uint32_t step = 0;
  while (scheduler.stats().waits_for_room == 0) {
    ASSERT_LT(step, 1000u);
    collect(outcomes, scheduler.step(), step++);
  }
  ASSERT_FALSE(outcomes[b].reason);
  const RequestId c = *scheduler.submit(third);
  for (; !scheduler.idle(); ++step) {
    ASSERT_LT(step, 10000u);
    collect(outcomes, scheduler.step(), step);
  }
  EXPECT_EQ(outcomes[a].tokens, expected_tokens(model, grows));
  EXPECT_EQ(outcomes[b].tokens, expected_tokens(model, other));
  EXPECT_EQ(outcomes[c].tokens, expected_tokens(model, third));
  EXPECT_GT(outcomes[c].steps, outcomes[b].steps) << "it must not take the room that another waits for";
  EXPECT_LE(scheduler.stats().sequence_bytes_peak, 1200u);
}

// A sequence that has grown is rebuilt at its size: growing again would need room for the old one and the new one, which is there no more.
TEST(Scheduler, AFailedCallTakesNoRoomThatItDidNotHave) {
  ToyModel model(kVocabulary, 4096);
  SchedulerOptions options;
  options.sequence_bytes_max = 1000;
  options.chunk = 4;
  Scheduler scheduler(model, options);
  const GenerationRequest grows = request_of(prompt_of(1, 10), 400), fails = request_of(std::vector<uint32_t>{96, 1}, 10),
                          reads = request_of(prompt_of(3, 140), 5);
  const std::vector<uint32_t> doomed = expected_tokens(model, fails);
  ASSERT_NE(grows.prompt[5], doomed[3]);
  ASSERT_NE(reads.prompt[5], doomed[3]);
  model.fails = [&](uint32_t token, uint32_t position) -> std::optional<Error> {
    if (position != 5 || token != doomed[3]) return {};
    return make_error(ErrorCode::io_failed, "planned");
  };
  std::map<RequestId, Outcome> outcomes;
  const RequestId a = *scheduler.submit(grows);
  uint32_t step = 0;
  for (; outcomes[a].tokens.size() < 300; ++step) {
    ASSERT_LT(step, 1000u);
    collect(outcomes, scheduler.step(), step);
  }
  ASSERT_EQ(scheduler.stats().sequence_bytes, 622u) << "it has grown, from 366 bytes";
  const RequestId b = *scheduler.submit(fails), c = *scheduler.submit(reads);  // 112 and 245 bytes
  for (; !outcomes[b].reason; ++step) {
    ASSERT_LT(step, 1000u);
    collect(outcomes, scheduler.step(), step);
  }
  EXPECT_TRUE(outcomes[c].tokens.empty()) << "its prompt is still being read: the failed call was not of it";
  for (auto& [id, outcome] : run_all(scheduler)) {
    Outcome& whole = outcomes[id];
    whole.tokens.insert(whole.tokens.end(), outcome.tokens.begin(), outcome.tokens.end());
    whole.reason = outcome.reason;
    whole.error = outcome.error;
  }
  EXPECT_EQ(outcomes[b].error ? outcomes[b].error->message : "", "planned");
  EXPECT_EQ(outcomes[a].tokens, expected_tokens(model, grows)) << (outcomes[a].error ? outcomes[a].error->to_line() : "");
  EXPECT_EQ(outcomes[c].tokens, expected_tokens(model, reads)) << (outcomes[c].error ? outcomes[c].error->to_line() : "");
  EXPECT_GE(scheduler.stats().replayed_tokens, 300u);
  EXPECT_LE(scheduler.stats().sequence_bytes_peak, 1000u);
}

TEST(Scheduler, WhereAllWaitForRoomTheYoungestEnds) {
  ToyModel model(kVocabulary, 4096);
  SchedulerOptions options;
  options.sequence_bytes_max = 1300;  // two of 366 bytes, but not one of 622 beside them
  Scheduler scheduler(model, options);
  std::vector<GenerationRequest> requests;
  std::vector<RequestId> ids;
  for (uint32_t i = 0; i < 3; ++i) {
    requests.push_back(request_of(prompt_of(i, 10), 400));
    ids.push_back(*scheduler.submit(requests.back()));
  }
  auto outcomes = run_all(scheduler);
  EXPECT_EQ(outcomes[ids[0]].tokens, expected_tokens(model, requests[0]));
  uint32_t failed = 0;
  for (const RequestId id : ids) {
    if (outcomes[id].reason != FinishReason::failed) continue;
    ++failed;
    ASSERT_TRUE(outcomes[id].error);
    EXPECT_EQ(outcomes[id].error->code, ErrorCode::out_of_memory);
  }
  EXPECT_EQ(failed, 2u);
  EXPECT_LE(scheduler.stats().sequence_bytes_peak, 1300u);
  // Alone, and never with enough room: an error too, not an endless wait.
  options.sequence_bytes_max = 700;
  const Outcome alone = run_one(model, requests[0], options);
  EXPECT_EQ(alone.reason, FinishReason::failed);
  EXPECT_EQ(alone.tokens.size(), 257u);
}

TEST(Scheduler, BadRequestsAreRefused) {
  ToyModel model(kVocabulary, 50);
  SchedulerOptions options;
  options.waiting_max = 1;
  Scheduler scheduler(model, options);
  expect_error(scheduler.submit(request_of({}, 5)), "at least one token");
  expect_error(scheduler.submit(request_of(std::vector<uint32_t>(51, 1), 5)), "51 tokens, the model reads at most 50");
  expect_error(scheduler.submit(request_of({kVocabulary}, 5)), "outside the vocabulary");
  GenerationRequest request = request_of({1}, 5);
  request.sampling.temperature = std::nanf("");
  expect_error(scheduler.submit(request), "temperature");
  ASSERT_TRUE(scheduler.submit(request_of({1}, 5)).ok());
  expect_error(scheduler.submit(request_of({1}, 5)), "too many requests");
}

}  // namespace
}  // namespace chorus::generation
