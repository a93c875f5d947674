// Expressions of the machine: evaluation, attributes, items, calls.
#include <algorithm>

#include "base/bytes.h"
#include "generation/jinja/functions.h"
#include "generation/jinja/machine.h"
#include "generation/jinja/python_text.h"

namespace chorus::generation::jinja {

Result<Value> Machine::evaluate(const Expression& expression) {
  if (++depth_ > limits_.depth_max) {
    --depth_;
    return located(make_error(ErrorCode::limit_exceeded, "calls and expressions nest too deep"), expression.line);
  }
  Status charged = charge(1);
  Result<Value> result = charged ? evaluate_kind(expression) : Result<Value>(std::move(charged).error());
  --depth_;
  if (!result) return located(std::move(result).error(), expression.line);
  return result;
}

Result<Value> Machine::evaluate_kind(const Expression& expression) {
  switch (expression.kind) {
    case ExpressionKind::constant:
      return expression.value;
    case ExpressionKind::name:
      return lookup(expression.text);
    case ExpressionKind::list:
    case ExpressionKind::tuple:
      return evaluate_items(expression);
    case ExpressionKind::dict:
      return evaluate_dict(expression);
    case ExpressionKind::attribute: {
      CHORUS_ASSIGN(const Value object, evaluate(*expression.parts[0]));
      return attribute(object, expression.text);
    }
    case ExpressionKind::item:
      return evaluate_item(expression);
    case ExpressionKind::slice:
      return bad_value("a slice outside of square brackets");
    case ExpressionKind::call:
      return evaluate_call(expression);
    case ExpressionKind::filter:
      return evaluate_filter(expression, nullptr);
    case ExpressionKind::test:
      return evaluate_test(expression);
    case ExpressionKind::negation: {
      CHORUS_ASSIGN(const Value value, evaluate(*expression.parts[0]));
      return Value::boolean(!is_true(value));
    }
    case ExpressionKind::unary: {
      CHORUS_ASSIGN(const Value value, evaluate(*expression.parts[0]));
      return sign_operation(expression.text, value);
    }
    case ExpressionKind::binary:
      return evaluate_binary(expression);
    case ExpressionKind::comparison:
      return evaluate_comparison(expression);
    case ExpressionKind::conditional:
      break;
  }
  return evaluate_conditional(expression);
}

Result<Value> Machine::evaluate_items(const Expression& expression) {
  std::vector<Value> items;
  items.reserve(expression.parts.size());
  for (const ExpressionPtr& part : expression.parts) {
    CHORUS_ASSIGN(Value value, evaluate(*part));
    items.push_back(std::move(value));
  }
  return expression.kind == ExpressionKind::list ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Result<Value> Machine::evaluate_dict(const Expression& expression) {
  std::vector<std::pair<Value, Value>> members;
  for (size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
    CHORUS_ASSIGN(Value key, evaluate(*expression.parts[i]));
    CHORUS_ASSIGN(Value value, evaluate(*expression.parts[i + 1]));
    const auto found = std::find_if(members.begin(), members.end(), [&](const auto& member) { return equal(member.first, key); });
    if (found != members.end()) {
      found->second = std::move(value);
    } else {
      members.emplace_back(std::move(key), std::move(value));
    }
  }
  return Value::dict(std::move(members));
}

Result<Value> Machine::evaluate_item(const Expression& expression) {
  CHORUS_ASSIGN(const Value object, evaluate(*expression.parts[0]));
  const Expression& index = *expression.parts[1];
  if (index.kind == ExpressionKind::slice) return evaluate_slice(object, index);
  CHORUS_ASSIGN(const Value key, evaluate(index));
  return item(object, key);
}

Result<Value> Machine::evaluate_slice(const Value& object, const Expression& slice) {
  Value bounds[3] = {Value::none(), Value::none(), Value::none()};
  for (size_t i = 0; i < 3; ++i) {
    if (!slice.parts[i]) continue;
    CHORUS_ASSIGN(bounds[i], evaluate(*slice.parts[i]));
  }
  return slice_value(*this, object, bounds[0], bounds[1], bounds[2]);
}

Result<Arguments> Machine::evaluate_arguments(const Expression& expression) {
  Arguments arguments;
  for (size_t i = 1; i < expression.parts.size(); ++i) {
    CHORUS_ASSIGN(Value value, evaluate(*expression.parts[i]));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : expression.keywords) {
    CHORUS_ASSIGN(Value value, evaluate(*argument));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

Result<Value> Machine::evaluate_call(const Expression& expression) {
  CHORUS_ASSIGN(const Value function, evaluate(*expression.parts[0]));
  CHORUS_TRY(require_defined(function));
  CHORUS_ASSIGN(Arguments arguments, evaluate_arguments(expression));
  if (function.is(Kind::callable)) return call(function.function(), std::move(arguments));
  if (function.is(Kind::loop) && function.loop_state().recursive != nullptr) {
    // The same loop, as a function.
    CHORUS_ASSIGN(const Value as_function, attribute(function, "__call__"));
    return call(as_function.function(), std::move(arguments));
  }
  return bad_value(std::string("'") + type_name(function) + "' object is not callable");
}

Result<Value> Machine::evaluate_filter(const Expression& expression, const Value* block_text) {
  Value input;
  if (!expression.parts[0]) {
    CHORUS_CHECK(block_text != nullptr);
    input = *block_text;
  } else if (expression.parts[0]->kind == ExpressionKind::filter) {
    CHORUS_ASSIGN(input, evaluate_filter(*expression.parts[0], block_text));
  } else {
    CHORUS_ASSIGN(input, evaluate(*expression.parts[0]));
  }
  CHORUS_ASSIGN(const Arguments arguments, evaluate_arguments(expression));
  auto result = apply_filter(expression.text, input, arguments);
  if (!result) return located(std::move(result).error(), expression.line);
  return result;
}

Result<Value> Machine::evaluate_test(const Expression& expression) {
  CHORUS_ASSIGN(const Value input, evaluate(*expression.parts[0]));
  CHORUS_ASSIGN(const Arguments arguments, evaluate_arguments(expression));
  CHORUS_ASSIGN(const bool result, apply_test(expression.text, input, arguments));
  return Value::boolean(result);
}

Result<Value> Machine::evaluate_binary(const Expression& expression) {
  CHORUS_ASSIGN(Value left, evaluate(*expression.parts[0]));
  if (expression.text == "and" || expression.text == "or") {
    if (is_true(left) == (expression.text == "or")) return left;
    return evaluate(*expression.parts[1]);
  }
  CHORUS_ASSIGN(const Value right, evaluate(*expression.parts[1]));
  CHORUS_TRY(charge((left.size() + right.size()) / kValuesPerStep));
  return binary_operation(*this, expression.text, left, right);
}

Result<Value> Machine::evaluate_comparison(const Expression& expression) {
  CHORUS_ASSIGN(Value left, evaluate(*expression.parts[0]));
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    CHORUS_ASSIGN(Value right, evaluate(*expression.parts[i + 1]));
    CHORUS_TRY(charge((left.size() + right.size()) / kValuesPerStep));
    CHORUS_ASSIGN(const bool holds, compare_values(expression.operators[i], left, right));
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Machine::evaluate_conditional(const Expression& expression) {
  CHORUS_ASSIGN(const Value condition, evaluate(*expression.parts[0]));
  if (is_true(condition)) return evaluate(*expression.parts[1]);
  if (expression.parts[2]) return evaluate(*expression.parts[2]);
  return Value::undefined("the inline if-expression evaluated to false and has no else");
}

Result<std::vector<Value>> Machine::items_of(const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::undefined:
      return items;
    case Kind::list:
    case Kind::tuple:
      CHORUS_TRY(charge(value.items().size()));
      return value.items();
    case Kind::dict:
      CHORUS_TRY(charge(value.members().size()));
      for (const auto& member : value.members()) items.push_back(member.first);
      return items;
    case Kind::string:
      CHORUS_TRY(charge(value.text().size()));
      for (const std::string_view character : split_characters(value.text())) items.push_back(Value::string(std::string(character)));
      return items;
    default:
      return bad_value(std::string("'") + type_name(value) + "' object is not iterable");
  }
}

namespace {

Value loop_function(const Value& loop, const std::string& name) {
  auto function = std::make_shared<Callable>();
  function->name = name;
  function->loop_ = std::shared_ptr<const Loop>(std::make_shared<Value>(loop), &loop.loop_state());  // shares the loop's ownership
  return Value::callable(std::move(function));
}

Value loop_attribute(const Value& object, const std::string& name) {
  const Loop& loop = object.loop_state();
  const auto index = static_cast<int64_t>(loop.index), count = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(count - index);
  if (name == "revindex0") return Value::integer(count - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == count);
  if (name == "length") return Value::integer(count);
  if (name == "depth") return Value::integer(loop.level + 1);
  if (name == "depth0") return Value::integer(loop.level);
  if (name == "previtem") return index > 0 ? loop.items[loop.index - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem") return index + 1 < count ? loop.items[loop.index + 1] : Value::undefined("there is no next item");
  if (name == "cycle" || name == "changed" || (name == "__call__" && loop.recursive != nullptr)) return loop_function(object, name);
  return Value::undefined("'loop' has no attribute '" + name + "'");
}

std::string shown_type(const Value& value) {
  return value.is(Kind::dict) ? "dict object" : value.is(Kind::list) ? "list object" : std::string(type_name(value)) + " object";
}

}  // namespace

Result<Value> Machine::attribute(const Value& object, const std::string& name) {
  CHORUS_TRY(require_defined(object));
  if (has_method(object, name)) {
    auto method = std::make_shared<Callable>();
    method->type = Callable::Type::method;
    method->name = name;
    method->self = object;
    return Value::callable(std::move(method));
  }
  const Value* found = nullptr;
  if (object.is(Kind::loop)) return loop_attribute(object, name);
  if (object.is(Kind::dict)) found = object.find(name);
  if (object.is(Kind::name_space)) found = object.attributes().find(name);
  if (object.is(Kind::callable) && name == "name") return Value::string(object.function().name);
  if (found != nullptr) return *found;
  return Value::undefined("'" + shown_type(object) + "' has no attribute '" + name + "'");
}

Result<Value> Machine::item(const Value& object, const Value& key) {
  CHORUS_TRY(require_defined(object));
  if (object.is(Kind::dict)) {
    CHORUS_TRY(charge(object.members().size() / 16));
    if (const Value* found = object.find(key)) return *found;
  } else if ((object.is_sequence() || object.is(Kind::string)) && (key.is(Kind::integer) || key.is(Kind::boolean))) {
    if (object.is(Kind::string)) CHORUS_TRY(charge(object.text().size() / 16));
    const auto count = static_cast<int64_t>(object.is(Kind::string) ? character_count(object.text()) : object.items().size());
    const int64_t index = key.as_integer() < 0 ? key.as_integer() + count : key.as_integer();
    if (index < 0 || index >= count)
      return Value::undefined("'" + shown_type(object) + "' has no element " + std::to_string(key.as_integer()));
    if (object.is(Kind::string)) return Value::string(std::string(split_characters(object.text())[static_cast<size_t>(index)]));
    return object.items()[static_cast<size_t>(index)];
  }
  if (key.is(Kind::string)) return attribute(object, key.text());
  return Value::undefined("'" + shown_type(object) + "' has no element " + to_repr(key));
}

Result<Value> Machine::apply_filter(const std::string& name, const Value& input, const Arguments& arguments) {
  const FilterFunction filter = find_filter(name);
  if (filter == nullptr) return make_error(ErrorCode::unsupported, "no filter named " + quote_text(name));
  CHORUS_TRY(charge(input.size() / kValuesPerStep));
  return filter(*this, input, arguments);
}

Result<bool> Machine::apply_test(const std::string& name, const Value& input, const Arguments& arguments) {
  const TestFunction test = find_test(name);
  if (test == nullptr) return make_error(ErrorCode::unsupported, "no test named " + quote_text(name));
  return test(*this, input, arguments);
}

}  // namespace chorus::generation::jinja
