// Tests of templates: `value is name`.
#include "generation/jinja/functions.h"
#include "generation/jinja/python_text.h"

namespace chorus::generation::jinja {

namespace {

template <Kind kKind>
Result<bool> is_kind(Machine&, const Value& value, const Arguments&) {
  return value.is(kKind);
}

Result<bool> defined(Machine&, const Value& value, const Arguments&) { return !value.is(Kind::undefined); }
Result<bool> number(Machine&, const Value& value, const Arguments&) { return value.is_number(); }
Result<bool> is_true_value(Machine&, const Value& value, const Arguments&) { return value.is(Kind::boolean) && value.as_bool(); }
Result<bool> is_false_value(Machine&, const Value& value, const Arguments&) { return value.is(Kind::boolean) && !value.as_bool(); }

// Whatever has a length and items: in Python that is also true of strings and dicts; undefined values of the reference answer to
// everything.
Result<bool> sequence(Machine&, const Value& value, const Arguments&) {
  return value.is(Kind::string) || value.is_sequence() || value.is(Kind::dict) || value.is(Kind::undefined);
}

Result<bool> iterable(Machine& machine, const Value& value, const Arguments& arguments) {
  if (value.is(Kind::loop)) return true;
  return sequence(machine, value, arguments);
}

Result<bool> callable(Machine&, const Value& value, const Arguments&) {
  return value.is(Kind::callable) || value.is(Kind::undefined) || (value.is(Kind::loop) && value.loop_state().recursive != nullptr);
}

template <int64_t kRest>
Result<bool> parity(Machine&, const Value& value, const Arguments&) {
  CHORUS_ASSIGN(const int64_t integer, integer_of(value, "odd, even"));
  return (integer % 2 != 0) == (kRest == 1);
}

Result<const Value*> operand(const Arguments& arguments) {
  if (arguments.positional.size() != 1) return bad_value("the test expects one operand");
  return &arguments.positional[0];
}

Result<bool> divisible(Machine&, const Value& value, const Arguments& arguments) {
  CHORUS_ASSIGN(const Value* other, operand(arguments));
  CHORUS_ASSIGN(const int64_t dividend, integer_of(value, "divisibleby"));
  CHORUS_ASSIGN(const int64_t divisor, integer_of(*other, "divisibleby"));
  if (divisor == 0) return bad_value("division by zero");
  return divisor == -1 || dividend % divisor == 0;
}

struct Sign {
  const char* text;
};
constexpr Sign kEqual{"=="}, kUnequal{"!="}, kLess{"<"}, kLessEqual{"<="}, kGreater{">"}, kGreaterEqual{">="}, kIn{"in"};

template <const Sign& kSign>
Result<bool> compared(Machine&, const Value& value, const Arguments& arguments) {
  CHORUS_ASSIGN(const Value* other, operand(arguments));
  return compare_values(kSign.text, value, *other);
}

Result<bool> same_as(Machine&, const Value& value, const Arguments& arguments) {
  CHORUS_ASSIGN(const Value* other, operand(arguments));
  return value.kind() == other->kind() && equal(value, *other);
}

template <bool kUpper>
Result<bool> has_case(Machine&, const Value& value, const Arguments&) {
  const std::string text = to_text(value);
  return lower_text(text) != upper_text(text) && text == (kUpper ? upper_text(text) : lower_text(text));
}

}  // namespace

TestFunction find_test(std::string_view name) {
  struct Row {
    std::string_view name;
    TestFunction function;
  };
  constexpr Row kRows[] = {{"defined", defined},
                           {"undefined", is_kind<Kind::undefined>},
                           {"none", is_kind<Kind::none>},
                           {"boolean", is_kind<Kind::boolean>},
                           {"true", is_true_value},
                           {"false", is_false_value},
                           {"integer", is_kind<Kind::integer>},
                           {"float", is_kind<Kind::floating>},
                           {"number", number},
                           {"string", is_kind<Kind::string>},
                           {"mapping", is_kind<Kind::dict>},
                           {"sequence", sequence},
                           {"iterable", iterable},
                           {"callable", callable},
                           {"odd", parity<1>},
                           {"even", parity<0>},
                           {"divisibleby", divisible},
                           {"sameas", same_as},
                           {"lower", has_case<false>},
                           {"upper", has_case<true>},
                           {"==", compared<kEqual>},
                           {"eq", compared<kEqual>},
                           {"equalto", compared<kEqual>},
                           {"!=", compared<kUnequal>},
                           {"ne", compared<kUnequal>},
                           {"<", compared<kLess>},
                           {"lt", compared<kLess>},
                           {"lessthan", compared<kLess>},
                           {"<=", compared<kLessEqual>},
                           {"le", compared<kLessEqual>},
                           {">", compared<kGreater>},
                           {"gt", compared<kGreater>},
                           {"greaterthan", compared<kGreater>},
                           {">=", compared<kGreaterEqual>},
                           {"ge", compared<kGreaterEqual>},
                           {"in", compared<kIn>}};
  for (const Row& row : kRows) {
    if (row.name == name) return row.function;
  }
  return nullptr;
}

}  // namespace chorus::generation::jinja
