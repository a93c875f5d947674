#include "models/families/config_reader.h"

#include "base/bytes.h"

namespace chorus::models::families {

using formats::JsonValue;

const JsonValue* ConfigReader::find(std::string_view key) const {
  const JsonValue* value = object_->find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string_view ConfigReader::present(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys) {
    if (has(key)) return key;
  }
  return *keys.begin();
}

Result<uint32_t> ConfigReader::size(std::string_view key, uint32_t low, uint32_t high) const {
  const JsonValue* value = find(key);
  if (!value) return make_error(ErrorCode::invalid_input, what(key) + ": missing");
  CHORUS_ASSIGN(const uint64_t found, value->as_uint64(what(key)));
  if (found >= low && found <= high) return static_cast<uint32_t>(found);
  return invalid(key, "expected " + std::to_string(low) + " to " + std::to_string(high) + ", found " + std::to_string(found));
}

Result<uint32_t> ConfigReader::size_or(std::string_view key, uint32_t fallback, uint32_t low, uint32_t high) const {
  return has(key) ? size(key, low, high) : Result<uint32_t>(fallback);
}

Result<double> ConfigReader::number_or(std::string_view key, double fallback, double low, double high) const {
  const JsonValue* value = find(key);
  if (!value) return fallback;
  CHORUS_ASSIGN(const double found, value->as_double(what(key)));
  if (found >= low && found <= high) return found;
  return invalid(key, "expected " + formats::python_float_text(low) + " to " + formats::python_float_text(high) + ", found " +
                          formats::python_float_text(found));
}

Result<bool> ConfigReader::flag_or(std::string_view key, bool fallback) const {
  const JsonValue* value = find(key);
  return value ? value->as_bool(what(key)) : Result<bool>(fallback);
}

Result<std::string> ConfigReader::text_or(std::string_view key, std::string_view fallback) const {
  const JsonValue* value = find(key);
  if (!value) return std::string(fallback);
  CHORUS_ASSIGN(const std::string_view found, value->as_string(what(key)));
  return std::string(found);
}

Result<std::vector<std::string>> ConfigReader::texts(std::string_view key) const {
  const JsonValue* value = find(key);
  if (!value) return make_error(ErrorCode::invalid_input, what(key) + ": missing");
  CHORUS_ASSIGN(const auto items, value->as_array(what(key)));
  std::vector<std::string> found;
  for (const JsonValue& item : items) {
    CHORUS_ASSIGN(const std::string_view text, item.as_string(what(key)));
    found.emplace_back(text);
  }
  return found;
}

Result<std::vector<uint32_t>> ConfigReader::sizes(std::string_view key, uint32_t high) const {
  std::vector<uint32_t> found;
  const JsonValue* value = find(key);
  if (!value) return found;
  const auto items = value->is_array() ? value->items() : std::span<const JsonValue>(value, 1);
  for (const JsonValue& item : items) {
    CHORUS_ASSIGN(const uint64_t size, item.as_uint64(what(key)));
    if (size > high) return invalid(key, "expected at most " + std::to_string(high) + ", found " + std::to_string(size));
    found.push_back(static_cast<uint32_t>(size));
  }
  return found;
}

Result<ConfigReader> ConfigReader::inner(std::string_view key) const {
  const JsonValue* value = find(key);
  if (!value) return make_error(ErrorCode::invalid_input, what(key) + ": missing");
  CHORUS_TRY(value->as_object(what(key)));
  return ConfigReader(*value, what(key));
}

Status ConfigReader::require_text(std::string_view key, std::string_view value) const {
  CHORUS_ASSIGN(const std::string found, text_or(key, value));
  if (found == value) return {};
  return unsupported(key, quote_text(value), quote_text(found));
}

Status ConfigReader::require_flag(std::string_view key, bool value) const {
  CHORUS_ASSIGN(const bool found, flag_or(key, value));
  if (found == value) return {};
  return unsupported(key, value ? "true" : "false", found ? "true" : "false");
}

Status ConfigReader::require_missing(std::string_view key) const {
  if (!has(key)) return {};
  return unsupported(key, "models without it", "a value");
}

Result<uint32_t> ConfigReader::product(std::string_view name, uint64_t a, uint64_t b) const {
  const auto found = checked_multiply(a, b);
  if (found && *found <= limits::kModelDimensionMax) return static_cast<uint32_t>(*found);
  return make_error(ErrorCode::limit_exceeded, what(name) + " = " + std::to_string(a) + " x " + std::to_string(b) +
                                                   " is over the limit of " + std::to_string(limits::kModelDimensionMax));
}

Error ConfigReader::unsupported(std::string_view key, std::string_view runs, const std::string& found) const {
  return make_error(ErrorCode::unsupported, what(key) + ": this program runs " + std::string(runs) + ", found " + found);
}

Error ConfigReader::invalid(std::string_view key, const std::string& expected_and_found) const {
  return make_error(ErrorCode::invalid_input, what(key) + ": " + expected_and_found);
}

}  // namespace chorus::models::families
