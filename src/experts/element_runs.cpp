#include "experts/element_runs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "base/bytes.h"
#include "experts/expert_values.h"

namespace chorus::experts {

using formats::FileDType;

namespace {

constexpr float kHalfEnd = 65520;  // from here on f16 rounds to infinity
constexpr size_t kBlock = 4096;    // numbers that pass through f32 at a time

template <typename Bits>
bool all_below(std::span<const std::byte> values, Bits sign_mask, Bits infinity) {
  Bits largest = 0;
  for (size_t i = 0; i + sizeof(Bits) <= values.size(); i += sizeof(Bits)) {
    const Bits bits = static_cast<Bits>(load_unaligned<Bits>(values.data() + i) & sign_mask);
    largest = std::max(largest, bits);
  }
  return largest < infinity;
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
  switch (type) {
    case DType::f32:
      return all_below<uint32_t>(values, 0x7fffffffu, 0x7f800000u);
    case DType::f16:
      return all_below<uint16_t>(values, 0x7fffu, 0x7c00u);
    case DType::bf16:
      return all_below<uint16_t>(values, 0x7fffu, 0x7f80u);
  }
  return false;
}

Status convert_elements(std::span<const std::byte> values, FileDType from, DType to, const std::string& what, std::span<std::byte> out) {
  const uint64_t source_bytes = formats::file_dtype_bytes(from), target_bytes = dtype_bytes(to);
  const uint64_t count = out.size() / target_bytes;
  CHORUS_CHECK(values.size() == count * source_bytes);
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
  if (from == file_type_of(to)) {
    CHORUS_TRY(file.read(offset, out));
    if (!all_finite(out, to)) return make_error(ErrorCode::invalid_input, file.path().string() + ": " + not_finite(what).message);
    return {};
  }
  thread_local std::vector<std::byte> stored;
  try {
    stored.resize(out.size() / dtype_bytes(to) * formats::file_dtype_bytes(from));
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::out_of_memory, what + ": no memory for reading");
  }
  CHORUS_TRY(file.read(offset, stored));
  auto status = convert_elements(stored, from, to, what, out);
  if (!status.ok()) return make_error(status.error().code, file.path().string() + ": " + status.error().message);
  return {};
}

}  // namespace chorus::experts
