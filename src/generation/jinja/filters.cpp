// Filters on single values. Those that walk over items are in sequence_filters.cpp.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "generation/jinja/functions.h"
#include "generation/jinja/python_text.h"

namespace chorus::generation::jinja {

namespace {

Result<Value> to_json_filter(Machine& machine, const Value& input, const Arguments& arguments) {
  CHORUS_ASSIGN(const auto bound, bind_arguments(arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0));
  JsonForm form;
  form.ensure_ascii = bound[0] && is_true(*bound[0]);
  if (bound[1] && !bound[1]->is(Kind::none)) {
    CHORUS_ASSIGN(const int64_t width, integer_of(*bound[1], "tojson: indent"));
    form.indent = static_cast<uint32_t>(std::clamp<int64_t>(width, 0, 64));
  }
  if (bound[2] && !bound[2]->is(Kind::none)) {
    CHORUS_ASSIGN(const std::vector<Value> separators, machine.items_of(*bound[2]));
    if (separators.size() != 2) return bad_value("tojson: expected two separators");
    form.item_separator = to_text(separators[0]);
    form.key_separator = to_text(separators[1]);
  }
  form.sort_keys = bound[3] && is_true(*bound[3]);
  CHORUS_ASSIGN(std::string text, to_json(input, form));
  return machine.make_text(std::move(text));
}

Result<Value> trim(Machine& machine, const Value& input, const Arguments& arguments) {
  CHORUS_ASSIGN(const auto bound, bind_arguments(arguments, {"chars"}, 0));
  const std::string text = to_text(input);
  std::optional<std::string_view> characters;
  if (bound[0] && !bound[0]->is(Kind::none)) {
    CHORUS_ASSIGN(characters, text_of(*bound[0], "trim"));
  }
  CHORUS_TRY(machine.charge(text.size() / 64 + (characters ? characters->size() : 0)));
  return machine.make_text(std::string(strip_text(text, characters, true, true)));
}

template <std::string (*kMap)(std::string_view)>
Result<Value> mapped(Machine& machine, const Value& input, const Arguments&) {
  return machine.make_text(kMap(to_text(input)));
}

Result<Value> string_filter(Machine& machine, const Value& input, const Arguments&) { return machine.make_text(to_text(input)); }
Result<Value> same(Machine&, const Value& input, const Arguments&) { return input; }

Result<Value> default_filter(Machine&, const Value& input, const Arguments& arguments) {
  CHORUS_ASSIGN(const auto bound, bind_arguments(arguments, {"default_value", "boolean"}, 0));
  const bool by_truth = bound[1] && is_true(*bound[1]);
  if (input.is(Kind::undefined) || (by_truth && !is_true(input))) return bound[0] ? *bound[0] : Value::string("");
  return input;
}

Result<Value> int_filter(Machine&, const Value& input, const Arguments& arguments) {
  CHORUS_ASSIGN(const auto bound, bind_arguments(arguments, {"default"}, 0));
  const Value otherwise = bound[0] ? *bound[0] : Value::integer(0);
  if (input.is(Kind::integer) || input.is(Kind::boolean)) return Value::integer(input.as_integer());
  if (input.is(Kind::floating)) {
    if (!(std::fabs(input.as_double()) < 9.2e18)) return otherwise;
    return Value::integer(static_cast<int64_t>(input.as_double()));
  }
  if (!input.is(Kind::string)) return otherwise;
  std::string_view text = strip_text(input.text(), {}, true, true);
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  int64_t integer = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), integer);
  if (read.ec == std::errc{} && read.ptr == text.data() + text.size()) return Value::integer(integer);
  double number = 0;
  const auto as_float = std::from_chars(text.data(), text.data() + text.size(), number);
  if (as_float.ec != std::errc{} || as_float.ptr != text.data() + text.size() || !(std::fabs(number) < 9.2e18)) return otherwise;
  return Value::integer(static_cast<int64_t>(number));
}

Result<Value> float_filter(Machine&, const Value& input, const Arguments& arguments) {
  CHORUS_ASSIGN(const auto bound, bind_arguments(arguments, {"default"}, 0));
  if (input.is_number()) return Value::floating(input.as_double());
  if (input.is(Kind::string)) {
    std::string_view text = strip_text(input.text(), {}, true, true);
    if (!text.empty() && text[0] == '+') text.remove_prefix(1);
    double number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (read.ec == std::errc{} && read.ptr == text.data() + text.size()) return Value::floating(number);
  }
  return bound[0] ? *bound[0] : Value::floating(0);
}

