// Methods of strings, lists and dicts, and the functions of the environment.
#include <algorithm>
#include <ctime>

#include "base/bytes.h"
#include "generation/jinja/functions.h"
#include "generation/jinja/python_text.h"

namespace chorus::generation::jinja {

Result<std::vector<std::optional<Value>>> bind_arguments(const Arguments& arguments, const std::vector<std::string_view>& names,
                                                         size_t required) {
  std::vector<std::optional<Value>> bound(names.size());
  if (arguments.positional.size() > names.size()) {
    return bad_value("expected at most " + std::to_string(names.size()) + " arguments, found " +
                     std::to_string(arguments.positional.size()));
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return bad_value("unexpected argument " + quote_text(name));
    std::optional<Value>& slot = bound[static_cast<size_t>(found - names.begin())];
    if (slot) return bad_value("argument " + quote_text(name) + " is given twice");
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!bound[i]) return bad_value("the argument '" + std::string(names[i]) + "' is missing");
  }
  return bound;
}

namespace {

using Bound = std::vector<std::optional<Value>>;
using Method = Result<Value> (*)(Machine&, const Value&, const Bound&);

struct MethodRow {
  std::string_view name;
  std::vector<std::string_view> arguments;
  size_t required;
  Method method;
};

Result<Value> text_list(Machine& machine, std::vector<std::string> parts) {
  std::vector<Value> items;
  for (std::string& part : parts) {
    CHORUS_ASSIGN(Value item, machine.make_text(std::move(part)));
    items.push_back(std::move(item));
  }
  CHORUS_TRY(machine.charge(items.size()));
  return Value::list(std::move(items));
}

template <bool kLeft, bool kRight>
Result<Value> strip(Machine& machine, const Value& self, const Bound& arguments) {
  std::optional<std::string_view> characters;
  if (arguments[0] && !arguments[0]->is(Kind::none)) {
    CHORUS_ASSIGN(characters, text_of(*arguments[0], "strip"));
    CHORUS_TRY(machine.charge(characters->size()));
  }
  return machine.make_text(std::string(strip_text(self.text(), characters, kLeft, kRight)));
}

template <bool kFromRight>
Result<Value> split(Machine& machine, const Value& self, const Bound& arguments) {
  int64_t splits = -1;
  if (arguments[1]) {
    CHORUS_ASSIGN(splits, integer_of(*arguments[1], "split"));
  }
  if (!arguments[0] || arguments[0]->is(Kind::none)) {
    if (kFromRight && splits >= 0) return make_error(ErrorCode::unsupported, "rsplit by white space with a limit");
    return text_list(machine, split_text(self.text(), {}, splits));
  }
  CHORUS_ASSIGN(const std::string_view separator, text_of(*arguments[0], "split"));
  if (separator.empty()) return bad_value("empty separator");
  return text_list(machine, kFromRight ? split_text_right(self.text(), separator, splits) : split_text(self.text(), separator, splits));
}

Result<Value> splitlines(Machine& machine, const Value& self, const Bound& arguments) {
  return text_list(machine, split_lines(self.text(), arguments[0] && is_true(*arguments[0])));
}

// A string, or a tuple of which one may match.
template <bool kStart>
Result<Value> has_end(Machine&, const Value& self, const Bound& arguments) {
  std::vector<Value> ends = {*arguments[0]};
  if (arguments[0]->is(Kind::tuple)) ends = arguments[0]->items();
  for (const Value& end : ends) {
    CHORUS_ASSIGN(const std::string_view text, text_of(end, kStart ? "startswith" : "endswith"));
    const std::string_view whole = self.text();
    if (kStart ? whole.substr(0, text.size()) == text : whole.size() >= text.size() && whole.substr(whole.size() - text.size()) == text) {
      return Value::boolean(true);
    }
  }
  return Value::boolean(false);
}

template <bool kPrefix>
Result<Value> remove_end(Machine& machine, const Value& self, const Bound& arguments) {
  CHORUS_ASSIGN(const std::string_view end, text_of(*arguments[0], kPrefix ? "removeprefix" : "removesuffix"));
  std::string_view text = self.text();
  if (kPrefix && text.substr(0, end.size()) == end) text.remove_prefix(end.size());
  if (!kPrefix && text.size() >= end.size() && text.substr(text.size() - end.size()) == end) text.remove_suffix(end.size());
  return machine.make_text(std::string(text));
}

Result<Value> replace(Machine& machine, const Value& self, const Bound& arguments) {
  CHORUS_ASSIGN(const std::string_view from, text_of(*arguments[0], "replace"));
  CHORUS_ASSIGN(const std::string_view to, text_of(*arguments[1], "replace"));
  int64_t count = -1;
  if (arguments[2] && !arguments[2]->is(Kind::none)) {
    CHORUS_ASSIGN(count, integer_of(*arguments[2], "replace"));
  }
  const uint64_t places = from.empty() ? self.text().size() + 1 : self.text().size() / from.size();
  CHORUS_TRY(machine.charge(places, to.size() < (1u << 24) ? places * to.size() : ~0ull / 4));  // the most it can grow by
  return machine.make_text(replace_text(self.text(), from, to, count));
}

template <bool kRaises, bool kRight>
Result<Value> find(Machine&, const Value& self, const Bound& arguments) {
  CHORUS_ASSIGN(const std::string_view part, text_of(*arguments[0], "find"));
  const size_t found = kRight ? self.text().rfind(part) : self.text().find(part);
  if (found == std::string::npos) {
    if (kRaises) return bad_value("substring not found");
    return Value::integer(-1);
  }
  return Value::integer(static_cast<int64_t>(character_count(std::string_view(self.text()).substr(0, found))));
}

Result<Value> count_text(Machine&, const Value& self, const Bound& arguments) {
  CHORUS_ASSIGN(const std::string_view part, text_of(*arguments[0], "count"));
  if (part.empty()) return Value::integer(static_cast<int64_t>(character_count(self.text())) + 1);
  int64_t count = 0;
  for (size_t at = self.text().find(part); at != std::string::npos; at = self.text().find(part, at + part.size())) ++count;
  return Value::integer(count);
}

Result<Value> join(Machine& machine, const Value& self, const Bound& arguments) {
  CHORUS_ASSIGN(const std::vector<Value> items, machine.items_of(*arguments[0]));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    CHORUS_ASSIGN(const std::string_view text, text_of(items[i], "join"));
    CHORUS_TRY(machine.charge(1, text.size() + self.text().size()));
    if (i > 0) out += self.text();
    out += text;
  }
  return Value::string(std::move(out));
}

