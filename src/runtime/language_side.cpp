#include "runtime/language_side.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

namespace chorus::runtime {

Result<std::unique_ptr<LanguageSide>> load_language_side(const models::LanguageCheckpoint& checkpoint, const LanguageOptions& options,
                                                         const BackendFactory& factory) {
  auto side = std::make_unique<LanguageSide>();
  CHORUS_ASSIGN(side->choice, factory(options.backend));
  experts::ExpertOptions expert_options = options.experts;
  expert_options.log = options.log;
  expert_options.progress = options.progress;
  CHORUS_ASSIGN(side->experts, experts::open_experts(*side->choice.backend, checkpoint, options.dtype, expert_options));
  models::LanguageModelOptions model_options;
  model_options.dtype = options.dtype;
  model_options.progress = options.progress;
  CHORUS_ASSIGN(side->model, models::LanguageModel::load(*side->choice.backend, checkpoint.blueprint, *checkpoint.weights,
                                                         side->experts->executor(), model_options));
  return side;
}

ProcessMemory process_memory() {
  ProcessMemory memory;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) memory.peak = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  if (file >> total >> resident) memory.resident = resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  memory.peak = std::max(memory.peak, memory.resident);  // the system notes the peak only now and then
  return memory;
}

}  // namespace chorus::runtime
