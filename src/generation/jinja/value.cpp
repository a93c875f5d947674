#include "generation/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "generation/jinja/python_text.h"

namespace chorus::generation::jinja {

namespace {

Error too_deep() { return make_error(ErrorCode::limit_exceeded, "values nest deeper than " + std::to_string(kValueDepthMax) + " levels"); }

Error too_large() {
  return make_error(ErrorCode::limit_exceeded, "a value that holds more than " + std::to_string(kValueSizeMax) + " values");
}

Result<std::shared_ptr<const Sequence>> make_sequence(std::vector<Value> items) {
  auto made = std::make_shared<Sequence>();
  for (const Value& item : items) {
    made->depth = std::max(made->depth, item.depth() + 1);
    made->size += item.size();  // no overflow: each at most kValueSizeMax, or the length of a text
  }
  if (made->depth > kValueDepthMax) return too_deep();
  if (made->size > kValueSizeMax) return too_large();
  made->items = std::move(items);
  return std::shared_ptr<const Sequence>(std::move(made));
}

}  // namespace

Value Value::undefined(std::string reason) {
  Value value;
  value.data_ = std::make_shared<const std::string>(std::move(reason));
  return value;
}

Value Value::none() {
  Value value;
  value.kind_ = Kind::none;
  return value;
}

Value Value::boolean(bool boolean) {
  Value value;
  value.kind_ = Kind::boolean;
  value.data_ = int64_t{boolean};
  return value;
}

Value Value::integer(int64_t integer) {
  Value value;
  value.kind_ = Kind::integer;
  value.data_ = integer;
  return value;
}

Value Value::floating(double floating) {
  Value value;
  value.kind_ = Kind::floating;
  value.data_ = floating;
  return value;
}

Value Value::string(std::string text) {
  Value value;
  value.kind_ = Kind::string;
  value.data_ = std::make_shared<const std::string>(std::move(text));
  return value;
}

Value Value::name_space(std::shared_ptr<Namespace> members) {
  Value value;
  value.kind_ = Kind::name_space;
  value.data_ = std::move(members);
  return value;
}

Value Value::callable(std::shared_ptr<const Callable> function) {
  Value value;
  value.kind_ = Kind::callable;
  value.data_ = std::move(function);
  return value;
}

Value Value::loop(std::shared_ptr<const Loop> state) {
  Value value;
  value.kind_ = Kind::loop;
  value.data_ = std::move(state);
  return value;
}

Result<Value> Value::list(std::vector<Value> items) {
  Value value;
  value.kind_ = Kind::list;
  CHORUS_ASSIGN(value.data_, make_sequence(std::move(items)));
  return value;
}

Result<Value> Value::tuple(std::vector<Value> items) {
  Value value;
  value.kind_ = Kind::tuple;
  CHORUS_ASSIGN(value.data_, make_sequence(std::move(items)));
  return value;
}

Result<Value> Value::dict(std::vector<std::pair<Value, Value>> members) {
  auto made = std::make_shared<Dict>();
  for (const auto& [key, item] : members) {
    if (key.depth() > 0 && !key.is(Kind::tuple)) {
      return make_error(ErrorCode::invalid_input, std::string("unhashable type: '") + type_name(key) + "'");
    }
    made->depth = std::max({made->depth, item.depth() + 1, key.depth() + 1});
    made->size += key.size() + item.size();
  }
  if (made->depth > kValueDepthMax) return too_deep();
  if (made->size > kValueSizeMax) return too_large();
  made->members = std::move(members);
  Value value;
  value.kind_ = Kind::dict;
  value.data_ = std::shared_ptr<const Dict>(std::move(made));
  return value;
}

Result<Value> Value::from_json(const formats::JsonValue& json) {
  using formats::JsonKind;
  switch (json.kind()) {
    case JsonKind::null:
      return none();
    case JsonKind::boolean:
      return boolean(*json.boolean_if());
    case JsonKind::integer: {
      CHORUS_ASSIGN(const int64_t integer_value, json.as_int64("template variable"));
      return integer(integer_value);
    }
    case JsonKind::floating:
      return floating(*json.floating_if());
    case JsonKind::string:
      return string(*json.string_if());
    case JsonKind::array: {
      std::vector<Value> items;
      items.reserve(json.items().size());
      for (const formats::JsonValue& item : json.items()) {
        CHORUS_ASSIGN(Value made, from_json(item));
        items.push_back(std::move(made));
      }
      return list(std::move(items));
    }
    case JsonKind::object:
      break;
  }
  std::vector<std::pair<Value, Value>> members;
  members.reserve(json.members().size());
  for (const formats::JsonMember& member : json.members()) {
    CHORUS_ASSIGN(Value made, from_json(member.value));
    members.emplace_back(string(member.key), std::move(made));
  }
  return dict(std::move(members));
}

double Value::as_double() const {
  return kind_ == Kind::floating ? std::get<double>(data_) : static_cast<double>(std::get<int64_t>(data_));
}

const std::vector<Value>& Value::items() const { return std::get<std::shared_ptr<const Sequence>>(data_)->items; }

const std::vector<std::pair<Value, Value>>& Value::members() const { return std::get<std::shared_ptr<const Dict>>(data_)->members; }

std::string Value::undefined_reason() const {
  const Text* reason = std::get_if<Text>(&data_);
  return kind_ == Kind::undefined && reason != nullptr ? **reason : "the value is undefined";
}

uint32_t Value::depth() const {
  switch (kind_) {
    case Kind::list:
    case Kind::tuple:
      return std::get<std::shared_ptr<const Sequence>>(data_)->depth;
    case Kind::dict:
      return std::get<std::shared_ptr<const Dict>>(data_)->depth;
    case Kind::callable:
      return std::max(function().self.depth(), function().loop_ ? function().loop_->depth : 0) + 1;
    case Kind::loop:
      return loop_state().depth;
    default:
      return 0;
  }
}

uint64_t Value::size() const {
  switch (kind_) {
    case Kind::string:
      return 1 + text().size() / 64;
    case Kind::list:
    case Kind::tuple:
      return std::get<std::shared_ptr<const Sequence>>(data_)->size;
    case Kind::dict:
      return std::get<std::shared_ptr<const Dict>>(data_)->size;
    default:
      return 1;
  }
}

const Value* Value::find(const Value& key) const {
  for (const auto& [name, value] : members()) {
    if (equal(name, key)) return &value;
  }
  return nullptr;
}

const Value* Value::find(std::string_view key) const {
  for (const auto& [name, value] : members()) {
    if (name.is(Kind::string) && name.text() == key) return &value;
  }
  return nullptr;
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [key, value] : members) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [key, old] : members) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  members.emplace_back(std::string(name), std::move(value));
}

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::floating:
      return "float";
    case Kind::string:
      return "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::callable:
      return "function";
    case Kind::name_space:
      return "Namespace";
    case Kind::loop:
      break;
  }
  return "LoopContext";
}

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.as_integer() != 0;
    case Kind::floating:
      return value.as_double() != 0;
    case Kind::string:
      return !value.text().empty();
    case Kind::list:
    case Kind::tuple:
      return !value.items().empty();
    case Kind::dict:
      return !value.members().empty();
    default:
      return true;
  }
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is(Kind::floating) || b.is(Kind::floating)) return a.as_double() == b.as_double();
    return a.as_integer() == b.as_integer();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      return a.text() == b.text();
    case Kind::list:
    case Kind::tuple:
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), equal);
    case Kind::dict:
      return a.members().size() == b.members().size() && std::all_of(a.members().begin(), a.members().end(), [&](const auto& member) {
               const Value* other = b.find(member.first);
               return other != nullptr && equal(member.second, *other);
             });
    case Kind::name_space:
      return &a.attributes() == &b.attributes();
    case Kind::callable:
      return &a.function() == &b.function();
    default:
      return &a.loop_state() == &b.loop_state();
  }
}

