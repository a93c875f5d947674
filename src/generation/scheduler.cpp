#include "generation/scheduler.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <utility>

namespace chorus::generation {

namespace {

constexpr uint32_t kCapacityStep = 256;  // tokens of an answer that a sequence has room for at first, and grows by at least

class Timer {
 public:
  explicit Timer(double& seconds) : seconds_(seconds), start_(std::chrono::steady_clock::now()) {}
  ~Timer() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

struct Scheduler::Running {
  RequestId id = 0;
  GenerationRequest request;
  std::vector<uint32_t> tokens;  // prompt and answer
  uint32_t read = 0;             // tokens that the sequence has read
  std::unique_ptr<models::Sequence> sequence;
  SnapshotPtr prompt;  // when it is kept
  TokenHistory history;
  std::optional<Error> waits;  // for memory, since the last step: what it ends with if none becomes free
  bool finished = false;

  uint32_t prompt_size() const { return static_cast<uint32_t>(request.prompt.size()); }
  uint32_t answer_size() const { return static_cast<uint32_t>(tokens.size() - request.prompt.size()); }
  uint32_t start_size() const { return request.start ? static_cast<uint32_t>(request.start->tokens.size()) : 0; }
};

Scheduler::Scheduler(models::LanguageModel& model, const SchedulerOptions& options)
    : model_(model), options_(options), chooser_(model.backend()) {
  options_.running_max = std::max(options_.running_max, 1u);
  options_.chunk = std::max(options_.chunk, 1u);
}

Scheduler::~Scheduler() = default;

Result<RequestId> Scheduler::submit(GenerationRequest request) {
  const models::Blueprint& blueprint = model_.blueprint();
  if (request.prompt.empty()) return make_error(ErrorCode::invalid_argument, "prompt: expected at least one token, found none");
  if (request.prompt.size() > blueprint.context) {
    return make_error(ErrorCode::limit_exceeded, "prompt: " + std::to_string(request.prompt.size()) + " tokens, the model reads at most " +
                                                     std::to_string(blueprint.context));
  }
  for (const uint32_t token : request.prompt) {
    if (token < blueprint.vocabulary) continue;
    return make_error(ErrorCode::invalid_argument,
                      "prompt: token " + std::to_string(token) + " is outside the vocabulary of " + std::to_string(blueprint.vocabulary));
  }
  CHORUS_TRY(check_sampling(request.sampling, blueprint.vocabulary));
  if (request.start) {
    const std::vector<uint32_t>& begun = request.start->tokens;
    if (begun.size() >= request.prompt.size() || !std::equal(begun.begin(), begun.end(), request.prompt.begin())) {
      return make_error(ErrorCode::invalid_argument, "start: its tokens are not a proper beginning of the prompt");
    }
  }
  if (waiting_.size() >= options_.waiting_max) {
    return make_error(ErrorCode::limit_exceeded, "too many requests: " + std::to_string(options_.waiting_max) + " wait already");
  }
  auto running = std::make_unique<Running>();
  running->id = next_id_++;
  running->tokens = request.prompt;
  if (needs_row(request.sampling)) running->history.prompt.insert(request.prompt.begin(), request.prompt.end());
  running->request = std::move(request);
  waiting_.push_back(std::move(running));
  return waiting_.back()->id;
}

void Scheduler::stop(RequestId id) {
  for (const RunningPtr& running : running_) {
    if (running->id == id && !running->finished) finish(*running, FinishReason::stopped);
  }
  for (auto waiting = waiting_.begin(); waiting != waiting_.end(); ++waiting) {
    if ((*waiting)->id != id) continue;
    finish(**waiting, FinishReason::stopped);
    waiting_.erase(waiting);
    break;
  }
  drop_finished();
}

bool Scheduler::idle() const { return running_.empty() && waiting_.empty() && events_.empty(); }

std::vector<Event> Scheduler::step() {
  admit();
  const size_t before = running_.size();
  decode();
  read_chunk();
  drop_finished();
  if (running_.size() == before) end_a_standstill();
  return std::exchange(events_, {});
}

const SchedulerStats& Scheduler::stats() const {
  stats_.sequence_bytes = bytes_held();
  return stats_;
}

uint32_t Scheduler::first_capacity(const Running& running) const {
  const uint32_t wanted = running.request.tokens_max;
  const uint64_t answer = wanted > 0 ? std::min(wanted, kCapacityStep) : kCapacityStep;
  return static_cast<uint32_t>(std::min<uint64_t>(running.prompt_size() + answer, model_.blueprint().context));
}

uint64_t Scheduler::bytes_held() const {
  uint64_t bytes = *snapshot_bytes_;
  for (const RunningPtr& running : running_) {
    if (running->sequence) bytes += model_.sequence_bytes(running->sequence->capacity());
  }
  return bytes;
}

// An empty one, or a copy. Errors: out_of_memory also where the limit says so.
Result<std::unique_ptr<models::Sequence>> Scheduler::make_sequence(const models::Sequence* from, uint32_t capacity) {
  const uint64_t bytes = model_.sequence_bytes(capacity), held = bytes_held(), most = options_.sequence_bytes_max;
  if (most > 0 && (bytes > most || held > most - bytes)) {
    return make_error(ErrorCode::out_of_memory, "sequence memory: " + std::to_string(bytes) + " bytes for " + std::to_string(capacity) +
                                                    " tokens, over the limit of " + std::to_string(most) +
                                                    " for all sequences and snapshots, of which " + std::to_string(held) + " are in use");
  }
  auto made = from ? model_.clone(*from, capacity) : model_.new_sequence(capacity);
  if (made) stats_.sequence_bytes_peak = std::max(stats_.sequence_bytes_peak, held + bytes);
  return made;
}

SnapshotPtr Scheduler::snapshot(std::unique_ptr<models::Sequence> sequence, std::vector<uint32_t> tokens) {
  const uint64_t bytes = model_.sequence_bytes(sequence->capacity());
  *snapshot_bytes_ += bytes;
  std::shared_ptr<void> counted(nullptr, [total = snapshot_bytes_, bytes](void*) { *total -= bytes; });
  return std::make_shared<Snapshot>(Snapshot{std::move(sequence), std::move(tokens), std::move(counted)});
}

// In the order of submission: nobody overtakes a request that is too large for now, or a running one that needs room.
void Scheduler::admit() {
  if (std::any_of(running_.begin(), running_.end(), [](const RunningPtr& running) { return running->waits.has_value(); })) return;
  while (!waiting_.empty() && running_.size() < options_.running_max) {
    Running& next = *waiting_.front();
    Status opened = open_anyhow(next);
    const bool never = options_.sequence_bytes_max > 0 && model_.sequence_bytes(first_capacity(next)) > options_.sequence_bytes_max;
    if (!opened && opened.error().code == ErrorCode::out_of_memory && !running_.empty() && !never) return;  // when others have left
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    if (!opened) {
      finish(*running_.back(), FinishReason::failed, std::move(opened).error());
      drop_finished();
    } else {
      stats_.reused_tokens += running_.back()->read;
    }
  }
}

// The snapshot that a request starts from takes memory beside its sequence: without it the whole prompt is read.
Status Scheduler::open_anyhow(Running& running) {
  Status opened = open_sequence(running, first_capacity(running));
  if (opened || opened.error().code != ErrorCode::out_of_memory || !running.request.start || !running_.empty()) return opened;
  running.request.start.reset();
  ++stats_.starts_given_up;
  return open_sequence(running, first_capacity(running));
}

Status Scheduler::open_sequence(Running& running, uint32_t capacity) {
  const models::Sequence* start = running.request.start ? running.request.start->sequence.get() : nullptr;
  CHORUS_ASSIGN(running.sequence, make_sequence(start, std::max(capacity, running.start_size())));
  running.read = running.start_size();
  return {};
}

Status Scheduler::ensure_room(Running& running, uint32_t tokens) {
  const uint64_t needed = uint64_t{running.read} + tokens;
  if (needed <= running.sequence->capacity()) return {};
  const uint64_t wanted =
      std::max(needed, uint64_t{running.sequence->capacity()} + std::max(running.sequence->capacity() / 2, kCapacityStep));
  CHORUS_ASSIGN(auto larger,
                make_sequence(running.sequence.get(), static_cast<uint32_t>(std::min<uint64_t>(wanted, model_.blueprint().context))));
  running.sequence = std::move(larger);
  return {};
}

// Room for the next token. A sequence for which there is no memory sits out until another one has ended.
bool Scheduler::has_room(Running& running) {
  running.waits.reset();
  Status room = ensure_room(running, 1);
  if (room) return true;
  if (room.error().code != ErrorCode::out_of_memory) {
    finish(running, FinishReason::failed, std::move(room).error());
    return false;
  }
  running.waits = std::move(room).error();
  ++stats_.waits_for_room;
  return false;
}

// All wait for memory that only the end of one of them sets free: the youngest has the least to lose.
void Scheduler::end_a_standstill() {
  if (running_.empty() || std::any_of(running_.begin(), running_.end(), [](const RunningPtr& running) { return !running->waits; })) return;
  Running& youngest = *running_.back();
  finish(youngest, FinishReason::failed, std::exchange(youngest.waits, std::nullopt));
  drop_finished();
}

// Reads the next `tokens` tokens of one sequence.
Result<models::Logits> Scheduler::advance(Running& running, uint32_t tokens) {
  CHORUS_TRY(ensure_room(running, tokens));
  // What follows inside the prompt; not the answer, which was not there when the prompt was read first.
  const uint32_t end = running.read + tokens;
  const models::SequenceStep step{running.sequence.get(), std::span(running.tokens).subspan(running.read, tokens),
                                  std::max(running.prompt_size(), end) - end};
  CHORUS_ASSIGN(models::Logits logits, model_.forward(std::span(&step, 1), models::OutputRows::last));
  running.read += tokens;
  return logits;
}

void Scheduler::decode() {
  Timer timer(stats_.decode_seconds);
  std::vector<Running*> ready;
  std::vector<models::SequenceStep> steps;
  for (const RunningPtr& running : running_) {
    if (running->finished || running->read < running->prompt_size()) continue;
    if (!has_room(*running)) continue;
    ready.push_back(running.get());
    steps.push_back({running->sequence.get(), std::span(running->tokens).subspan(running->read, 1)});
  }
  if (ready.empty()) return;
  ++stats_.decode_passes;
  auto logits = model_.forward(steps, models::OutputRows::last);
  if (!logits) {
    recover(ready, logits.error());
    return;
  }
  for (Running* running : ready) ++running->read;
  choose(ready, *logits);
}

// After a failed call of several sequences: each is read again as it was read before, and takes its step alone. Those that fail alone end.
void Scheduler::recover(const std::vector<Running*>& lost, const Error& error) {
  if (lost.size() == 1 || error.code == ErrorCode::device_lost) {
    for (Running* running : lost) finish(*running, FinishReason::failed, error);
    return;
  }
  // All go before the first is rebuilt: room for each other. At the size that it had: growing anew would take old and new at once.
  std::vector<uint32_t> capacities;
  for (Running* running : lost) {
    capacities.push_back(running->sequence->capacity());
    running->sequence.reset();
  }
  for (size_t i = 0; i < lost.size(); ++i) {
    Running* running = lost[i];
    Status built = rebuild(*running, capacities[i]);
    Result<models::Logits> logits = built ? advance(*running, 1) : Result<models::Logits>(std::move(built).error());
    if (logits) {
      choose({running}, *logits);
    } else {
      finish(*running, FinishReason::failed, std::move(logits).error());
    }
  }
}

// The same chunks and steps as before, so that every bit is the same.
Status Scheduler::rebuild(Running& running, uint32_t capacity) {
  const uint32_t target = std::exchange(running.read, 0);
  CHORUS_TRY(open_sequence(running, capacity));
  while (running.read < target) {
    const uint32_t tokens = running.read < running.prompt_size() ? std::min(options_.chunk, running.prompt_size() - running.read) : 1;
    CHORUS_TRY(advance(running, tokens));
    stats_.replayed_tokens += tokens;
  }
  return {};
}

void Scheduler::read_chunk() {
  Timer timer(stats_.prompt_seconds);
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [](const RunningPtr& running) { return !running->finished && running->read < running->prompt_size(); });
  if (found == running_.end()) return;
  Running& running = **found;
  const uint32_t tokens = std::min(options_.chunk, running.prompt_size() - running.read);
  ++stats_.prompt_passes;
  auto logits = advance(running, tokens);
  if (!logits) {
    finish(running, FinishReason::failed, std::move(logits).error());
    return;
  }
  stats_.prompt_tokens += tokens;
  if (running.read < running.prompt_size()) return;
  if (Status kept = keep_prompt(running); !kept) {
    finish(running, FinishReason::failed, std::move(kept).error());
    return;
  }
  choose({&running}, *logits);
}

// Without memory for a snapshot the answer still comes; who wanted to go on from there reads the prompt again.
Status Scheduler::keep_prompt(Running& running) {
  if (!running.request.keep_prompt) return {};
  auto copy = make_sequence(running.sequence.get(), running.read);
  if (copy) {
    running.prompt = snapshot(std::move(copy).value(), running.request.prompt);
  } else if (copy.error().code == ErrorCode::out_of_memory) {
    ++stats_.prompts_not_kept;
  } else {
    return std::move(copy).error();
  }
  return {};
}

void Scheduler::choose(const std::vector<Running*>& rows, const models::Logits& logits) {
  std::vector<RowChoice> how;
  for (const Running* running : rows) how.push_back({&running->request.sampling, running->answer_size(), &running->history});
  auto choices = chooser_.choose(logits, model_.blueprint().vocabulary, how);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!choices) {
      finish(*rows[i], FinishReason::failed, choices.error());
    } else if (!(*choices)[i]) {
      finish(*rows[i], FinishReason::failed, std::move((*choices)[i]).error());
    } else {
      accept(*rows[i], std::move((*choices)[i]).value());
    }
  }
}

