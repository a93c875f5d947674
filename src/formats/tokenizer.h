// Text to token ids and back, as a Hugging Face tokenizer.json describes it. Owns: reading that file, NFC, splitting, byte-level BPE,
// added tokens. Must not know: prompts, delimiters, models. Everything is driven by the file; a file that needs something else (another
// model type, normaliser, pre-tokeniser or split pattern) is refused with what was found. Immutable after parse, cheap to copy, and safe to
// share between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace chorus::formats {

class Tokenizer {
 public:
  // The bytes of a tokenizer.json.
  static Result<Tokenizer> parse(std::string_view tokenizer_json);

  // Ids of the text; no special tokens are added around it. Added tokens inside the text become their ids, as in the reference.
  // Time is near linear in the text, whatever it holds. Refuses invalid UTF-8 and text over limits::kTextBytesMax.
  Result<std::vector<uint32_t>> encode(std::string_view utf8) const;

  // Text of the ids. Bytes that are not UTF-8 (a token may end inside a character) become U+FFFD. An unknown id is an error.
  Result<std::string> decode(std::span<const uint32_t> ids, bool skip_special_tokens = false) const;
  // The raw bytes of one token, for streaming: a character may arrive in pieces.
  Result<std::string> token_bytes(uint32_t id) const;

  // Special tokens that the file's post_processor puts before a text (such as a mark of its beginning). encode() leaves them to the caller.
  std::span<const uint32_t> leading_tokens() const;

  // Id of a token by its text, as written in the file ("<|endoftext|>", "Ġthe").
  std::optional<uint32_t> token_id(std::string_view token) const;
  // One more than the highest id. The embedding table may have more rows (padding).
  uint32_t vocabulary_size() const;

 private:
  struct Implementation;
  explicit Tokenizer(std::shared_ptr<const Implementation> implementation);
  std::shared_ptr<const Implementation> implementation_;
};

}  // namespace chorus::formats