Result<int> compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is(Kind::floating) || b.is(Kind::floating)) return a.as_double() < b.as_double() ? -1 : int{a.as_double() > b.as_double()};
    return a.as_integer() < b.as_integer() ? -1 : int{a.as_integer() > b.as_integer()};
  }
  if (a.is(Kind::string) && b.is(Kind::string)) {
    const int order = a.text().compare(b.text());  // the order of UTF-8 bytes is that of characters
    return order < 0 ? -1 : int{order > 0};
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const size_t shared = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < shared; ++i) {
      if (equal(a.items()[i], b.items()[i])) continue;
      return compare(a.items()[i], b.items()[i]);
    }
    return a.items().size() < b.items().size() ? -1 : int{a.items().size() > b.items().size()};
  }
  return make_error(ErrorCode::invalid_input,
                    std::string("values of the types ") + type_name(a) + " and " + type_name(b) + " cannot be ordered");
}

namespace {

std::string double_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return formats::python_float_text(value);
}

std::string joined_reprs(const std::vector<Value>& items) {
  std::string text;
  for (const Value& item : items) text += (text.empty() ? "" : ", ") + to_repr(item);
  return text;
}

}  // namespace

std::string to_text(const Value& value) {
  if (value.is(Kind::string)) return value.text();
  if (value.is(Kind::undefined)) return "";
  return to_repr(value);
}

