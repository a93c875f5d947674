#include "generation/jinja/machine.h"

#include <algorithm>

#include "base/bytes.h"
#include "generation/jinja/functions.h"
#include "generation/jinja/lexer.h"
#include "generation/jinja/python_text.h"

namespace chorus::generation::jinja {

Error located(Error error, uint32_t line) {
  if (error.message.rfind("chat template:", 0) != 0) error.message = template_error(line, error.message).message;
  return error;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : variables) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  variables.emplace_back(std::string(name), std::move(value));
}

Machine::Machine(const Value& variables, int64_t unix_time, const MachineLimits& limits)
    : variables_(variables), unix_time_(unix_time), limits_(limits) {}

// Namespaces may hold each other.
Machine::~Machine() {
  for (const auto& name_space : namespaces_) name_space->members.clear();
}

Result<std::string> Machine::run(const std::vector<Statement>& program) {
  std::string output;
  Scope top;
  scope_ = &top;
  out_ = &output;
  CHORUS_TRY(execute(program));
  return output;
}

Status Machine::charge(uint64_t steps, uint64_t text_bytes) {
  steps_ += steps;
  text_bytes_ += text_bytes;
  if (steps_ > limits_.steps_max) {
    return make_error(ErrorCode::limit_exceeded, "more than " + std::to_string(limits_.steps_max) + " steps");
  }
  if (text_bytes_ > limits_.text_bytes_max) {
    return make_error(ErrorCode::limit_exceeded, "more than " + std::to_string(limits_.text_bytes_max) + " bytes of text on the way");
  }
  return {};
}

Result<Value> Machine::make_text(std::string text) {
  CHORUS_TRY(charge(0, text.size()));
  return Value::string(std::move(text));
}

Status Machine::write(std::string_view text) {
  CHORUS_TRY(charge(0, text.size()));
  if (out_->size() + text.size() > limits_.output_bytes_max) {
    return make_error(ErrorCode::limit_exceeded, "more than " + std::to_string(limits_.output_bytes_max) + " bytes of output");
  }
  out_->append(text);
  return {};
}

void Machine::keep(Scope* scope) {
  for (; scope != nullptr && !scope->kept; scope = scope->parent) scope->kept = true;
}

void Machine::leave(std::unique_ptr<Scope> scope) {
  scope_ = scope->parent;
  if (scope->kept) kept_scopes_.push_back(std::move(scope));
}

Value Machine::lookup(const std::string& name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& [key, value] : scope->variables) {
      if (key == name) return value;
    }
  }
  if (const Value* value = variables_.find(name)) return *value;
  if (is_environment_function(name)) {
    auto function = std::make_shared<Callable>();
    function->name = name;
    return Value::callable(std::move(function));
  }
  return Value::undefined("'" + name + "' is undefined");
}

Result<Machine::Flow> Machine::execute(const Body& body) {
  if (++depth_ > limits_.depth_max) {
    --depth_;
    return make_error(ErrorCode::limit_exceeded, "calls and blocks nest too deep");
  }
  auto flow = execute_all(body);
  --depth_;
  return flow;
}

Result<Machine::Flow> Machine::execute_all(const Body& body) {
  for (const Statement& statement : body) {
    auto flow = [&]() -> Result<Flow> {
      CHORUS_TRY(charge(1));
      return execute_one(statement);
    }();
    if (!flow) return located(std::move(flow).error(), statement.line);
    if (*flow != Flow::next) return flow;
  }
  return Flow::next;
}

