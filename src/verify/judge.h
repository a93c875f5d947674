// What both kinds of verification share: collecting errors and verdicts of one line.
#pragma once

#include <cmath>
#include <string>

#include "verify/verify.h"

namespace chorus::verify {

// Raises `worst` to the absolute error. NaN counts as infinitely wrong.
inline void take_error(double& worst, double found, double expected) {
  const double error = std::abs(found - expected);
  if (!(error <= worst)) worst = std::isnan(error) ? HUGE_VAL : error;
}

// Fails the line unless `good`; the first failure is its detail.
inline void judge(Line& line, bool good, const std::string& what) {
  if (good) return;
  if (line.pass) line.detail = what;
  line.pass = false;
}

}  // namespace chorus::verify