template <std::string (*kMap)(std::string_view)>
Result<Value> mapped(Machine& machine, const Value& self, const Bound&) {
  return machine.make_text(kMap(self.text()));
}

template <bool (*kTest)(char)>
Result<Value> all_of(Machine&, const Value& self, const Bound&) {
  return Value::boolean(!self.text().empty() && std::all_of(self.text().begin(), self.text().end(), kTest));
}

bool digit(char c) { return c >= '0' && c <= '9'; }
bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool letter_or_digit(char c) { return letter(c) || digit(c); }
bool space(char c) { return c == ' ' || (c >= 9 && c <= 13); }

template <bool kUpper>
Result<Value> has_case(Machine&, const Value& self, const Bound&) {
  const std::string& text = self.text();
  return Value::boolean(std::any_of(text.begin(), text.end(), letter) && text == (kUpper ? upper_text(text) : lower_text(text)));
}

// "{}", "{0}" and "{name}" without further form.
Result<Value> format_braces(Machine& machine, const std::string& form, const Arguments& arguments) {
  std::string out;
  size_t next = 0;
  for (size_t at = 0; at < form.size(); ++at) {
    const char c = form[at];
    if ((c == '{' || c == '}') && at + 1 < form.size() && form[at + 1] == c) {
      out += c;
      ++at;
    } else if (c == '{') {
      const size_t end = form.find('}', at);
      if (end == std::string::npos) return bad_value("format: expected '}' before end of string");
      const std::string field = form.substr(at + 1, end - at - 1);
      at = end;
      const auto named = std::find_if(arguments.named.begin(), arguments.named.end(), [&](const auto& a) { return a.first == field; });
      size_t index = field.empty() ? next++ : arguments.positional.size();
      if (field.size() == 1 && digit(field[0])) index = static_cast<size_t>(field[0] - '0');
      if (named == arguments.named.end() && index >= arguments.positional.size()) {
        return bad_value("format: no argument for the field " + quote_text(field));
      }
      const std::string text = to_text(named != arguments.named.end() ? named->second : arguments.positional[index]);
      CHORUS_TRY(machine.charge(1, text.size()));
      out += text;
    } else if (c == '}') {
      return bad_value("format: single '}' in the form");
    } else {
      out += c;
    }
  }
  return machine.make_text(std::move(out));
}

