// Added tokens inside text: found as whole strings before the text is split into pieces, leftmost first, the longest at one place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorus::formats {

struct AddedToken {
  uint32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space on its left with it
  bool rstrip = false;       // takes the white space on its right with it
  bool normalized = true;    // looked for in normalised text, and its own text is normalised
  bool special = false;      // left out by decode on request
};

inline constexpr size_t kAddedTokenBytesMax = 1024;  // bounds the search at one place of a text

// A set of tokens compiled into a trie of bytes.
class AddedTokenFinder {
 public:
  // `text` is what to look for: the content, or its normalised form. A text given again replaces the earlier token.
  void add(std::string_view text, const AddedToken& token);

  struct Part {
    std::string_view text;              // never empty; with the white space that a token took
    const AddedToken* token = nullptr;  // null for text between tokens
  };
  // The part that starts at `at`, which moves to its end; at < text.size(). Parts cover the text.
  Part next_part(std::string_view text, size_t& at) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> children;
    int32_t token = -1;
  };
  struct Match {
    size_t start = 0;
    size_t end = 0;
    const AddedToken* token = nullptr;
  };
  Match longest_at(std::string_view text, size_t start) const;
  // First match from `from` on that is allowed where it stands; token is null when there is none.
  Match find_from(std::string_view text, size_t from) const;

  std::vector<Node> nodes_{1};
  std::vector<AddedToken> tokens_;
  bool starts_[256] = {};
};

}  // namespace chorus::formats