Result<Value> abs_filter(Machine&, const Value& input, const Arguments&) {
  CHORUS_TRY(require_defined(input));
  if (!input.is_number()) return bad_value(std::string("abs: expected a number, found ") + type_name(input));
  if (input.is(Kind::floating)) return Value::floating(std::fabs(input.as_double()));
  return input.as_integer() < 0 ? sign_operation("-", input) : Result<Value>(input);
}

// Half to even, as Python's round().
Result<Value> round_filter(Machine&, const Value& input, const Arguments& arguments) {
  CHORUS_ASSIGN(const auto bound, bind_arguments(arguments, {"precision", "method"}, 0));
  if (!input.is_number()) return bad_value(std::string("round: expected a number, found ") + type_name(input));
  int64_t precision = 0;
  if (bound[0]) {
    CHORUS_ASSIGN(precision, integer_of(*bound[0], "round"));
  }
  const double factor = std::pow(10.0, static_cast<double>(std::clamp<int64_t>(precision, -300, 300)));
  const double scaled = input.as_double() * factor;
  const std::string method = bound[1] ? to_text(*bound[1]) : "common";
  const double rounded = method == "ceil" ? std::ceil(scaled) : method == "floor" ? std::floor(scaled) : std::nearbyint(scaled);
  return Value::floating(rounded / factor);
}

Result<Value> replace_filter(Machine& machine, const Value& input, const Arguments& arguments) {
  return call_method(machine, Value::string(to_text(input)), "replace", arguments);
}

Result<Value> indent_filter(Machine& machine, const Value& input, const Arguments& arguments) {
  CHORUS_ASSIGN(const auto bound, bind_arguments(arguments, {"width", "first", "blank"}, 0));
  std::string indention(4, ' ');
  if (bound[0] && bound[0]->is(Kind::string)) {
    indention = bound[0]->text();
  } else if (bound[0]) {
    CHORUS_ASSIGN(const int64_t width, integer_of(*bound[0], "indent"));
    indention.assign(static_cast<size_t>(std::clamp<int64_t>(width, 0, 1024)), ' ');
  }
  const bool first = bound[1] && is_true(*bound[1]), blank = bound[2] && is_true(*bound[2]);
  const std::vector<std::string> lines = split_lines(to_text(input) + "\n", false);
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    CHORUS_TRY(machine.charge(1, indention.size()));
    if (i > 0) out += '\n';
    if (i == 0 ? first : blank || !lines[i].empty()) out += indention;
    out += lines[i];
  }
  return machine.make_text(std::move(out));
}

Result<Value> escape_filter(Machine& machine, const Value& input, const Arguments&) {
  std::string out;
  for (const char c : to_text(input)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return machine.make_text(std::move(out));
}

Result<Value> format_filter(Machine& machine, const Value& input, const Arguments& arguments) {
  const std::string form = to_text(input);
  CHORUS_ASSIGN(std::string text, format_text(machine, form, arguments.positional));
  return machine.make_text(std::move(text));
}

Result<Value> wordcount(Machine&, const Value& input, const Arguments&) {
  return Value::integer(static_cast<int64_t>(split_text(to_text(input), {}, -1).size()));
}

}  // namespace

FilterFunction find_filter(std::string_view name) {
  struct Row {
    std::string_view name;
    FilterFunction function;
  };
  constexpr Row kRows[] = {{"tojson", to_json_filter},    {"trim", trim},
                           {"upper", mapped<upper_text>}, {"lower", mapped<lower_text>},
                           {"title", mapped<title_text>}, {"capitalize", mapped<capitalize_text>},
                           {"string", string_filter},     {"safe", same},
                           {"default", default_filter},   {"d", default_filter},
                           {"int", int_filter},           {"float", float_filter},
                           {"abs", abs_filter},           {"round", round_filter},
                           {"replace", replace_filter},   {"indent", indent_filter},
                           {"escape", escape_filter},     {"e", escape_filter},
                           {"format", format_filter},     {"wordcount", wordcount}};
  for (const Row& row : kRows) {
    if (row.name == name) return row.function;
  }
  return find_sequence_filter(name);
}

}  // namespace chorus::generation::jinja