const std::vector<MethodRow>& text_methods() {
  static const std::vector<MethodRow> rows = {
      {"strip", {"chars"}, 0, strip<true, true>},
      {"lstrip", {"chars"}, 0, strip<true, false>},
      {"rstrip", {"chars"}, 0, strip<false, true>},
      {"split", {"sep", "maxsplit"}, 0, split<false>},
      {"rsplit", {"sep", "maxsplit"}, 0, split<true>},
      {"splitlines", {"keepends"}, 0, splitlines},
      {"startswith", {"prefix"}, 1, has_end<true>},
      {"endswith", {"suffix"}, 1, has_end<false>},
      {"removeprefix", {"prefix"}, 1, remove_end<true>},
      {"removesuffix", {"suffix"}, 1, remove_end<false>},
      {"replace", {"old", "new", "count"}, 2, replace},
      {"find", {"sub"}, 1, find<false, false>},
      {"rfind", {"sub"}, 1, find<false, true>},
      {"index", {"sub"}, 1, find<true, false>},
      {"rindex", {"sub"}, 1, find<true, true>},
      {"count", {"sub"}, 1, count_text},
      {"join", {"iterable"}, 1, join},
      {"upper", {}, 0, mapped<upper_text>},
      {"lower", {}, 0, mapped<lower_text>},
      {"title", {}, 0, mapped<title_text>},
      {"capitalize", {}, 0, mapped<capitalize_text>},
      {"isdigit", {}, 0, all_of<digit>},
      {"isnumeric", {}, 0, all_of<digit>},
      {"isdecimal", {}, 0, all_of<digit>},
      {"isalpha", {}, 0, all_of<letter>},
      {"isalnum", {}, 0, all_of<letter_or_digit>},
      {"isspace", {}, 0, all_of<space>},
      {"isupper", {}, 0, has_case<true>},
      {"islower", {}, 0, has_case<false>},
      {"format", {}, 0, nullptr},  // takes any arguments
  };
  return rows;
}

Result<Value> list_index(Machine& machine, const Value& self, const Bound& arguments) {
  CHORUS_TRY(machine.charge(self.items().size()));
  const auto found = std::find_if(self.items().begin(), self.items().end(), [&](const Value& item) { return equal(item, *arguments[0]); });
  if (found == self.items().end()) return bad_value(to_repr(*arguments[0]) + " is not in list");
  return Value::integer(found - self.items().begin());
}

Result<Value> list_count(Machine& machine, const Value& self, const Bound& arguments) {
  CHORUS_TRY(machine.charge(self.items().size()));
  return Value::integer(
      std::count_if(self.items().begin(), self.items().end(), [&](const Value& item) { return equal(item, *arguments[0]); }));
}

const std::vector<MethodRow>& list_methods() {
  static const std::vector<MethodRow> rows = {{"index", {"value"}, 1, list_index}, {"count", {"value"}, 1, list_count}};
  return rows;
}

Result<Value> dict_items(Machine& machine, const Value& self, const Bound&) {
  CHORUS_TRY(machine.charge(self.members().size()));
  std::vector<Value> items;
  for (const auto& [key, value] : self.members()) {
    CHORUS_ASSIGN(Value pair, Value::tuple({key, value}));
    items.push_back(std::move(pair));
  }
  return Value::list(std::move(items));
}

template <bool kKeys>
Result<Value> dict_half(Machine& machine, const Value& self, const Bound&) {
  CHORUS_TRY(machine.charge(self.members().size()));
  std::vector<Value> items;
  for (const auto& member : self.members()) items.push_back(kKeys ? member.first : member.second);
  return Value::list(std::move(items));
}

Result<Value> dict_get(Machine&, const Value& self, const Bound& arguments) {
  if (const Value* found = self.find(*arguments[0])) return *found;
  return arguments[1] ? *arguments[1] : Value::none();
}

Result<Value> dict_copy(Machine&, const Value& self, const Bound&) { return self; }

const std::vector<MethodRow>& dict_methods() {
  static const std::vector<MethodRow> rows = {{"items", {}, 0, dict_items},
                                              {"keys", {}, 0, dict_half<true>},
                                              {"values", {}, 0, dict_half<false>},
                                              {"get", {"key", "default"}, 1, dict_get},
                                              {"copy", {}, 0, dict_copy}};
  return rows;
}

