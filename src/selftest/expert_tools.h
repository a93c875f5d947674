// Seeded experts as values and as records. Header front door: selftest.h.
#pragma once

#include <cstddef>
#include <vector>

#include "compute/backend.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {

struct Expert {
  std::vector<float> gate_up, down;            // [2 * inner, hidden], [hidden, inner]
  std::vector<float> gate_up_bias, down_bias;  // or empty
};

Expert random_expert(const compute::ExpertShape& shape, Random& random);
std::vector<std::byte> make_record(const compute::ExpertShape& shape, const Expert& expert);
// A bank with `experts` in the slots of the same index.
Result<std::shared_ptr<compute::ExpertBank>> upload_bank(compute::Backend& backend, const compute::ExpertShape& shape,
                                                         std::span<const Expert> experts);

}  // namespace chorus::selftest
