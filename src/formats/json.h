// JSON in and out, with what rendering and token counts depend on: member order, integers of any length, 1 told from 1.0, Python's
// float text (kev.md 2.1, 2.2, 5.5). Owns: JsonValue, the checked reader, the writer. Must not know: what any document means.
// The reader refuses what has no single meaning: duplicate keys, NaN, Infinity, numbers past a double, lone surrogates, NUL characters,
// invalid UTF-8, nesting or size over the limits. Integers have at most about 4,900 digits (where long double is an IEEE double: 308).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/limits.h"
#include "base/result.h"

namespace chorus::formats {

struct JsonLimits {
  uint64_t bytes_max = limits::kJsonBytesMax;
  uint64_t values_max = limits::kJsonValuesMax;
  uint32_t depth_max = limits::kJsonDepthMax;  // 1 = a document whose arrays and objects hold only scalars
  bool nul_allowed = false;                    // U+0000 inside strings; for reference files, never for requests
};

class JsonValue;
struct JsonMember;
using JsonArray = std::vector<JsonValue>;
using JsonObject = std::vector<JsonMember>;  // in document order; keys are unique when read by parse_json

enum class JsonKind : uint8_t { null, boolean, integer, floating, string, array, object };
const char* json_kind_name(JsonKind kind);

class JsonValue {
 public:
  JsonValue() = default;  // null
  static JsonValue boolean(bool value);
  static JsonValue integer(int64_t value);
  static JsonValue integer_digits(std::string digits);  // an optional minus and digits; not checked
  static JsonValue floating(double value);              // finite
  static JsonValue string(std::string value);
  static JsonValue array();  // no default argument: JsonMember is not complete yet
  static JsonValue array(JsonArray items);
  static JsonValue object();
  static JsonValue object(JsonObject members);

  JsonKind kind() const { return static_cast<JsonKind>(state_.index()); }
  bool is_null() const { return kind() == JsonKind::null; }
  bool is_string() const { return kind() == JsonKind::string; }
  bool is_array() const { return kind() == JsonKind::array; }
  bool is_object() const { return kind() == JsonKind::object; }
  bool is_number() const { return kind() == JsonKind::integer || kind() == JsonKind::floating; }

  // Checked access. `what` names the value in the message ("config.json: hidden_size"); the views live as long as this value.
  Result<bool> as_bool(std::string_view what) const;
  Result<int64_t> as_int64(std::string_view what) const;  // integers only; refuses 1.0 and out of range
  Result<uint64_t> as_uint64(std::string_view what) const;
  Result<double> as_double(std::string_view what) const;  // integers and floats; refuses integers past a double's range
  Result<std::string_view> as_string(std::string_view what) const;
  Result<std::span<const JsonValue>> as_array(std::string_view what) const;
  Result<std::span<const JsonMember>> as_object(std::string_view what) const;

  // Unchecked views of one kind: null, or empty, when this is another kind.
  const std::string* string_if() const;
  const std::string* integer_digits_if() const;
  const double* floating_if() const;
  const bool* boolean_if() const;
  std::span<const JsonValue> items() const;
  std::span<const JsonMember> members() const;

  // First member of that name; null when absent or when this is not an object. Linear: walk members() of large objects instead.
  const JsonValue* find(std::string_view key) const;
  // The same, where absence is an error naming `what` and the key.
  Result<const JsonValue*> member(std::string_view key, std::string_view what) const;

  // Building. set() replaces a member of that name in place or appends it; append() does not look for one.
  void push_back(JsonValue item);
  void set(std::string_view key, JsonValue value);
  void append(std::string key, JsonValue value);

 private:
  struct Digits {
    std::string text;
  };
  // Alternatives in the order of JsonKind.
  std::variant<std::monostate, bool, Digits, double, std::string, JsonArray, JsonObject> state_;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// One document, nothing after it but white space. Malformed text: line, column and byte; a refused value: its path.
Result<JsonValue> parse_json(std::string_view text, const JsonLimits& limits = {});

// Python's str(float): shortest digits that round-trip, ".0" kept, exponent form below 1e-4 and from 1e16.
std::string python_float_text(double value);

struct JsonStyle {
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
  bool ensure_ascii = true;  // everything outside printable ASCII as \uXXXX
};
// Python's json.dumps with its default separators.
std::string json_dumps(const JsonValue& value, const JsonStyle& style = {});

}  // namespace chorus::formats