Result<Machine::Flow> Machine::execute_one(const Statement& statement) {
  switch (statement.kind) {
    case StatementKind::data:
      CHORUS_TRY(write(statement.text));
      return Flow::next;
    case StatementKind::output: {
      CHORUS_ASSIGN(const Value value, evaluate(*statement.expressions[0]));
      CHORUS_TRY(charge(value.size() / kValuesPerStep));
      CHORUS_TRY(write(to_text(value)));
      return Flow::next;
    }
    case StatementKind::conditional:
      return execute_conditional(statement);
    case StatementKind::loop:
      return execute_loop(statement);
    case StatementKind::assign:
      CHORUS_TRY(execute_assignment(statement));
      return Flow::next;
    case StatementKind::assign_block:
      CHORUS_TRY(execute_block_assignment(statement));
      return Flow::next;
    case StatementKind::macro:
      scope_->set(statement.text, make_macro(statement, Callable::Type::macro));
      return Flow::next;
    case StatementKind::call_block:
      CHORUS_TRY(execute_call_block(statement));
      return Flow::next;
    case StatementKind::filter_block:
      CHORUS_TRY(execute_filter_block(statement));
      return Flow::next;
    case StatementKind::with:
      return execute_with(statement);
    case StatementKind::scope:
      return execute(statement.bodies[0]);
    case StatementKind::break_loop:
      return Flow::break_loop;
    case StatementKind::continue_loop:
      break;
  }
  return Flow::continue_loop;
}

Result<Machine::Flow> Machine::execute_conditional(const Statement& statement) {
  for (size_t i = 0; i < statement.expressions.size(); ++i) {
    CHORUS_ASSIGN(const Value condition, evaluate(*statement.expressions[i]));
    if (is_true(condition)) return execute(statement.bodies[i]);
  }
  if (statement.bodies.size() > statement.expressions.size()) return execute(statement.bodies.back());
  return Flow::next;
}

Result<Machine::Flow> Machine::execute_inside(const Body& body, Scope& scope) {
  Scope* const outer = std::exchange(scope_, &scope);
  auto flow = execute(body);
  scope_ = outer;
  return flow;
}

Result<std::string> Machine::captured(const Body& body, Scope& scope) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  auto flow = execute_inside(body, scope);
  out_ = outer;
  if (!flow) return std::move(flow).error();
  return text;
}

Status Machine::assign_targets(const std::vector<std::string>& names, const Value& value) {
  if (names.size() == 1) {
    scope_->set(names[0], value);
    return {};
  }
  CHORUS_ASSIGN(const std::vector<Value> items, items_of(value));
  if (items.size() != names.size()) {
    return bad_value("expected " + std::to_string(names.size()) + " values to unpack, found " + std::to_string(items.size()));
  }
  for (size_t i = 0; i < names.size(); ++i) scope_->set(names[i], items[i]);
  return {};
}

Result<Machine::Flow> Machine::execute_loop(const Statement& statement) {
  CHORUS_ASSIGN(const Value iterable, evaluate(*statement.expressions[0]));
  return run_loop(statement, iterable, 0);
}

Result<std::vector<Value>> Machine::filtered_items(const Statement& statement, const Value& iterable) {
  CHORUS_ASSIGN(std::vector<Value> items, items_of(iterable));
  if (!statement.expressions[1]) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    auto scope = std::make_unique<Scope>(Scope{scope_, false, {}});
    scope_ = scope.get();
    Status assigned = assign_targets(statement.names, item);
    Result<Value> condition = assigned ? evaluate(*statement.expressions[1]) : Result<Value>(std::move(assigned).error());
    leave(std::move(scope));
    if (!condition) return std::move(condition).error();
    if (is_true(*condition)) kept.push_back(std::move(item));
  }
  return kept;
}

Result<Machine::Flow> Machine::run_loop(const Statement& statement, const Value& iterable, uint32_t level) {
  CHORUS_ASSIGN(std::vector<Value> items, filtered_items(statement, iterable));
  if (items.empty()) {
    if (statement.bodies.size() < 2) return Flow::next;
    auto scope = std::make_unique<Scope>(Scope{scope_, false, {}});
    auto flow = execute_inside(statement.bodies[1], *scope);
    leave(std::move(scope));
    return flow;
  }
  auto loop = std::make_shared<Loop>();
  for (const Value& item : items) loop->depth = std::max(loop->depth, item.depth() + 1);
  loop->items = std::move(items);
  loop->level = level;
  loop->scope = scope_;
  if (statement.flag) {
    loop->recursive = &statement;
    keep(scope_);
  }
  auto flow = run_iterations(statement, loop);
  loop->changed.reset();  // may hold the loop itself
  return flow;
}