std::string to_repr(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.as_bool() ? "True" : "False";
    case Kind::integer:
      return std::to_string(value.as_integer());
    case Kind::floating:
      return double_text(value.as_double());
    case Kind::string:
      return python_quoted(value.text());
    case Kind::list:
      return "[" + joined_reprs(value.items()) + "]";
    case Kind::tuple:
      return "(" + joined_reprs(value.items()) + (value.items().size() == 1 ? ",)" : ")");
    case Kind::dict: {
      std::string text;
      for (const auto& [key, item] : value.members()) text += (text.empty() ? "" : ", ") + to_repr(key) + ": " + to_repr(item);
      return "{" + text + "}";
    }
    default:
      return std::string("<") + type_name(value) + ">";
  }
}

namespace {

class JsonWriter {
 public:
  explicit JsonWriter(const JsonForm& form) : form_(form) {
    item_separator_ = !form.item_separator.empty() ? form.item_separator : form.indent ? "," : ", ";
    key_separator_ = !form.key_separator.empty() ? form.key_separator : ": ";
  }

  Status write(const Value& value, uint32_t level) {
    switch (value.kind()) {
      case Kind::none:
        out += "null";
        return {};
      case Kind::boolean:
        out += value.as_bool() ? "true" : "false";
        return {};
      case Kind::integer:
        out += std::to_string(value.as_integer());
        return {};
      case Kind::floating:
        out += std::isnan(value.as_double())   ? "NaN"
               : std::isinf(value.as_double()) ? (value.as_double() < 0 ? "-Infinity" : "Infinity")
                                               : formats::python_float_text(value.as_double());
        return {};
      case Kind::string:
        write_string(value.text());
        return {};
      case Kind::list:
      case Kind::tuple:
        return write_items(value.items(), level);
      case Kind::dict:
        return write_members(value, level);
      default:
        return make_error(ErrorCode::invalid_input, std::string("Object of type ") + type_name(value) + " is not JSON serializable");
    }
  }

  std::string out;

 private:
  void write_string(const std::string& text) {
    formats::JsonStyle style;
    style.ensure_ascii = form_.ensure_ascii;
    out += formats::json_dumps(formats::JsonValue::string(text), style);
  }

  void break_line(uint32_t level) {
    if (!form_.indent) return;
    out += '\n';
    out.append(size_t{*form_.indent} * level, ' ');
  }

  Status write_items(const std::vector<Value>& items, uint32_t level) {
    if (items.empty()) {
      out += "[]";
      return {};
    }
    out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += item_separator_;
      break_line(level + 1);
      CHORUS_TRY(write(items[i], level + 1));
    }
    break_line(level);
    out += ']';
    return {};
  }

  Status write_members(const Value& value, uint32_t level) {
    std::vector<std::pair<Value, Value>> members = value.members();
    if (form_.sort_keys) {
      std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return to_text(a.first) < to_text(b.first); });
    }
    if (members.empty()) {
      out += "{}";
      return {};
    }
    out += '{';
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) out += item_separator_;
      break_line(level + 1);
      const Value& key = members[i].first;
      if (key.is(Kind::string)) {
        write_string(key.text());
      } else if (key.is_number() || key.is(Kind::none)) {
        out += '"';
        CHORUS_TRY(write(key, level));
        out += '"';
      } else {
        return make_error(ErrorCode::invalid_input, std::string("keys of JSON objects cannot be of the type ") + type_name(key));
      }
      out += key_separator_;
      CHORUS_TRY(write(members[i].second, level + 1));
    }
    break_line(level);
    out += '}';
    return {};
  }

  const JsonForm& form_;
  std::string item_separator_, key_separator_;
};

}  // namespace

Result<std::string> to_json(const Value& value, const JsonForm& form) {
  JsonWriter writer(form);
  CHORUS_TRY(writer.write(value, 0));
  return std::move(writer.out);
}

}  // namespace chorus::generation::jinja
