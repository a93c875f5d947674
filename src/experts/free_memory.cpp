#include "experts/free_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace chorus::experts {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::optional<uint64_t> parse_number(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// The number after `key` at the start of a line.
std::optional<uint64_t> value_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(key)) return parse_number(line.substr(key.size()));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return std::nullopt;
}

void take_least(std::optional<uint64_t>& least, std::optional<uint64_t> value) {
  if (value && (!least || *value < *least)) least = value;
}

// The process's group of version 2 ("0::/path") and those above it, then the memory group of version 1 ("N:memory:/path").
void look_at_groups(const std::filesystem::path& root, std::optional<uint64_t>& least) {
  std::string_view text;
  const std::string groups = read_file(root / "proc/self/cgroup");
  for (text = groups; !text.empty();) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t second = line.find(':', line.find(':') + 1);
    if (second == std::string_view::npos) continue;
    const bool unified = line.starts_with("0::");
    if (!unified && line.find(":memory:") == std::string_view::npos && line.find(",memory:") == std::string_view::npos) continue;
    const std::filesystem::path base = root / (unified ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    std::filesystem::path folder = base / std::filesystem::path(line.substr(second + 1)).relative_path();
    for (;; folder = folder.parent_path()) {
      const auto file = [&](const char* v2, const char* v1) { return read_file(folder / (unified ? v2 : v1)); };
      take_least(least, parse_group(file("memory.max", "memory.limit_in_bytes"), file("memory.current", "memory.usage_in_bytes"),
                                    read_file(folder / "memory.stat")));
      if (folder == base || !folder.has_relative_path() || folder == folder.parent_path()) break;
    }
  }
}

}  // namespace

std::optional<uint64_t> parse_meminfo(std::string_view text) {
  const auto kibibytes = value_of(text, "MemAvailable:");
  if (!kibibytes || *kibibytes > UINT64_MAX / 1024) return std::nullopt;
  return *kibibytes * 1024;
}

std::optional<uint64_t> parse_group(std::string_view limit, std::string_view usage, std::string_view stat) {
  const auto most = parse_number(limit), used = parse_number(usage);
  if (!most || !used) return std::nullopt;
  const uint64_t cache = std::min(*used, value_of(stat, "inactive_file ").value_or(0));
  const uint64_t held = *used - cache;
  return *most > held ? *most - held : 0;
}

std::optional<uint64_t> free_memory_bytes(const std::filesystem::path& root) {
  std::optional<uint64_t> least = parse_meminfo(read_file(root / "proc/meminfo"));
  look_at_groups(root, least);
  return least;
}

}  // namespace chorus::experts
