// Standard output of the commands. What could not be written is remembered with the system's reason, and main() makes an error of it.
// Must not know: what is printed.
#pragma once

#include <string_view>

#include "base/result.h"

namespace chorus::apps {

// Before anything is printed. From then on every line goes out as soon as it is whole.
void begin_output();
[[gnu::format(printf, 1, 2)]] void print(const char* format, ...);
// As it is: text from a file or a model may hold U+0000, where %s ends.
void print_whole(std::string_view text);
// At once, for text that somebody watches. False when nobody gets it.
bool print_now(std::string_view text);
// Everything that was printed has arrived, or the first reason why not.
Status finish_output();

}  // namespace chorus::apps