void Scheduler::accept(Running& running, TokenChoice choice) {
  const uint32_t token = choice.token;
  running.tokens.push_back(token);
  if (needs_row(running.request.sampling)) ++running.history.answer[token];
  ++stats_.answer_tokens;
  Event event;
  event.request = running.id;
  event.token = std::move(choice);
  events_.push_back(std::move(event));
  const std::vector<uint32_t>& ends = running.request.end_tokens;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
    finish(running, FinishReason::end_token);
  } else if (running.request.tokens_max > 0 && running.answer_size() >= running.request.tokens_max) {
    finish(running, FinishReason::tokens_max);
  } else if (running.tokens.size() > model_.blueprint().context) {
    finish(running, FinishReason::context_full);
  }
}

void Scheduler::finish(Running& running, FinishReason reason, std::optional<Error> error) {
  running.finished = true;
  Event event;
  event.request = running.id;
  event.finished = reason;
  event.error = std::move(error);
  event.prompt = std::move(running.prompt);
  event.reused_tokens = running.start_size();
  if (running.request.keep_end && reason != FinishReason::failed && running.sequence && running.read > 0) {
    std::vector<uint32_t> read(running.tokens.begin(), running.tokens.begin() + running.read);
    event.end = snapshot(std::move(running.sequence), std::move(read));
  }
  running.sequence.reset();
  events_.push_back(std::move(event));
}

void Scheduler::drop_finished() {
  running_.erase(std::remove_if(running_.begin(), running_.end(), [](const RunningPtr& running) { return running->finished; }),
                 running_.end());
}

}  // namespace chorus::generation
