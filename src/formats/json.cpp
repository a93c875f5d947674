#include "formats/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace chorus::formats {
namespace {

// long double: the reader's own overflow check then leaves room for integers of thousands of digits, whose text we keep.
using ReaderJson = nlohmann::basic_json<std::map, std::vector, std::string, bool, int64_t, uint64_t, long double>;

constexpr size_t kPathTextMax = 160;  // bytes of a path or reason in a message; caller text is not echoed without end

std::string shortened(std::string_view text, size_t bytes_max) {
  std::string line;
  for (const char byte : text.substr(0, bytes_max)) line += static_cast<unsigned char>(byte) < 0x20 ? ' ' : byte;
  if (text.size() > bytes_max) {
    while (!line.empty() && (static_cast<unsigned char>(line.back()) & 0xC0u) == 0x80u) line.pop_back();
    if (!line.empty() && static_cast<unsigned char>(line.back()) >= 0xC0u) line.pop_back();
    line += "...";
  }
  return line;
}

// Builds values from the events of nlohmann's reader, and refuses what the header says. A false return stops the reader.
class Builder {
 public:
  Builder(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  std::optional<Error> take_error() { return std::move(error_); }
  JsonValue take_root() { return std::move(root_); }

  bool null() { return add(JsonValue()); }
  bool boolean(bool value) { return add(JsonValue::boolean(value)); }
  bool number_integer(int64_t value) { return add(JsonValue::integer(value)); }
  bool number_unsigned(uint64_t value) { return add(JsonValue::integer_digits(std::to_string(value))); }
  bool binary(std::vector<uint8_t>&) { return false; }  // not part of JSON text

  bool number_float(long double wide, const std::string& raw) {
    if (raw.find_first_not_of("-0123456789") == std::string::npos) return add(JsonValue::integer_digits(raw));
    std::string digits = raw;  // the reader puts the locale's decimal point into it
    for (char& character : digits) {
      if (std::string_view("-+0123456789eE").find(character) == std::string_view::npos) character = '.';
    }
    double value = 0;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (status == std::errc::result_out_of_range) {
      if (std::fabs(wide) > 1.0L) return refuse("the number overflows a double");
      value = std::signbit(wide) ? -0.0 : 0.0;
    } else if (status != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value)) {
      return refuse("the number cannot be read");
    }
    return add(JsonValue::floating(value));
  }

  bool string(std::string& value) {
    if (!limits_.nul_allowed && value.find('\0') != std::string::npos) return refuse("the string holds a NUL character");
    return add(JsonValue::string(std::move(value)));
  }

  bool start_object(size_t) { return open(JsonValue::object()); }
  bool start_array(size_t) { return open(JsonValue::array()); }

  bool key(std::string& value) {
    if (!limits_.nul_allowed && value.find('\0') != std::string::npos) return refuse("a key holds a NUL character");
    frames_.back().key = std::move(value);
    return true;
  }

  bool end_object() {
    if (const std::string* key = duplicate_key(frames_.back().value.members())) {
      return refuse("the key \"" + shortened(*key, kPathTextMax) + "\" appears twice");
    }
    return close();
  }
  bool end_array() { return close(); }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& failure) {
    error_ = make_error(ErrorCode::invalid_input, "JSON is malformed at " + place(position) + ": " + reason(position, failure.what()));
    return false;
  }

 private:
  struct Frame {
    JsonValue value;  // the open array or object
    std::string key;  // object: of the member being read
  };

  bool count_value() {
    if (++values_ <= limits_.values_max) return true;
    return refuse("more than " + std::to_string(limits_.values_max) + " values", ErrorCode::limit_exceeded);
  }

  bool add(JsonValue value) { return count_value() && attach(std::move(value)); }

  bool attach(JsonValue value) {
    if (frames_.empty()) {
      root_ = std::move(value);
    } else if (Frame& frame = frames_.back(); frame.value.is_object()) {
      frame.value.append(std::move(frame.key), std::move(value));
    } else {
      frame.value.push_back(std::move(value));
    }
    return true;
  }

  bool open(JsonValue container) {
    if (!count_value()) return false;
    if (frames_.size() >= limits_.depth_max) {
      return refuse("nested deeper than " + std::to_string(limits_.depth_max) + " levels", ErrorCode::limit_exceeded);
    }
    frames_.push_back({std::move(container), {}});
    return true;
  }

  bool close() {
    JsonValue value = std::move(frames_.back().value);
    frames_.pop_back();
    return attach(std::move(value));
  }

