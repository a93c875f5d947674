// Token ids to text, as they come. Never splits a character: bytes of an incomplete one are held back. Text that may become a stop string
// is held back too. Owns: those rules. Must not know: where tokens come from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/tokenizer.h"

namespace chorus::generation {

inline constexpr size_t kStopStringsMax = 64;
inline constexpr size_t kStopBytesMax = 4096;

// Non-empty valid UTF-8, at most kStopStringsMax of at most kStopBytesMax bytes.
Status check_stop_strings(const std::vector<std::string>& stops);

class TextStream {
 public:
  // `stops` have been checked.
  TextStream(formats::Tokenizer tokenizer, std::vector<std::string> stops, bool skip_special_tokens = true);

  // The text that is now certain. After a stop string: always empty. Ids that the tokenizer does not have (padding of the vocabulary)
  // have no text.
  Result<std::string> add(uint32_t token);
  // What was held back; a broken character at the end becomes U+FFFD. The stream is then empty.
  std::string finish();

  // The stop string that ended the text: of those that end first the longest. The text before it is all that was given out, whatever the
  // tokens it came in.
  bool stopped() const { return stopped_; }
  const std::string& stop() const { return stop_; }

 private:
  std::string take_text(std::string_view text);

  formats::Tokenizer tokenizer_;
  std::vector<std::string> stops_;
  bool skip_special_tokens_;
  std::string bytes_;  // of an incomplete character
  std::string held_;   // text that may begin a stop string
  bool stopped_ = false;
  std::string stop_;
};

// How many bytes at the end of `bytes` are the beginning of a character that more bytes could complete: 0 to 3.
size_t incomplete_character_bytes(std::string_view bytes);

}  // namespace chorus::generation
