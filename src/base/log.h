// Where library code reports progress and notable choices. The sink is passed in; libraries never print.
#pragma once

#include <functional>
#include <string_view>

namespace chorus {

enum class LogLevel { debug, info, warning };

using LogSink = std::function<void(LogLevel, std::string_view)>;

inline void log_to(const LogSink& sink, LogLevel level, std::string_view line) {
  if (sink) sink(level, line);
}

}  // namespace chorus
