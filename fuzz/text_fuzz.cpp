// Any text through the shipped tokenizer: valid UTF-8 is encoded, ids lie in the vocabulary, and the text comes back up to normalisation.
#include <fstream>
#include <iterator>

#include "formats/tokenizer.h"
#include "fuzz_tools.h"

namespace {

const chorus::formats::Tokenizer& shipped_tokenizer() {
  static const chorus::formats::Tokenizer tokenizer = [] {
    std::ifstream file(CHORUS_MODELS "/kev-mini-base/tokenizer.json", std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    auto parsed = chorus::formats::Tokenizer::parse(text);
    chorus::fuzz::require(parsed.ok(), "the shipped tokenizer is read");
    return std::move(parsed).value();
  }();
  return tokenizer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace chorus;
  const formats::Tokenizer& tokenizer = shipped_tokenizer();
  auto ids = tokenizer.encode(fuzz::as_text(data, size));
  if (!ids) return 0;
  for (uint32_t id : *ids) fuzz::require(id < tokenizer.vocabulary_size(), "ids lie in the vocabulary");
  auto text = tokenizer.decode(*ids);
  fuzz::require(text.ok(), "own ids decode");
  auto again = tokenizer.encode(*text);
  fuzz::require(again.ok(), "decoded text is valid");
  auto text_again = tokenizer.decode(*again);
  fuzz::require(text_again.ok() && *text_again == *text, "normalised text comes back unchanged");
  return 0;
}