Result<Machine::Flow> Machine::run_iterations(const Statement& statement, const std::shared_ptr<Loop>& loop) {
  for (loop->index = 0; loop->index < loop->items.size(); ++loop->index) {
    auto scope = std::make_unique<Scope>(Scope{scope_, false, {}});
    scope_ = scope.get();
    scope->set("loop", Value::loop(loop));
    Status assigned = assign_targets(statement.names, loop->items[loop->index]);
    Result<Flow> flow = assigned ? execute(statement.bodies[0]) : Result<Flow>(std::move(assigned).error());
    leave(std::move(scope));
    if (!flow) return flow;
    if (*flow == Flow::break_loop) break;
  }
  return Flow::next;
}

Status Machine::execute_assignment(const Statement& statement) {
  CHORUS_ASSIGN(const Value value, evaluate(*statement.expressions[0]));
  if (statement.text.empty()) return assign_targets(statement.names, value);
  const Value object = lookup(statement.names[0]);
  if (!object.is(Kind::name_space)) return bad_value("cannot assign attribute on non-namespace object " + quote_text(statement.names[0]));
  object.attributes().set(statement.text, value);
  return {};
}

Status Machine::execute_block_assignment(const Statement& statement) {
  auto scope = std::make_unique<Scope>(Scope{scope_, false, {}});
  auto text = captured(statement.bodies[0], *scope);
  leave(std::move(scope));
  if (!text) return std::move(text).error();
  Value value = Value::string(std::move(text).value());
  if (statement.expressions[0]) {
    CHORUS_ASSIGN(value, evaluate_filter(*statement.expressions[0], &value));
  }
  if (statement.text.empty()) {
    scope_->set(statement.names[0], value);
    return {};
  }
  const Value object = lookup(statement.names[0]);
  if (!object.is(Kind::name_space)) return bad_value("cannot assign attribute on non-namespace object " + quote_text(statement.names[0]));
  object.attributes().set(statement.text, value);
  return {};
}

Result<Machine::Flow> Machine::execute_with(const Statement& statement) {
  auto scope = std::make_unique<Scope>(Scope{scope_, false, {}});
  for (size_t i = 0; i < statement.names.size(); ++i) {
    CHORUS_ASSIGN(Value value, evaluate(*statement.expressions[i]));
    scope->set(statement.names[i], std::move(value));
  }
  auto flow = execute_inside(statement.bodies[0], *scope);
  leave(std::move(scope));
  return flow;
}

Status Machine::execute_call_block(const Statement& statement) {
  const Expression& call_expression = *statement.expressions[0];
  CHORUS_ASSIGN(const Value function, evaluate(*call_expression.parts[0]));
  if (!function.is(Kind::callable)) return bad_value(std::string("'") + type_name(function) + "' object is not callable");
  CHORUS_ASSIGN(Arguments arguments, evaluate_arguments(call_expression));
  arguments.named.emplace_back("caller", make_macro(statement, Callable::Type::caller));
  CHORUS_ASSIGN(const Value value, call(function.function(), std::move(arguments)));
  return write(to_text(value));
}

Status Machine::execute_filter_block(const Statement& statement) {
  auto scope = std::make_unique<Scope>(Scope{scope_, false, {}});
  auto text = captured(statement.bodies[0], *scope);
  leave(std::move(scope));
  if (!text) return std::move(text).error();
  const Value input = Value::string(std::move(text).value());
  CHORUS_ASSIGN(const Value value, evaluate_filter(*statement.expressions[0], &input));
  return write(to_text(value));
}

Value Machine::make_macro(const Statement& statement, Callable::Type type) {
  keep(scope_);
  auto macro = std::make_shared<Callable>();
  macro->type = type;
  macro->name = type == Callable::Type::macro ? statement.text : "caller";
  macro->macro = &statement;
  macro->scope = scope_;
  return Value::callable(std::move(macro));
}

