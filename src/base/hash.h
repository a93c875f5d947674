// SHA-256, through OpenSSL.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace chorus {

// 64 lower-case hexadecimal digits.
Result<std::string> sha256_hex(std::span<const std::byte> bytes);

}  // namespace chorus
