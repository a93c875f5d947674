// tokenizer.json: whatever is accepted encodes and decodes without a fault, and gives ids below its own vocabulary size.
#include "formats/tokenizer.h"
#include "fuzz_tools.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace chorus;
  auto tokenizer = formats::Tokenizer::parse(fuzz::as_text(data, size));
  if (!tokenizer) return 0;
  for (std::string_view text :
       {"", "Don't stop, the caf\xc3\xa9 has 12 tables.\r\n\n  Cafe\xcc\x81!", "<|endoftext|>\xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x99\x82"}) {
    auto ids = tokenizer->encode(text);
    if (!ids) continue;
    for (uint32_t id : *ids) fuzz::require(id < tokenizer->vocabulary_size(), "ids lie in the vocabulary");
    fuzz::require(tokenizer->decode(*ids).ok(), "own ids decode");
  }
  return 0;
}
