#include "kernels/common/cpu_targets.h"

#include <cctype>

namespace chorus::kernels {
namespace {

struct Target {
  std::string name;
  int64_t bit;
};

// Lower bits are better targets.
std::vector<Target> find_targets() {
  std::vector<Target> targets;
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    const int64_t bit = left & -left;
    std::string name = hwy::TargetName(bit);
    for (char& letter : name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    targets.push_back({std::move(name), bit});
  }
  return targets;
}

// The processor does not change while the program runs.
const std::vector<Target>& targets() {
  static const std::vector<Target> found = find_targets();
  return found;
}

}  // namespace

const std::vector<std::string>& simd_targets() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Target& target : targets()) list.push_back(target.name);
    return list;
  }();
  return names;
}

int64_t simd_target(std::string_view variant) {
  const std::string_view name = variant.substr(0, variant.find('.'));
  for (const Target& target : targets()) {
    if (target.name == name) return target.bit;
  }
  return targets().front().bit;
}

}  // namespace chorus::kernels
