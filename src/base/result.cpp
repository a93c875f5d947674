#include "base/result.h"

namespace chorus {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::invalid_input:
      return "invalid_input";
    case ErrorCode::limit_exceeded:
      return "limit_exceeded";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::io_failed:
      return "io_failed";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::device_lost:
      return "device_lost";
    case ErrorCode::internal:
      return "internal";
  }
  return "unknown";
}

std::string Error::to_line() const {
  std::string line = message;
  for (const std::string& step : context) {
    line += "; ";
    line += step;
  }
  return line;
}

}  // namespace chorus
