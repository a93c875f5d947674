// Which experts a model's texts use, learned over runs: a small JSON file beside the model.
// Owns: the file's form and place. Must not know: caches.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/result.h"
#include "experts/expert_store.h"

namespace chorus::experts {

// Uses of every expert; older runs count half for each run since.
class ExpertUsage {
 public:
  ExpertUsage() = default;
  explicit ExpertUsage(std::span<const uint32_t> experts_per_layer);

  void add(ExpertKey key, double uses = 1) { uses_[key.layer][key.expert] += uses; }
  double uses(ExpertKey key) const { return uses_[key.layer][key.expert]; }
  bool empty() const;
  // The `count` most used, most used first; those never used are left out. Of equals the lower layer, then the lower expert.
  std::vector<ExpertKey> most_used(size_t count) const;

  // Adds what an earlier run has left, halved. A missing file is no error and adds nothing. A file that does not fit the model is an error.
  Status load(const std::filesystem::path& path);
  Status save(const std::filesystem::path& path) const;

 private:
  std::vector<std::vector<double>> uses_;  // [layer][expert]
};

// MODEL/.chorus-experts.json for a folder, .NAME.chorus-experts.json beside a packed file.
std::filesystem::path usage_file_of(const std::filesystem::path& model);

}  // namespace chorus::experts
