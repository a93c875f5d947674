// Checks of whole models that hold on every backend; called by model_cpu_test.cpp and model_webgpu_test.cpp.
// Each adds GoogleTest failures; nothing is skipped.
#pragma once

#include <cstdint>
#include <set>

#include "compute/backend.h"
#include "tensor/dtype.h"

namespace chorus::model_suite {

// verify of the fixture and of kev-mini against the shipped references.
void check_fixture_against_reference(compute::Backend& backend, DType dtype);
// The same, where a prompt takes several passes: its hidden states are compared too.
void check_hidden_states_in_pieces(compute::Backend& backend);
void check_kev_mini_against_reference(compute::Backend& backend, DType dtype);

// Any split of a prompt gives the same state and logits to 2e-5, norm of the difference by norm. Each tensor of the state by itself differs
// by no more than four times what it moves when every number of the embedding is moved to a neighbouring float (docs/testing.md).
void check_prompt_splits(compute::Backend& backend);

// Calls of so many questions, 9 among them: together or alone within 1e-5; repeated, in other orders of calls and of questions
// bit-identical; the prefix untouched.
void check_question_batches(compute::Backend& backend, const std::set<uint32_t>& counts);

// A branch longer than a pass, and questions split over many passes, agree with one big pass.
void check_small_passes(compute::Backend& backend);

// Two prefixes used in turn do not touch each other.
void check_two_prefixes(compute::Backend& backend);

// A state of `tokens` random tokens stays finite and moves answers as any other.
void check_long_state(compute::Backend& backend, uint32_t tokens);

}  // namespace chorus::model_suite