  // By sorting, not by hashing: no input can make it quadratic.
  static const std::string* duplicate_key(std::span<const JsonMember> members) {
    std::vector<const std::string*> keys;
    keys.reserve(members.size());
    for (const JsonMember& member : members) keys.push_back(&member.key);
    std::sort(keys.begin(), keys.end(), [](const std::string* a, const std::string* b) { return *a < *b; });
    const auto same = std::adjacent_find(keys.begin(), keys.end(), [](const std::string* a, const std::string* b) { return *a == *b; });
    return same == keys.end() ? nullptr : *same;
  }

  std::string path() const {
    std::string path;
    for (const Frame& frame : frames_) {
      if (!frame.value.is_object()) {
        path += "[" + std::to_string(frame.value.items().size()) + "]";
      } else if (!frame.key.empty()) {
        path += (path.empty() ? "" : ".") + frame.key;
      }
      if (path.size() > kPathTextMax) break;
    }
    return path.empty() ? "the top level" : shortened(path, kPathTextMax);
  }

  bool refuse(const std::string& why, ErrorCode code = ErrorCode::invalid_input) {
    error_ = make_error(code, "JSON at " + path() + ": " + why);
    return false;
  }

  std::string place(size_t position) const {
    const size_t byte = std::min(position == 0 ? 0 : position - 1, text_.size());
    const std::string_view before = text_.substr(0, byte);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return "line " + std::to_string(line) + ", column " + std::to_string(byte - line_start + 1) + " (byte " + std::to_string(byte) + ")";
  }

  // nlohmann: "[json.exception...] parse error at line 1, column 2: syntax error while parsing value - REASON; last read: 'TEXT'".
  std::string reason(size_t position, std::string_view what) const {
    const std::string_view here = text_.substr(std::min(position == 0 ? 0 : position - 1, text_.size()));  // the byte that did not fit
    if (here.starts_with("NaN") || here.starts_with("Infinity")) {
      return "NaN and Infinity are not JSON numbers";
    }
    if (what.find("out_of_range") != std::string_view::npos) return "the number is too large";
    const size_t last_read = what.find("; last read");
    const size_t dash = what.find(" - ");
    if (dash != std::string_view::npos && (last_read == std::string_view::npos || dash < last_read)) {
      std::string_view middle = what.substr(dash + 3, last_read == std::string_view::npos ? last_read : last_read - dash - 3);
      if (last_read != std::string_view::npos) {  // "; expected X" follows the echoed text
        if (const size_t expected = what.rfind("; expected "); expected != std::string_view::npos && expected > last_read) {
          return shortened(middle, kPathTextMax) + std::string(shortened(what.substr(expected), kPathTextMax));
        }
      }
      return shortened(middle, kPathTextMax);
    }
    return "it cannot be read";
  }

  std::string_view text_;
  const JsonLimits& limits_;
  std::vector<Frame> frames_;
  JsonValue root_;
  uint64_t values_ = 0;
  std::optional<Error> error_;
};

Error wrong_kind(std::string_view what, const char* expected, JsonKind found) {
  return make_error(ErrorCode::invalid_input, std::string(what) + ": expected " + expected + ", found " + json_kind_name(found));
}

template <typename Integer>
Result<Integer> integer_from(const std::string& digits, std::string_view what) {
  Integer value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (status != std::errc() || end != digits.data() + digits.size()) {
    return make_error(ErrorCode::invalid_input, std::string(what) + ": expected an integer of 64 bits, found " + shortened(digits, 40));
  }
  return value;
}

void append_unicode_escape(std::string& out, uint32_t unit) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kHex[(unit >> shift) & 0xFu];
}

// One character of valid UTF-8 at `at`; advances. Broken sequences cannot come from parse_json; they read as U+FFFD.
uint32_t next_character(std::string_view text, size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at++]);
  if (lead < 0x80u) return lead;
  const size_t more = lead >= 0xF0u ? 3 : lead >= 0xE0u ? 2 : lead >= 0xC2u ? 1 : 0;
  if (more == 0 || at + more > text.size()) return 0xFFFDu;
  uint32_t character = lead & (0x3Fu >> more);
  for (size_t i = 0; i < more; ++i) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if ((byte & 0xC0u) != 0x80u) return 0xFFFDu;
    character = (character << 6) | (byte & 0x3Fu);
    ++at;
  }
  return character;
}