Result<Value> Machine::call(const Callable& function, Arguments arguments) {
  switch (function.type) {
    case Callable::Type::environment:
      if (function.loop_) return loop_call(function, std::move(arguments));
      return call_environment(*this, function.name, arguments);
    case Callable::Type::method:
      CHORUS_TRY(charge(function.self.size() / kValuesPerStep));
      return call_method(*this, function.self, function.name, arguments);
    default:
      return invoke(function, std::move(arguments));
  }
}

Result<Value> Machine::invoke(const Callable& function, Arguments arguments) {
  const Statement& macro = *function.macro;
  const size_t first_default = function.type == Callable::Type::caller ? 1 : 0;
  const size_t defaults = macro.expressions.size() - first_default;
  auto scope = std::make_unique<Scope>(Scope{function.scope, false, {}});
  std::vector<Value> rest;
  if (arguments.positional.size() > macro.names.size()) {
    rest.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(macro.names.size()), arguments.positional.end());
  }
  std::vector<std::pair<Value, Value>> others;
  for (auto& [name, value] : arguments.named) {
    if (name == "caller") {
      scope->set(name, std::move(value));
    } else if (std::find(macro.names.begin(), macro.names.end(), name) == macro.names.end()) {
      others.emplace_back(Value::string(name), value);
    }
  }
  Scope* const outer = std::exchange(scope_, scope.get());
  auto result = [&]() -> Result<std::string> {
    for (size_t i = 0; i < macro.names.size(); ++i) {
      Value value = Value::undefined("parameter '" + macro.names[i] + "' was not provided");
      const auto named =
          std::find_if(arguments.named.begin(), arguments.named.end(), [&](const auto& a) { return a.first == macro.names[i]; });
      if (i < arguments.positional.size()) {
        value = arguments.positional[i];
      } else if (named != arguments.named.end()) {
        value = named->second;
      } else if (i + defaults >= macro.names.size()) {
        CHORUS_ASSIGN(value, evaluate(*macro.expressions[first_default + i + defaults - macro.names.size()]));
      }
      scope->set(macro.names[i], std::move(value));
    }
    CHORUS_ASSIGN(Value variable, Value::tuple(std::move(rest)));
    scope->set("varargs", std::move(variable));
    CHORUS_ASSIGN(Value keywords, Value::dict(std::move(others)));
    scope->set("kwargs", std::move(keywords));
    return captured(macro.bodies[0], *scope);
  }();
  scope_ = outer;
  if (scope->kept) kept_scopes_.push_back(std::move(scope));
  if (!result) return std::move(result).error();
  return make_text(std::move(result).value());
}

// loop.cycle(...), loop.changed(...), and loop(items) of a recursive loop.
Result<Value> Machine::loop_call(const Callable& function, Arguments arguments) {
  const Loop& loop = *function.loop_;
  if (function.name == "cycle") {
    if (arguments.positional.empty()) return bad_value("loop.cycle: no items to cycle through");
    return arguments.positional[loop.index % arguments.positional.size()];
  }
  if (function.name == "changed") {
    const bool same = loop.changed && loop.changed->size() == arguments.positional.size() &&
                      std::equal(loop.changed->begin(), loop.changed->end(), arguments.positional.begin(), equal);
    if (!same) loop.changed = std::move(arguments.positional);
    return Value::boolean(!same);
  }
  if (arguments.positional.size() != 1) return bad_value("loop(): expected 1 argument");
  std::string text;
  std::string* const outer_text = std::exchange(out_, &text);
  Scope* const outer = std::exchange(scope_, loop.scope);
  auto flow = run_loop(*loop.recursive, arguments.positional[0], loop.level + 1);
  scope_ = outer;
  out_ = outer_text;
  if (!flow) return std::move(flow).error();
  return make_text(std::move(text));
}

}  // namespace chorus::generation::jinja
