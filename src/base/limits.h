// Every limit on a size that comes from outside, in one place. Bytes unless the name says otherwise.
#pragma once

#include <cstdint>

namespace chorus::limits {

inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100ull << 20;  // the reference library's own cap
inline constexpr uint64_t kTensorCountMax = 1u << 20;
inline constexpr uint32_t kTensorRankMax = 8;
inline constexpr uint64_t kJsonBytesMax = 64ull << 20;
inline constexpr uint32_t kJsonDepthMax = 100;
inline constexpr uint64_t kJsonValuesMax = 8u << 20;  // a tokenizer of 250,000 merges has about 1.3 million
inline constexpr uint64_t kTokenizerBytesMax = 256ull << 20;
inline constexpr uint64_t kHeadFileBytesMax = 1ull << 30;
inline constexpr uint64_t kRequestBytesMax = 64ull << 20;
inline constexpr uint64_t kTextBytesMax = 64ull << 20;
inline constexpr uint32_t kOptionsMax = 255;            // per question; Kev 1.0
inline constexpr uint32_t kQuestionsMax = 65536;        // per request; ours, Kev 1.0 has none
inline constexpr uint32_t kStateTokensDefault = 65536;  // Kev 1.0, state delimiter included
inline constexpr uint32_t kRowTokensDefault = 73728;    // Kev 1.0, state + one branch
inline constexpr uint32_t kLayersMax = 1024;
inline constexpr uint32_t kModelDimensionMax = 1u << 20;
inline constexpr uint32_t kVocabularyMax = 1u << 24;

}  // namespace chorus::limits
