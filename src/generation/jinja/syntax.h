// The tree of a parsed template. Depth is bounded while it is built, so that walking and freeing it needs bounded stack.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "generation/jinja/value.h"

namespace chorus::generation::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind : uint8_t {
  constant,     // value
  name,         // text
  list,         // parts
  tuple,        // parts
  dict,         // parts: key, value, key, value ...
  attribute,    // parts[0] . text
  item,         // parts[0] [ parts[1] ]
  slice,        // inside an item: parts[0] : parts[1] : parts[2], each may be null
  call,         // parts[0] ( parts[1..], keywords )
  filter,       // parts[0] | text ( parts[1..], keywords ); parts[0] is null for the text of a block
  test,         // parts[0] is text ( parts[1..] )
  negation,     // not parts[0]
  unary,        // text is "-" or "+"
  binary,       // parts[0] text parts[1]: arithmetic, "~", "and", "or"
  comparison,   // parts[0] operators[0] parts[1] operators[1] ...
  conditional,  // parts[1] if parts[0] else parts[2]; parts[2] may be null
};

struct Expression {
  ExpressionKind kind = ExpressionKind::constant;
  uint32_t line = 1;
  uint32_t depth = 1;
  Value value;
  std::string text;
  std::vector<ExpressionPtr> parts;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;
  std::vector<std::string> operators;
};

enum class StatementKind : uint8_t {
  data,          // text
  output,        // expressions[0]
  conditional,   // bodies[i] if expressions[i]; one more body: else
  loop,          // names in expressions[0] if expressions[1] (may be null); bodies[0], else bodies[1]; flag: recursive
  assign,        // names = expressions[0]; with attribute: names[0].text = expressions[0]
  assign_block,  // names[0] = bodies[0], through the filters of expressions[0] (may be null)
  macro,         // text ( names, of which the last ones have the defaults expressions[]); bodies[0]
  call_block,    // expressions[0] is the call; names and defaults are those of caller: expressions[1..]; bodies[0]
  filter_block,  // expressions[0] over bodies[0]
  with,          // names[i] = expressions[i]; bodies[0]
  scope,         // bodies[0] as it is ({% generation %})
  break_loop,
  continue_loop,
};

struct Statement {
  StatementKind kind = StatementKind::data;
  uint32_t line = 1;
  bool flag = false;
  std::string text;
  std::vector<std::string> names;
  std::vector<ExpressionPtr> expressions;
  std::vector<std::vector<Statement>> bodies;
};

}  // namespace chorus::generation::jinja
