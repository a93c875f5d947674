// Runs of numbers from a file to a record: read in place when the types agree, converted on the way otherwise.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "experts/direct_file.h"
#include "formats/safetensors.h"
#include "tensor/dtype.h"

namespace chorus::experts {

// out.size() / dtype_bytes(to) numbers from byte `offset` of the file. A number that is not finite, or that f16 does not hold, is an error
// that names file and `what`. `offset` is a multiple of the element's size.
Status read_elements(const DirectFile& file, uint64_t offset, formats::FileDType from, DType to, const std::string& what,
                     std::span<std::byte> out);

// The same conversion from memory.
Status convert_elements(std::span<const std::byte> values, formats::FileDType from, DType to, const std::string& what,
                        std::span<std::byte> out);

bool all_finite(std::span<const std::byte> values, DType type);
formats::FileDType file_type_of(DType type);

}  // namespace chorus::experts