const MethodRow* find_method(const Value& object, std::string_view name) {
  static const std::vector<MethodRow> none;
  const std::vector<MethodRow>& rows = object.is(Kind::string) ? text_methods()
                                       : object.is_sequence()  ? list_methods()
                                       : object.is(Kind::dict) ? dict_methods()
                                                               : none;
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const MethodRow& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

bool has_method(const Value& object, std::string_view name) { return find_method(object, name) != nullptr; }

Result<Value> call_method(Machine& machine, const Value& self, const std::string& name, const Arguments& arguments) {
  const MethodRow* row = find_method(self, name);
  CHORUS_CHECK(row != nullptr);
  if (self.is(Kind::string)) CHORUS_TRY(machine.charge(self.text().size() / 64));
  if (row->method == nullptr) return format_braces(machine, self.text(), arguments);
  auto bound = bind_arguments(arguments, row->arguments, row->required);
  if (!bound) {
    Error error = std::move(bound).error();
    error.message = name + "(): " + error.message;
    return error;
  }
  return row->method(machine, self, *bound);
}

namespace {

Result<Value> make_range(Machine& machine, const Arguments& arguments) {
  CHORUS_ASSIGN(const auto bound, bind_arguments(arguments, {"start", "stop", "step"}, 1));
  int64_t values[3] = {0, 0, 1};
  for (size_t i = 0; i < 3; ++i) {
    if (!bound[i]) continue;
    CHORUS_ASSIGN(values[i], integer_of(*bound[i], "range"));
  }
  if (!bound[1]) std::swap(values[0], values[1]);
  if (values[2] == 0) return bad_value("range: the step is zero");
  constexpr uint64_t kRangeMax = 100'000;  // as the reference's sandbox
  std::vector<Value> items;
  for (int64_t i = values[0]; values[2] > 0 ? i < values[1] : i > values[1];) {
    if (items.size() >= kRangeMax) return make_error(ErrorCode::limit_exceeded, "range: more than " + std::to_string(kRangeMax) + " items");
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, values[2], &i)) break;
  }
  CHORUS_TRY(machine.charge(items.size()));
  return Value::list(std::move(items));
}

Result<std::vector<std::pair<Value, Value>>> named_members(const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> members;
  for (const Value& base : arguments.positional) {
    if (!base.is(Kind::dict)) return bad_value(std::string("expected a dict, found ") + type_name(base));
    members.insert(members.end(), base.members().begin(), base.members().end());
  }
  for (const auto& argument : arguments.named) {
    const auto found = std::find_if(members.begin(), members.end(), [&](const auto& member) {
      return member.first.is(Kind::string) && member.first.text() == argument.first;
    });
    if (found != members.end()) {
      found->second = argument.second;
    } else {
      members.emplace_back(Value::string(argument.first), argument.second);
    }
  }
  return members;
}

Result<Value> make_namespace(Machine& machine, const Arguments& arguments) {
  CHORUS_ASSIGN(const auto members, named_members(arguments));
  auto made = std::make_shared<Namespace>();
  for (const auto& [key, value] : members) made->set(to_text(key), value);
  machine.keep_namespace(made);
  return Value::name_space(std::move(made));
}

// The machine's local time, as in the reference; English names.
Result<Value> strftime_now(Machine& machine, const Arguments& arguments) {
  CHORUS_ASSIGN(const auto bound, bind_arguments(arguments, {"format"}, 1));
  CHORUS_ASSIGN(const std::string_view form, text_of(*bound[0], "strftime_now"));
  if (form.size() > 256) return make_error(ErrorCode::limit_exceeded, "strftime_now: more than 256 bytes of format");
  const auto now = static_cast<std::time_t>(machine.unix_time());
  std::tm parts{};
  if (localtime_r(&now, &parts) == nullptr) return bad_value("strftime_now: the time cannot be shown");
  char text[4096];
  const size_t length = std::strftime(text, sizeof text, std::string(form).c_str(), &parts);
  return Value::string(std::string(text, length));
}

}  // namespace

bool is_environment_function(std::string_view name) {
  return name == "range" || name == "namespace" || name == "dict" || name == "raise_exception" || name == "strftime_now";
}

Result<Value> call_environment(Machine& machine, const std::string& name, const Arguments& arguments) {
  if (name == "range") return make_range(machine, arguments);
  if (name == "namespace") return make_namespace(machine, arguments);
  if (name == "strftime_now") return strftime_now(machine, arguments);
  if (name == "dict") {
    CHORUS_ASSIGN(auto members, named_members(arguments));
    return Value::dict(std::move(members));
  }
  CHORUS_ASSIGN(const auto bound, bind_arguments(arguments, {"message"}, 1));
  return bad_value("the template refuses: " + quote_text(to_text(*bound[0])));
}

}  // namespace chorus::generation::jinja