void append_string(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const uint32_t character = next_character(text, at);
    switch (character) {
      case '"':
        out += "\\\"";
        continue;
      case '\\':
        out += "\\\\";
        continue;
      case '\n':
        out += "\\n";
        continue;
      case '\r':
        out += "\\r";
        continue;
      case '\t':
        out += "\\t";
        continue;
      case '\f':
        out += "\\f";
        continue;
      case '\b':
        out += "\\b";
        continue;
      default:
        break;
    }
    const bool escape = character < 0x20u || (ensure_ascii && character >= 0x7Fu);
    if (!escape) {
      out += text.substr(start, at - start);
    } else if (character < 0x10000u) {
      append_unicode_escape(out, character);
    } else {
      append_unicode_escape(out, 0xD800u + ((character - 0x10000u) >> 10));
      append_unicode_escape(out, 0xDC00u + ((character - 0x10000u) & 0x3FFu));
    }
  }
  out += '"';
}

void append_value(std::string& out, const JsonValue& value, const JsonStyle& style) {
  switch (value.kind()) {
    case JsonKind::null:
      out += "null";
      return;
    case JsonKind::boolean:
      out += *value.boolean_if() ? "true" : "false";
      return;
    case JsonKind::integer:
      out += *value.integer_digits_if();
      return;
    case JsonKind::floating:
      out += python_float_text(*value.floating_if());
      return;
    case JsonKind::string:
      append_string(out, *value.string_if(), style.ensure_ascii);
      return;
    case JsonKind::array: {
      std::string_view separator = "[";
      for (const JsonValue& item : value.items()) {
        out += separator;
        append_value(out, item, style);
        separator = style.item_separator;
      }
      out += value.items().empty() ? "[]" : "]";
      return;
    }
    case JsonKind::object: {
      std::string_view separator = "{";
      for (const JsonMember& member : value.members()) {
        out += separator;
        append_string(out, member.key, style.ensure_ascii);
        out += style.key_separator;
        append_value(out, member.value, style);
        separator = style.item_separator;
      }
      out += value.members().empty() ? "{}" : "}";
      return;
    }
  }
}

}  // namespace

const char* json_kind_name(JsonKind kind) {
  switch (kind) {
    case JsonKind::null:
      return "null";
    case JsonKind::boolean:
      return "a boolean";
    case JsonKind::integer:
      return "an integer";
    case JsonKind::floating:
      return "a number with a fraction";
    case JsonKind::string:
      return "a string";
    case JsonKind::array:
      return "an array";
    case JsonKind::object:
      return "an object";
  }
  return "an unknown kind";
}

JsonValue JsonValue::boolean(bool value) {
  JsonValue result;
  result.state_.emplace<1>(value);
  return result;
}

JsonValue JsonValue::integer(int64_t value) { return integer_digits(std::to_string(value)); }

JsonValue JsonValue::integer_digits(std::string digits) {
  JsonValue result;
  result.state_.emplace<2>(Digits{std::move(digits)});
  return result;
}

JsonValue JsonValue::floating(double value) {
  JsonValue result;
  result.state_.emplace<3>(value);
  return result;
}

JsonValue JsonValue::string(std::string value) {
  JsonValue result;
  result.state_.emplace<4>(std::move(value));
  return result;
}

JsonValue JsonValue::array() { return array(JsonArray()); }

JsonValue JsonValue::array(JsonArray items) {
  JsonValue result;
  result.state_.emplace<5>(std::move(items));
  return result;
}

JsonValue JsonValue::object() { return object(JsonObject()); }

JsonValue JsonValue::object(JsonObject members) {
  JsonValue result;
  result.state_.emplace<6>(std::move(members));
  return result;
}

Result<bool> JsonValue::as_bool(std::string_view what) const {
  if (const bool* value = boolean_if()) return *value;
  return wrong_kind(what, "a boolean", kind());
}

Result<int64_t> JsonValue::as_int64(std::string_view what) const {
  if (const std::string* digits = integer_digits_if()) return integer_from<int64_t>(*digits, what);
  return wrong_kind(what, "an integer", kind());
}

Result<uint64_t> JsonValue::as_uint64(std::string_view what) const {
  const std::string* digits = integer_digits_if();
  if (!digits) return wrong_kind(what, "an integer", kind());
  if (digits->starts_with('-')) {
    return make_error(ErrorCode::invalid_input, std::string(what) + ": expected 0 or more, found " + shortened(*digits, 40));
  }
  return integer_from<uint64_t>(*digits, what);
}

Result<double> JsonValue::as_double(std::string_view what) const {
  if (const double* value = floating_if()) return *value;
  const std::string* digits = integer_digits_if();
  if (!digits) return wrong_kind(what, "a number", kind());
  double value = 0;
  const auto [end, status] = std::from_chars(digits->data(), digits->data() + digits->size(), value);
  if (status != std::errc() || end != digits->data() + digits->size() || !std::isfinite(value)) {
    return make_error(ErrorCode::invalid_input, std::string(what) + ": the number " + shortened(*digits, 40) + " is out of range");
  }
  return value;
}

