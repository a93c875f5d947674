#include "experts/expert_hash.h"

#include <xxhash.h>

#include <cstring>

namespace chorus::experts {

ExpertHash hash_of(std::span<const std::byte> record) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(record.data(), record.size()));
  ExpertHash hash;
  static_assert(sizeof(hash) == sizeof(canonical.digest));
  std::memcpy(hash.data(), canonical.digest, sizeof(hash));
  return hash;
}

std::string hash_text(const ExpertHash& hash) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : hash) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace chorus::experts
