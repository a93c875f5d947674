// A language model on a backend: the parts that belong together, loaded and destroyed in order. For the public TextModel and for programs
// that need logits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/log.h"
#include "base/result.h"
#include "experts/expert_system.h"
#include "models/language_checkpoint.h"
#include "models/language_model.h"
#include "runtime/backend_choice.h"
#include "runtime/model.h"

namespace chorus::runtime {

struct LanguageOptions {
  BackendRequest backend;
  DType dtype = DType::f32;
  experts::ExpertOptions experts;  // log and progress are set from here
  LogSink log;
  std::function<void(uint64_t done, uint64_t total)> progress;
};

struct LanguageSide {
  BackendChoice choice;
  std::unique_ptr<experts::ExpertSystem> experts;
  std::unique_ptr<models::LanguageModel> model;  // destroyed first
};

// `checkpoint` must outlive the result.
Result<std::unique_ptr<LanguageSide>> load_language_side(const models::LanguageCheckpoint& checkpoint, const LanguageOptions& options,
                                                         const BackendFactory& factory = choose_backend);

// Resident memory of the process now and at its largest; 0 where the system does not say.
struct ProcessMemory {
  uint64_t resident = 0, peak = 0;
};
ProcessMemory process_memory();

}  // namespace chorus::runtime
