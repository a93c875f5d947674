// How many experts are kept where. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace chorus::experts {

struct BudgetInput {
  uint64_t record_bytes = 0;           // what one expert takes in memory
  uint64_t experts = 0;                // of all layers
  bool in_place = true;                // the backend computes from host memory: no device budget
  bool shared_memory = false;          // device memory is taken from host memory (a software adapter)
  uint64_t host_bytes = 0;             // asked for; 0: from `free_bytes`
  uint64_t device_bytes = 0;           // asked for; 0: all experts, or from `free_bytes` with shared memory
  std::optional<uint64_t> free_bytes;  // of the system; nothing when it does not say
  uint64_t resident_bytes = 0;         // that the rest of the model will take of it
};

struct Budget {
  bool resident = false;    // every expert fits where the backend computes
  uint32_t host_slots = 0;  // 0 when all are resident on the device
  uint32_t device_slots = 0;
};

// Errors: invalid_argument (an asked budget below one expert), out_of_memory (too little is free for one).
Result<Budget> plan_budget(const BudgetInput& input);

}  // namespace chorus::experts
