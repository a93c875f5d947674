// Where experts are changes no bit of a whole model's logits, on every backend; called by language_cpu_test.cpp and
// language_webgpu_test.cpp. Adds GoogleTest failures; nothing is skipped.
#pragma once

#include <string_view>

#include "compute/backend.h"
#include "models/blueprint.h"

namespace chorus::budget_suite {

// How far the logits of one text may differ when it is read in other pieces, norm of the difference by norm (docs/models.md).
double split_bound(const models::Blueprint& blueprint);

// With every expert resident, a budget of one expert per layer and one of half of them, guesses on and off: a prompt whole and in pieces of
// 1, 7 and 64 with tokens after it, and eight sequences alone and together. Every budget gives the bits of resident experts, company
// changes no bit, and pieces stay within the bound.
void check_budgets(compute::Backend& backend, std::string_view fixture);

}  // namespace chorus::budget_suite
