#include "apps/output.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace chorus::apps {
namespace {

int first_failure = 0;  // errno

bool note(bool good) {
  if (!good && first_failure == 0) first_failure = errno != 0 ? errno : EIO;
  return good;
}

}  // namespace

void begin_output() {
  // A line at a time also into a pipe: whoever reads it sees results when they are made. No buffer of our own is given, so nothing can
  // fail.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
}

void print(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  errno = 0;
  note(std::vprintf(format, arguments) >= 0 && std::ferror(stdout) == 0);
  va_end(arguments);
}

void print_whole(std::string_view text) {
  errno = 0;
  note(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
}

bool print_now(std::string_view text) {
  errno = 0;
  return note(std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0);
}

Status finish_output() {
  errno = 0;
  note(std::fflush(stdout) == 0);
  if (first_failure == 0 && std::ferror(stdout) == 0) return {};
  return make_error(ErrorCode::io_failed,
                    std::string("standard output: cannot write: ") + std::strerror(first_failure != 0 ? first_failure : EIO));
}

}  // namespace chorus::apps
