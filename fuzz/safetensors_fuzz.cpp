// The header of a safetensors file: whatever is accepted describes bytes that lie in the file.
#include "formats/safetensors.h"
#include "fuzz_tools.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace chorus;
  auto header = formats::parse_safetensors_header(fuzz::as_bytes(data, size), "fuzz");
  if (!header) {
    fuzz::require(!header.error().message.empty(), "an error says something");
    return 0;
  }
  uint64_t total = 0;
  for (const formats::TensorInfo& tensor : header->tensors) {
    fuzz::require(tensor.offset <= size && tensor.bytes <= size - tensor.offset, "a tensor lies in the file");
    fuzz::require(tensor.bytes == tensor.elements * formats::file_dtype_bytes(tensor.dtype), "bytes = elements * element size");
    fuzz::require(tensor.bytes == 0 || tensor.offset % formats::file_dtype_bytes(tensor.dtype) == 0, "elements are aligned");
    total += tensor.bytes;
  }
  fuzz::require(total <= size, "tensors do not overlap");
  return 0;
}
