#include "base/bytes.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <memory>

namespace chorus {
namespace {

constexpr size_t kQuotedBytesMax = 160;

void append_escaped(std::string& out, std::string_view text) {
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7f) {
      std::array<char, 5> escape{};
      std::snprintf(escape.data(), escape.size(), "\\x%02x", byte);
      out += escape.data();
    } else if (character == '"' || character == '\\') {
      out += '\\';
      out += character;
    } else {
      out += character;
    }
  }
}

std::string scaled_text(double value) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  constexpr double kRoundsUp = 1023.95;  // would be written as 1024.0 of the smaller unit
  size_t unit = 0;
  for (; value >= (unit == 0 ? 1024 : kRoundsUp) && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text.data();
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

std::string quote_text(std::string_view text) {
  std::string out = "\"";
  if (text.size() <= kQuotedBytesMax) {
    append_escaped(out, text);
  } else {
    append_escaped(out, text.substr(0, kQuotedBytesMax / 2));
    out += "...";
    append_escaped(out, text.substr(text.size() - kQuotedBytesMax / 2));
  }
  return out + "\"";
}

std::string size_text(uint64_t bytes) { return scaled_text(static_cast<double>(bytes)); }

std::string rate_text(double bytes_per_second) { return scaled_text(bytes_per_second) + "/s"; }

bool name_is_taken(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::symlink_status(path, error));
}

Result<std::string> read_text_file(const std::filesystem::path& path, uint64_t bytes_max) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    return make_error(ErrorCode::not_found, path.string() + (name_is_taken(path) ? ": a link that leads nowhere" : ": no such file"));
  }
  if (!std::filesystem::is_regular_file(status)) {
    return make_error(ErrorCode::invalid_input, path.string() + ": expected a regular file");
  }
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (!file) return make_error(ErrorCode::io_failed, path.string() + ": cannot open: " + std::strerror(errno));

  std::string text;
  std::array<char, 65536> block;
  for (;;) {
    const size_t count = std::fread(block.data(), 1, block.size(), file.get());
    if (count > bytes_max - text.size()) {
      return make_error(ErrorCode::limit_exceeded,
                        path.string() + ": the file holds more than the limit of " + std::to_string(bytes_max) + " bytes");
    }
    text.append(block.data(), count);
    if (count < block.size()) break;
  }
  if (std::ferror(file.get())) return make_error(ErrorCode::io_failed, path.string() + ": cannot read: " + std::strerror(errno));
  return text;
}

std::optional<uint64_t> parse_size(std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  uint32_t shift = 0;
  if (!text.empty()) {
    if (const size_t unit = kUnits.find(text.back()); unit != std::string_view::npos) {
      shift = 10 * (static_cast<uint32_t>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || read.ec != std::errc{} || read.ptr != text.data() + text.size() || value > (UINT64_MAX >> shift)) return std::nullopt;
  return value << shift;
}

}  // namespace chorus
