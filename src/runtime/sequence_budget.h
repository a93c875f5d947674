// How much memory sequences get when nobody says. Pure.
#pragma once

#include <cstdint>
#include <optional>

namespace chorus::runtime {

struct SequenceBudgetInput {
  bool in_host_memory = true;          // the CPU backend, or a software adapter
  std::optional<uint64_t> free_bytes;  // of the system, with the weights loaded; nothing when it does not say
  uint64_t claimed_bytes = 0;          // of them, what will still be taken: experts that were not read yet, workspace
};

// Bytes for all sequences and snapshots. 0 on a device with memory of its own: WebGPU does not say how much that is, so what it refuses is
// the limit.
uint64_t default_sequence_bytes(const SequenceBudgetInput& input);

}  // namespace chorus::runtime
