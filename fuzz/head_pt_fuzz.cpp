// head.pt: the zip archive and the pickle inside. Whatever is accepted is a whole, finite head.
#include "formats/head_file.h"
#include "fuzz_tools.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace chorus;
  auto file = formats::parse_head_pt(fuzz::as_bytes(data, size), "fuzz");
  if (!file) return 0;
  const formats::PointerHead& head = file->head;
  const uint64_t count = static_cast<uint64_t>(head.head_dim) * head.hidden_size;
  fuzz::require(count > 0 && head.q_weight.size() == count && head.k_weight.size() == count, "weights have the stated shape");
  fuzz::require(head.q_bias.size() == head.head_dim && head.k_bias.size() == head.head_dim, "biases have the stated shape");
  fuzz::require(formats::check_head(head, "fuzz").ok(), "an accepted head passes its own check");
  fuzz::require(file->metadata.temperature > 0, "the temperature is positive");
  return 0;
}
