// `chorus pack` for language models: one file with everything that running needs (docs/expert-pack.md).
#pragma once

#include <filesystem>
#include <functional>

#include "base/result.h"
#include "experts/expert_store.h"
#include "models/language_checkpoint.h"

namespace chorus::experts {

// The tensors of everything but the experts are copied as they are, so that they give the same numbers as the folder does.
// `store`: of the same model, null when it has no experts; records are written in its type. `progress`: bytes of experts; may be empty.
// Read back with models::open_language_checkpoint and open_packed_store.
Status write_model_pack(const models::LanguageCheckpoint& checkpoint, const ExpertStore* store, const std::filesystem::path& out,
                        const std::function<void(uint64_t done, uint64_t total)>& progress = {});

}  // namespace chorus::experts
