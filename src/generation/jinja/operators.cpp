// Operators of templates, as Python has them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "generation/jinja/functions.h"
#include "generation/jinja/python_text.h"

namespace chorus::generation::jinja {

Error bad_value(std::string message) { return make_error(ErrorCode::invalid_input, std::move(message)); }

Status require_defined(const Value& value) {
  if (value.is(Kind::undefined)) return bad_value(value.undefined_reason());
  return {};
}

Result<int64_t> integer_of(const Value& value, std::string_view what) {
  if (value.is(Kind::integer) || value.is(Kind::boolean)) return value.as_integer();
  CHORUS_TRY(require_defined(value));
  return bad_value(std::string(what) + ": expected an integer, found " + type_name(value));
}

Result<std::string_view> text_of(const Value& value, std::string_view what) {
  if (value.is(Kind::string)) return std::string_view(value.text());
  CHORUS_TRY(require_defined(value));
  return bad_value(std::string(what) + ": expected a string, found " + type_name(value));
}

namespace {

Error unsupported_operands(const std::string& mark, const Value& a, const Value& b) {
  return bad_value("unsupported operand types for " + mark + ": '" + type_name(a) + "' and '" + type_name(b) + "'");
}

Error overflow() { return make_error(ErrorCode::limit_exceeded, "an integer is larger than 64 bits"); }

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

double floor_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Result<Value> integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return bad_value("0 cannot be raised to a negative power");
    return Value::floating(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return overflow();
  }
  return Value::integer(result);
}

Result<Value> integer_operation(const std::string& mark, int64_t a, int64_t b) {
  int64_t result = 0;
  bool over = false;
  if (mark == "+") {
    over = __builtin_add_overflow(a, b, &result);
  } else if (mark == "-") {
    over = __builtin_sub_overflow(a, b, &result);
  } else if (mark == "*") {
    over = __builtin_mul_overflow(a, b, &result);
  } else if (mark == "**") {
    return integer_power(a, b);
  } else {
    if (b == 0) return bad_value("division by zero");
    if (mark == "/") return Value::floating(static_cast<double>(a) / static_cast<double>(b));
    if (b == -1) {  // a / -1 can overflow
      if (mark == "%") return Value::integer(0);
      over = __builtin_sub_overflow(int64_t{0}, a, &result);
    } else {
      result = mark == "//" ? floor_divide(a, b) : a - floor_divide(a, b) * b;
    }
  }
  if (over) return overflow();
  return Value::integer(result);
}

Result<Value> number_operation(const std::string& mark, const Value& a, const Value& b) {
  if (!a.is(Kind::floating) && !b.is(Kind::floating)) return integer_operation(mark, a.as_integer(), b.as_integer());
  const double x = a.as_double(), y = b.as_double();
  if (mark == "+") return Value::floating(x + y);
  if (mark == "-") return Value::floating(x - y);
  if (mark == "*") return Value::floating(x * y);
  if (mark == "**") return Value::floating(std::pow(x, y));
  if (y == 0) return bad_value("division by zero");
  if (mark == "/") return Value::floating(x / y);
  if (mark == "//") return Value::floating(std::floor(x / y));
  return Value::floating(floor_modulo(x, y));
}

Result<Value> repeat(Machine& machine, const Value& value, int64_t count) {
  const auto times = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  const uint64_t length = value.is(Kind::string) ? value.text().size() : value.items().size();
  uint64_t total = 0;
  if (__builtin_mul_overflow(length, times, &total)) total = std::numeric_limits<uint64_t>::max() / 4;
  if (value.is(Kind::string)) {
    CHORUS_TRY(machine.charge(0, total));
    std::string text;
    text.reserve(total);
    for (uint64_t i = 0; i < times && length > 0; ++i) text += value.text();
    return Value::string(std::move(text));
  }
  CHORUS_TRY(machine.charge(total));
  std::vector<Value> items;
  for (uint64_t i = 0; i < times && length > 0; ++i) items.insert(items.end(), value.items().begin(), value.items().end());
  return value.is(Kind::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

}  // namespace

Result<Value> binary_operation(Machine& machine, const std::string& mark, const Value& a, const Value& b) {
  if (mark == "~") {
    std::string text = to_text(a);
    return machine.make_text(text + to_text(b));
  }
  CHORUS_TRY(require_defined(a));
  if (mark == "%" && a.is(Kind::string)) {
    CHORUS_ASSIGN(std::string text, format_text(machine, a.text(), b.is(Kind::tuple) ? b.items() : std::vector<Value>{b}));
    return machine.make_text(std::move(text));
  }
  CHORUS_TRY(require_defined(b));
  if (a.is_number() && b.is_number()) return number_operation(mark, a, b);
  if (mark == "+" && a.kind() == b.kind()) {
    if (a.is(Kind::string)) return machine.make_text(a.text() + b.text());
    if (a.is_sequence()) {
      CHORUS_TRY(machine.charge(a.items().size() + b.items().size()));
      std::vector<Value> items = a.items();
      items.insert(items.end(), b.items().begin(), b.items().end());
      return a.is(Kind::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
    }
  }
  if (mark == "*") {
    if ((a.is(Kind::string) || a.is_sequence()) && b.is(Kind::integer)) return repeat(machine, a, b.as_integer());
    if ((b.is(Kind::string) || b.is_sequence()) && a.is(Kind::integer)) return repeat(machine, b, a.as_integer());
  }
  return unsupported_operands(mark, a, b);
}

Result<Value> sign_operation(const std::string& mark, const Value& value) {
  CHORUS_TRY(require_defined(value));
  if (!value.is_number()) return bad_value("bad operand type for unary " + mark + ": '" + type_name(value) + "'");
  if (mark == "+") return value.is(Kind::boolean) ? Value::integer(value.as_integer()) : value;
  if (value.is(Kind::floating)) return Value::floating(-value.as_double());
  return integer_operation("-", 0, value.as_integer());
}

Result<bool> contains(const Value& item, const Value& container) {
  switch (container.kind()) {
    case Kind::undefined:
      return false;
    case Kind::string: {
      if (!item.is(Kind::string)) {
        CHORUS_TRY(require_defined(item));
        return bad_value(std::string("'in <string>' requires string as left operand, not ") + type_name(item));
      }
      return container.text().find(item.text()) != std::string::npos;
    }
    case Kind::list:
    case Kind::tuple:
      return std::any_of(container.items().begin(), container.items().end(), [&](const Value& other) { return equal(item, other); });
    case Kind::dict:
      return container.find(item) != nullptr;
    default:
      return bad_value(std::string("argument of type '") + type_name(container) + "' is not iterable");
  }
}

Result<bool> compare_values(const std::string& sign, const Value& a, const Value& b) {
  if (sign == "==") return equal(a, b);
  if (sign == "!=") return !equal(a, b);
  if (sign == "in") return contains(a, b);
  if (sign == "not in") {
    CHORUS_ASSIGN(const bool inside, contains(a, b));
    return !inside;
  }
  CHORUS_TRY(require_defined(a));
  CHORUS_TRY(require_defined(b));
  if (a.is_number() && b.is_number() && (std::isnan(a.as_double()) || std::isnan(b.as_double()))) return false;
  CHORUS_ASSIGN(const int order, compare(a, b));
  if (sign == "<") return order < 0;
  if (sign == "<=") return order <= 0;
  if (sign == ">") return order > 0;
  return order >= 0;
}

namespace {

// One end of a Python slice, inside [low, high].
Result<int64_t> slice_bound(const Value& value, int64_t count, int64_t low, int64_t high, int64_t otherwise) {
  if (value.is(Kind::none)) return otherwise;
  CHORUS_ASSIGN(int64_t bound, integer_of(value, "slice"));
  if (bound < 0) bound = bound < -count ? low : bound + count;
  return std::clamp(bound, low, high);
}

}  // namespace

Result<Value> slice_value(Machine& machine, const Value& object, const Value& start, const Value& stop, const Value& step) {
  CHORUS_TRY(require_defined(object));
  if (!object.is(Kind::string) && !object.is_sequence()) {
    return bad_value(std::string("'") + type_name(object) + "' object cannot be sliced");
  }
  int64_t stride = 1;
  if (!step.is(Kind::none)) {
    CHORUS_ASSIGN(stride, integer_of(step, "slice"));
  }
  if (stride == 0) return bad_value("slice step cannot be zero");
  std::vector<std::string_view> characters;
  if (object.is(Kind::string)) characters = split_characters(object.text());
  const auto count = static_cast<int64_t>(object.is(Kind::string) ? characters.size() : object.items().size());
  CHORUS_TRY(machine.charge(static_cast<uint64_t>(count)));
  const int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? count : count - 1;
  CHORUS_ASSIGN(const int64_t first, slice_bound(start, count, low, high, stride > 0 ? 0 : count - 1));
  CHORUS_ASSIGN(const int64_t last, slice_bound(stop, count, low, high, stride > 0 ? count : -1));
  stride = std::clamp<int64_t>(stride, -count - 1, count + 1);
  std::string text;
  std::vector<Value> items;
  for (int64_t i = first; stride > 0 ? i < last : i > last; i += stride) {
    if (object.is(Kind::string)) {
      text += characters[static_cast<size_t>(i)];
    } else {
      items.push_back(object.items()[static_cast<size_t>(i)]);
    }
  }
  if (object.is(Kind::string)) return machine.make_text(std::move(text));
  return object.is(Kind::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

namespace {

struct Conversion {
  char type = 's';
  bool left = false, zero = false;
  size_t width = 0;
  int precision = -1;
};

Result<std::string> converted(const Conversion& conversion, const Value& value) {
  std::string text;
  if (conversion.type == 's') {
    text = to_text(value);
    if (conversion.precision >= 0) {
      const auto characters = split_characters(text);
      if (characters.size() > static_cast<size_t>(conversion.precision)) {
        text.resize(static_cast<size_t>(characters[static_cast<size_t>(conversion.precision)].data() - text.data()));
      }
    }
  } else if (conversion.type == 'r') {
    text = to_repr(value);
  } else {
    if (!value.is_number()) return bad_value(std::string("%") + conversion.type + " format: a number is required, not " + type_name(value));
    if (conversion.type == 'd' || conversion.type == 'i') {
      text = value.is(Kind::floating) ? std::to_string(static_cast<int64_t>(std::clamp(value.as_double(), -9e18, 9e18)))
                                      : std::to_string(value.as_integer());
    } else {
      char buffer[512];
      const int written =
          std::snprintf(buffer, sizeof buffer, "%.*f", conversion.precision < 0 ? 6 : conversion.precision, value.as_double());
      text.assign(buffer, static_cast<size_t>(std::clamp(written, 0, static_cast<int>(sizeof buffer) - 1)));
    }
  }
  const size_t count = character_count(text);
  if (count >= conversion.width) return text;
  const std::string padding(conversion.width - count, conversion.zero && conversion.type != 's' && !conversion.left ? '0' : ' ');
  if (conversion.left) return text + padding;
  const bool negative = padding[0] == '0' && !text.empty() && text[0] == '-';
  return negative ? "-" + padding + text.substr(1) : padding + text;
}

}  // namespace

// %s %r %d %i %f with flags "-" and "0", width and precision; %% is %.
Result<std::string> format_text(Machine& machine, std::string_view form, const std::vector<Value>& values) {
  std::string out;
  size_t next = 0;
  for (size_t at = 0; at < form.size(); ++at) {
    if (form[at] != '%') {
      out += form[at];
      continue;
    }
    if (++at < form.size() && form[at] == '%') {
      out += '%';
      continue;
    }
    Conversion conversion;
    for (; at < form.size() && (form[at] == '-' || form[at] == '0'); ++at) (form[at] == '-' ? conversion.left : conversion.zero) = true;
    for (; at < form.size() && form[at] >= '0' && form[at] <= '9'; ++at)
      conversion.width = std::min<size_t>(conversion.width * 10 + static_cast<size_t>(form[at] - '0'), 1u << 16);
    if (at < form.size() && form[at] == '.') {
      conversion.precision = 0;
      for (++at; at < form.size() && form[at] >= '0' && form[at] <= '9'; ++at)
        conversion.precision = std::min(conversion.precision * 10 + form[at] - '0', 100);
    }
    if (at >= form.size() || std::string_view("srdif").find(form[at]) == std::string_view::npos)
      return bad_value("unsupported format in a '%' operation");
    conversion.type = form[at];
    if (next >= values.size()) return bad_value("not enough arguments for format string");
    CHORUS_TRY(machine.charge(1, conversion.width));
    CHORUS_ASSIGN(const std::string text, converted(conversion, values[next++]));
    out += text;
  }
  if (next < values.size()) return bad_value("not all arguments converted during string formatting");
  return out;
}

}  // namespace chorus::generation::jinja
