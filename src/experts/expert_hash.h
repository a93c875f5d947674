// The hash of an expert's record: XXH3, 128 bits, in its canonical form. It finds damage, not malice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace chorus::experts {

using ExpertHash = std::array<uint8_t, 16>;

ExpertHash hash_of(std::span<const std::byte> record);
std::string hash_text(const ExpertHash& hash);  // 32 hexadecimal digits

}  // namespace chorus::experts
