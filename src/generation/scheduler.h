// Several sequences on one language model: they join and leave between steps, prompts are read in chunks, one-token steps run together.
// Owns: which tokens go through the model when, and what happens when one request fails. Must not know: text, devices.
// A request's tokens do not depend on what else runs. One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "generation/sampling.h"
#include "models/language_model.h"

namespace chorus::generation {

using RequestId = uint64_t;

// A sequence as it stood after `tokens`: what a request can start from, any number of times. Its memory counts as long as somebody has it.
struct Snapshot {
  std::shared_ptr<const models::Sequence> sequence;
  std::vector<uint32_t> tokens;
  std::shared_ptr<void> counted;  // gives its bytes back to the scheduler that made it
};
using SnapshotPtr = std::shared_ptr<const Snapshot>;

struct GenerationRequest {
  std::vector<uint32_t> prompt;  // all of it, at least one token
  SamplingOptions sampling;
  uint32_t tokens_max = 0;           // of the answer; 0: as many as the context holds
  std::vector<uint32_t> end_tokens;  // each ends the answer, of which it is the last token
  SnapshotPtr start;                 // null, or a snapshot whose tokens are a proper beginning of the prompt
  bool keep_prompt = false;          // the last event has a snapshot of the prompt, if there was memory for one
  bool keep_end = false;             // the last event has a snapshot of everything read
};

enum class FinishReason {
  end_token,
  tokens_max,
  context_full,  // of the model
  stopped,       // by stop()
  failed,        // see the error
};

// A token of a request, or its end. A request's events come in order; nothing follows the end.
struct Event {
  RequestId request = 0;
  std::optional<TokenChoice> token;
  std::optional<FinishReason> finished;
  std::optional<Error> error;
  SnapshotPtr prompt, end;
  uint32_t reused_tokens = 0;  // with the end: of the prompt, those that the start had read
};

struct SchedulerOptions {
  uint32_t running_max = 8;     // sequences that exist at once
  uint32_t waiting_max = 1024;  // requests that wait for one
  uint32_t chunk = 512;         // tokens of a prompt that one step reads
  // Of all sequences and snapshots together, by LanguageModel::sequence_bytes; 0: what the device gives. A request that does not fit waits
  // for others to end, the next longer sequence of one that runs too; what does not fit alone ends with an error that names the limit.
  uint64_t sequence_bytes_max = 0;
};

struct SchedulerStats {
  uint64_t prompt_tokens = 0, reused_tokens = 0, answer_tokens = 0, replayed_tokens = 0;
  uint64_t prompt_passes = 0, decode_passes = 0;
  double prompt_seconds = 0, decode_seconds = 0;         // choosing included
  uint64_t sequence_bytes = 0, sequence_bytes_peak = 0;  // of sequences and snapshots
  uint64_t waits_for_room = 0;                           // steps that a running sequence sat out
  uint64_t starts_given_up = 0, prompts_not_kept = 0;    // snapshots for which there was no memory
};

class Scheduler {
 public:
  Scheduler(models::LanguageModel& model, const SchedulerOptions& options);
  ~Scheduler();

  // Errors: invalid_argument; limit_exceeded (the prompt is over the model's context, or too many wait).
  Result<RequestId> submit(GenerationRequest request);
  // Ends a request; its last event comes with the next step. An id that does not run is ignored.
  void stop(RequestId id);

  bool idle() const;  // nothing runs, waits or has an event to give
  // One one-token step of every sequence that reads its answer, and one chunk of the oldest prompt.
  std::vector<Event> step();

  const SchedulerStats& stats() const;

 private:
  struct Running;
  using RunningPtr = std::unique_ptr<Running>;

  void admit();
  uint64_t bytes_held() const;
  Result<std::unique_ptr<models::Sequence>> make_sequence(const models::Sequence* from, uint32_t capacity);
  SnapshotPtr snapshot(std::unique_ptr<models::Sequence> sequence, std::vector<uint32_t> tokens);
  Status open_sequence(Running& running, uint32_t capacity);
  Status open_anyhow(Running& running);
  Status ensure_room(Running& running, uint32_t tokens);
  bool has_room(Running& running);
  Status keep_prompt(Running& running);
  void end_a_standstill();
  uint32_t first_capacity(const Running& running) const;
  void decode();
  void recover(const std::vector<Running*>& lost, const Error& error);
  Status rebuild(Running& running, uint32_t capacity);
  void read_chunk();
  Result<models::Logits> advance(Running& running, uint32_t tokens);
  void choose(const std::vector<Running*>& rows, const models::Logits& logits);
  void accept(Running& running, TokenChoice choice);
  void finish(Running& running, FinishReason reason, std::optional<Error> error = {});
  void drop_finished();

  models::LanguageModel& model_;
  SchedulerOptions options_;
  TokenChooser chooser_;
  RequestId next_id_ = 1;
  std::deque<RunningPtr> waiting_;
  std::vector<RunningPtr> running_;
  std::vector<Event> events_;
  std::shared_ptr<uint64_t> snapshot_bytes_ = std::make_shared<uint64_t>(0);
  mutable SchedulerStats stats_;
};

}  // namespace chorus::generation