Result<std::string_view> JsonValue::as_string(std::string_view what) const {
  if (const std::string* value = string_if()) return std::string_view(*value);
  return wrong_kind(what, "a string", kind());
}

Result<std::span<const JsonValue>> JsonValue::as_array(std::string_view what) const {
  if (!is_array()) return wrong_kind(what, "an array", kind());
  return items();
}

Result<std::span<const JsonMember>> JsonValue::as_object(std::string_view what) const {
  if (!is_object()) return wrong_kind(what, "an object", kind());
  return members();
}

const std::string* JsonValue::string_if() const { return std::get_if<4>(&state_); }
const std::string* JsonValue::integer_digits_if() const {
  const Digits* digits = std::get_if<2>(&state_);
  return digits ? &digits->text : nullptr;
}
const double* JsonValue::floating_if() const { return std::get_if<3>(&state_); }
const bool* JsonValue::boolean_if() const { return std::get_if<1>(&state_); }

std::span<const JsonValue> JsonValue::items() const {
  if (const JsonArray* array = std::get_if<5>(&state_)) return *array;
  return {};
}

std::span<const JsonMember> JsonValue::members() const {
  if (const JsonObject* object = std::get_if<6>(&state_)) return *object;
  return {};
}

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const JsonMember& member : members()) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

Result<const JsonValue*> JsonValue::member(std::string_view key, std::string_view what) const {
  if (!is_object()) return wrong_kind(what, "an object", kind());
  if (const JsonValue* value = find(key)) return value;
  return make_error(ErrorCode::invalid_input, std::string(what) + ": the member \"" + std::string(key) + "\" is missing");
}

void JsonValue::push_back(JsonValue item) {
  if (!is_array()) state_.emplace<5>();
  std::get_if<5>(&state_)->push_back(std::move(item));
}

void JsonValue::set(std::string_view key, JsonValue value) {
  if (!is_object()) state_.emplace<6>();
  for (JsonMember& member : *std::get_if<6>(&state_)) {
    if (member.key == key) {
      member.value = std::move(value);
      return;
    }
  }
  append(std::string(key), std::move(value));
}

void JsonValue::append(std::string key, JsonValue value) {
  if (!is_object()) state_.emplace<6>();
  std::get_if<6>(&state_)->push_back({std::move(key), std::move(value)});
}

Result<JsonValue> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return make_error(ErrorCode::limit_exceeded,
                      "JSON text of " + std::to_string(text.size()) + " bytes is over the limit of " + std::to_string(limits.bytes_max));
  }
  try {
    Builder builder(text, limits);
    const bool complete = ReaderJson::sax_parse(text.begin(), text.end(), &builder);
    if (std::optional<Error> error = builder.take_error()) return *std::move(error);
    if (!complete) return make_error(ErrorCode::invalid_input, "JSON cannot be read");
    return builder.take_root();
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::out_of_memory, "JSON text of " + std::to_string(text.size()) + " bytes does not fit in memory");
  } catch (const std::exception& failure) {
    return make_error(ErrorCode::invalid_input, "JSON cannot be read: " + shortened(failure.what(), kPathTextMax));
  }
}

std::string python_float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);  // d.ddde[+-]dd, shortest
  std::string_view text(buffer, static_cast<size_t>(result.ptr - buffer));
  const std::string sign = text.starts_with('-') ? "-" : "";
  if (!sign.empty()) text.remove_prefix(1);
  const size_t mark = text.find('e');
  std::string digits(1, text[0]);
  if (mark > 2) digits += text.substr(2, mark - 2);
  int exponent = 0;
  const std::string_view exponent_text = text.substr(mark + 1);
  const bool plus = exponent_text.starts_with('+');
  std::from_chars(exponent_text.data() + (plus ? 1 : 0), exponent_text.data() + exponent_text.size(), exponent);

  if (exponent < -4 || exponent >= 16) {
    const int magnitude = std::abs(exponent);
    std::string mantissa = digits.substr(0, 1) + (digits.size() > 1 ? "." + digits.substr(1) : "");
    return sign + mantissa + (exponent < 0 ? "e-" : "e+") + (magnitude < 10 ? "0" : "") + std::to_string(magnitude);
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string json_dumps(const JsonValue& value, const JsonStyle& style) {
  std::string out;
  append_value(out, value, style);
  return out;
}

}  // namespace chorus::formats
