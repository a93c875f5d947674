// How much memory the system would really give: what is available, within the limits of the process's control groups.
// The parsing is pure; free_memory_bytes() reads the system.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace chorus::experts {

// MemAvailable of /proc/meminfo, in bytes.
std::optional<uint64_t> parse_meminfo(std::string_view text);

// A control group's limit less what it uses now; page cache that it could give back counts as free. Nothing without a limit.
// limit: memory.max ("max" is none) or memory.limit_in_bytes; usage: memory.current; stat: memory.stat ("inactive_file N").
std::optional<uint64_t> parse_group(std::string_view limit, std::string_view usage, std::string_view stat);

// The least of the above for the calling process; nothing on systems that say neither. `root`: where /proc and /sys are, for tests.
std::optional<uint64_t> free_memory_bytes(const std::filesystem::path& root = "/");

}  // namespace chorus::experts
