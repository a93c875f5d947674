#include "experts/element_runs.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "experts/expert_values.h"

namespace chorus::experts {

using formats::FileDType;

namespace {

constexpr float kHalfEnd = 65520;  // from here on f16 rounds to infinity
constexpr size_t kBlock = 4096;    // numbers that pass through f32 at a time

// Numbers of 16 or 32 bits, several in a word. Adding the exponent's lowest bit to the exponent's bits carries into the sign's place
// exactly when all of them are set, which is what infinity and NaN have.
struct Lanes {
  uint64_t exponent, step, sign;
};
constexpr Lanes kBf16Lanes{0x7f807f807f807f80u, 0x0080008000800080u, 0x8000800080008000u};
constexpr Lanes kF16Lanes{0x7c007c007c007c00u, 0x0400040004000400u, 0x8000800080008000u};
constexpr Lanes kF32Lanes{0x7f8000007f800000u, 0x0080000000800000u, 0x8000000080000000u};

constexpr Lanes lanes_of(DType type) { return type == DType::bf16 ? kBf16Lanes : type == DType::f16 ? kF16Lanes : kF32Lanes; }

// bf16 is the upper half of f32. False when a number is not finite.
bool widen_bf16(std::span<const std::byte> values, std::byte* out) {
  uint64_t found = 0;
  size_t at = 0;
  for (; at + 8 <= values.size(); at += 8) {
    const uint64_t word = load_unaligned<uint64_t>(values.data() + at);
    found |= (word & kBf16Lanes.exponent) + kBf16Lanes.step;
    const uint64_t pairs[2] = {(word & 0xffffu) << 16 | (word & 0xffff0000u) << 32, (word >> 32 & 0xffffu) << 16 | word >> 48 << 48};
    std::memcpy(out + 2 * at, pairs, sizeof(pairs));
  }
  for (; at < values.size(); at += 2) {
    const uint16_t bits = load_unaligned<uint16_t>(values.data() + at);
    found |= (bits & kBf16Lanes.exponent) + kBf16Lanes.step;
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    std::memcpy(out + 2 * at, &wide, sizeof(wide));
  }
  return (found & kBf16Lanes.sign) == 0;
}

Error not_finite(const std::string& what) {
  return make_error(ErrorCode::invalid_input, what + ": expected finite numbers, found NaN or infinity");
}

}  // namespace

FileDType file_type_of(DType type) {
  switch (type) {
    case DType::f32:
      return FileDType::F32;
    case DType::f16:
      return FileDType::F16;
    case DType::bf16:
      return FileDType::BF16;
  }
  return FileDType::F32;
}

bool all_finite(std::span<const std::byte> values, DType type) {
  const Lanes lanes = lanes_of(type);
  uint64_t found = 0;
  size_t at = 0;
  for (; at + 8 <= values.size(); at += 8) found |= (load_unaligned<uint64_t>(values.data() + at) & lanes.exponent) + lanes.step;
  uint64_t rest = 0;
  std::memcpy(&rest, values.data() + at, values.size() - at);
  found |= (rest & lanes.exponent) + lanes.step;
  return (found & lanes.sign) == 0;
}

Status convert_elements(std::span<const std::byte> values, FileDType from, DType to, const std::string& what, std::span<std::byte> out) {
  const uint64_t source_bytes = formats::file_dtype_bytes(from), target_bytes = dtype_bytes(to);
  const uint64_t count = out.size() / target_bytes;
  CHORUS_CHECK(values.size() == count * source_bytes);
  if (from == file_type_of(to) || (from == FileDType::BF16 && to == DType::f32)) {
    bool finite = true;
    if (from == FileDType::BF16 && to == DType::f32) {
      finite = widen_bf16(values, out.data());
    } else {
      std::memcpy(out.data(), values.data(), values.size());
      finite = all_finite(values, to);
    }
    if (!finite) return not_finite(what);
    return {};
  }
  float block[kBlock];
  for (uint64_t at = 0; at < count; at += kBlock) {
    const std::span<float> numbers(block, std::min<uint64_t>(kBlock, count - at));
    widen(from, values.data() + at * source_bytes, numbers);
    const float largest = store_rows(numbers, 0, 1, 1, numbers.size(), numbers.size(), to, out.data() + at * target_bytes);
    if (!std::isfinite(largest)) return not_finite(what);
    if (to == DType::f16 && largest >= kHalfEnd) {
      return make_error(ErrorCode::unsupported,
                        what + ": f16 holds magnitudes below 65520, found " + std::to_string(largest) + "; bf16 and f32 hold it");
    }
  }
  return {};
}

Status read_elements(const DirectFile& file, uint64_t offset, FileDType from, DType to, const std::string& what, std::span<std::byte> out) {
  const uint64_t source_bytes = formats::file_dtype_bytes(from), target_bytes = dtype_bytes(to);
  uint64_t done = 0;
  return file.read_through(offset, out.size() / target_bytes * source_bytes, [&](std::span<const std::byte> piece) -> Status {
    const auto target = out.subspan(done, piece.size() / source_bytes * target_bytes);
    done += target.size();
    auto status = convert_elements(piece, from, to, what, target);
    if (status.ok()) return status;
    return make_error(status.error().code, file.path().string() + ": " + status.error().message);
  });
}

}  // namespace chorus::experts
