// Values of a template while it is rendered, with Python's text, truth, equality and order.
// Owns: Value and what it is made of. Must not know: template syntax. Lists and dicts never change once made, and nest at most
// kValueDepthMax deep; a Namespace is the only thing that changes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "formats/json.h"

namespace chorus::generation::jinja {

inline constexpr uint32_t kValueDepthMax = 128;
// Values share their parts, so a few steps can make one whose text would be longer than any memory. What walks over a value takes a time
// that its size bounds.
inline constexpr uint64_t kValueSizeMax = 1u << 22;

class Value;
struct Sequence;   // a list or tuple
struct Dict;       // in order of insertion
struct Namespace;  // namespace(): attributes that {% set %} changes
struct Callable;   // macro, method of a value, function of the environment
struct Loop;       // the variable `loop`

enum class Kind : uint8_t { undefined, none, boolean, integer, floating, string, list, tuple, dict, callable, name_space, loop };

class Value {
 public:
  Value() = default;                           // undefined
  static Value undefined(std::string reason);  // the reason is the message when it is used
  static Value none();
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value floating(double value);
  static Value string(std::string value);
  static Value name_space(std::shared_ptr<Namespace> value);
  static Value callable(std::shared_ptr<const Callable> value);
  static Value loop(std::shared_ptr<const Loop> value);
  // Errors: nested too deep, larger than kValueSizeMax.
  static Result<Value> list(std::vector<Value> items);
  static Result<Value> tuple(std::vector<Value> items);
  static Result<Value> dict(std::vector<std::pair<Value, Value>> members);  // keys are unique
  static Result<Value> from_json(const formats::JsonValue& json);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return kind_ == Kind::integer || kind_ == Kind::floating || kind_ == Kind::boolean; }
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }

  bool as_bool() const { return std::get<int64_t>(data_) != 0; }      // of a boolean
  int64_t as_integer() const { return std::get<int64_t>(data_); }     // of an integer or boolean
  double as_double() const;                                           // of any number
  const std::string& text() const { return *std::get<Text>(data_); }  // of a string
  const std::vector<Value>& items() const;                            // of a list or tuple
  const std::vector<std::pair<Value, Value>>& members() const;        // of a dict
  const Callable& function() const { return *std::get<std::shared_ptr<const Callable>>(data_); }
  Namespace& attributes() const { return *std::get<std::shared_ptr<Namespace>>(data_); }
  const Loop& loop_state() const { return *std::get<std::shared_ptr<const Loop>>(data_); }
  std::string undefined_reason() const;

  uint32_t depth() const;  // 0 for what holds no other value
  uint64_t size() const;   // values in it, itself included, counted as often as they appear; a text counts one more for 64 bytes
  // Null when the dict has no such key.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;

 private:
  using Text = std::shared_ptr<const std::string>;
  Kind kind_ = Kind::undefined;
  std::variant<std::monostate, int64_t, double, Text, std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
               std::shared_ptr<Namespace>, std::shared_ptr<const Callable>, std::shared_ptr<const Loop>>
      data_;
};

struct Sequence {
  std::vector<Value> items;
  uint32_t depth = 1;
  uint64_t size = 1;
};

struct Dict {
  std::vector<std::pair<Value, Value>> members;
  uint32_t depth = 1;
  uint64_t size = 1;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> members;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

struct Statement;
struct Scope;

struct Callable {
  enum class Type { environment, method, macro, caller };
  Type type = Type::environment;
  std::string name;
  Value self;                         // of a method
  const Statement* macro = nullptr;   // of a macro; a caller is the body of {% call %}
  Scope* scope = nullptr;             // where the macro was made
  std::shared_ptr<const Loop> loop_;  // of a method of `loop`, and of `loop` itself when recursive
};

struct Loop {
  std::vector<Value> items;
  size_t index = 0;
  uint32_t level = 0;                    // 0: outermost
  uint32_t depth = 1;                    // as Value::depth
  const Statement* recursive = nullptr;  // of a loop that may call itself
  Scope* scope = nullptr;
  mutable std::optional<std::vector<Value>> changed;  // arguments of the last loop.changed()
};

const char* type_name(const Value& value);  // as Python names it: "str", "int", ...
bool is_true(const Value& value);
bool equal(const Value& a, const Value& b);
// -1, 0 or 1. Error: the two have no order.
Result<int> compare(const Value& a, const Value& b);
// Python's str() and repr(). Sizes are the caller's care.
std::string to_text(const Value& value);
std::string to_repr(const Value& value);

struct JsonForm {
  std::optional<uint32_t> indent;
  std::string item_separator, key_separator;  // empty: Python's default for the indent
  bool sort_keys = false;
  bool ensure_ascii = false;
};
// Python's json.dumps. Error: a value that JSON has no form for.
Result<std::string> to_json(const Value& value, const JsonForm& form);

}  // namespace chorus::generation::jinja
