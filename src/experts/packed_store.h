// Experts of a file made by `chorus pack`: record after record, at multiples of 4 KiB, each with a hash (docs/expert-pack.md).
// Owns: the part of the packed file that holds experts: its names, numbers and checks, for reading and for writing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "experts/expert_store.h"
#include "models/language_checkpoint.h"

namespace chorus::experts {

inline constexpr uint64_t kPackedAlignment = 4096;
inline constexpr uint64_t kHashBytes = 16;                                 // XXH3, 128 bits, canonical (big-endian) form
inline constexpr std::string_view kPackedHashes = "chorus.expert_hashes";  // U8 [experts of all layers, 16]
inline constexpr const char* kPackedExpertsKey = "experts";                // of __metadata__: JSON, below
inline std::string packed_experts_name(uint32_t layer) { return "chorus.experts." + std::to_string(layer); }  // U8 [experts, stride]
inline uint64_t packed_stride(uint64_t record_bytes) { return (record_bytes + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment; }

std::string packed_experts_json(const compute::ExpertShape& shape);
Result<compute::ExpertShape> parse_packed_experts(std::string_view json, const std::string& where);

// Checks every number of the file against the others and against the blueprint. Records are handed out in `dtype`, converted while reading
// when the file has another.
Result<std::unique_ptr<ExpertStore>> open_packed_store(const models::LanguageCheckpoint& checkpoint, DType dtype, bool direct_io);

}  // namespace chorus::experts
