// Checks of language models of every family that hold on every backend; called by language_cpu_test.cpp and language_webgpu_test.cpp.
// Each adds GoogleTest failures; nothing is skipped.
#pragma once

#include <span>
#include <string_view>

#include "compute/backend.h"

namespace chorus::language_suite {

// The fixtures under tests/data that are language models.
std::span<const std::string_view> fixtures();

// Logits, hidden states and greedy continuations against the reference, in f32.
void check_against_reference(compute::Backend& backend, std::string_view fixture);
// moe-mini against the texts that the reference generated, token by token.
void check_generated_texts(compute::Backend& backend);

// A prompt in one piece and in pieces of 1, 7 and 64: logits within 2e-5, norm of the difference by norm. Steps of one token, alone and
// eight sequences together: the same bits.
void check_splits_and_company(compute::Backend& backend, std::string_view fixture);
// Sparse attention: a sequence that is continued token by token, greedily, against the same text read anew at every length, both choosing
// keys for the same final length, so that the sets of chosen keys are equal: logits within 2e-5, norm of the difference by norm.
void check_continued_choices(compute::Backend& backend, std::string_view fixture, uint32_t steps);
// Hidden states of a prompt that takes several passes are compared with the reference like others.
void check_hidden_states_in_pieces(compute::Backend& backend, std::string_view fixture);
// A clone continues as its original would have; the original does not notice.
void check_clones(compute::Backend& backend, std::string_view fixture);
// Bad steps are refused in one line, and what was refused changes no other sequence.
void check_bad_steps(compute::Backend& backend);

}  // namespace chorus::language_suite
