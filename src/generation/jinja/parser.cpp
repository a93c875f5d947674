#include "generation/jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "base/bytes.h"
#include "formats/unicode.h"
#include "generation/jinja/expression_parser.h"
#include "generation/jinja/lexer.h"

namespace chorus::generation::jinja {

namespace {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : stream_(std::move(tokens)), expressions_(stream_) {}

  Result<std::vector<Statement>> run() {
    CHORUS_ASSIGN(std::vector<Statement> body, parse_body({}, 1));
    return body;
  }

 private:
  using Body = std::vector<Statement>;

  // Statements up to a block whose first word is one of `ends`; the word is then the current token. Without ends: up to the end.
  // `opened`: the line of the block they are in.
  Result<Body> parse_body(std::initializer_list<std::string_view> ends, uint32_t opened) {
    if (++depth_ > kSyntaxDepthMax) return template_error(stream_.line(), "blocks nest too deep", ErrorCode::limit_exceeded);
    Body body;
    while (!stream_.is(TokenKind::end)) {
      if (stream_.is(TokenKind::data)) {
        Statement data;
        data.line = stream_.line();
        data.text = stream_.take().text;
        body.push_back(std::move(data));
      } else if (stream_.is(TokenKind::output_begin)) {
        CHORUS_TRY(parse_output(body));
      } else {
        stream_.take();  // block_begin: nothing else stands outside tags
        if (!stream_.is(TokenKind::name)) return template_error(stream_.line(), "a tag {% starts with no word");
        if (std::find(ends.begin(), ends.end(), stream_.current().text) != ends.end()) {
          --depth_;
          return body;
        }
        CHORUS_ASSIGN(Statement statement, parse_statement());
        body.push_back(std::move(statement));
      }
    }
    if (ends.size() > 0) {
      return template_error(opened,
                            "a block is not closed: expected {% " + std::string(*(ends.end() - 1)) + " %}, found the end of the template");
    }
    --depth_;
    return body;
  }

  Status parse_output(Body& body) {
    Statement output;
    output.kind = StatementKind::output;
    output.line = stream_.line();
    stream_.take();
    CHORUS_ASSIGN(ExpressionPtr expression, expressions_.parse_tuple());
    output.expressions.push_back(std::move(expression));
    CHORUS_TRY(stream_.expect(TokenKind::output_end, "}}"));
    body.push_back(std::move(output));
    return {};
  }

  Status end_block() { return stream_.expect(TokenKind::block_end, "%}"); }

  Result<Statement> parse_statement() {
    const Token word = stream_.take();
    Statement statement;
    statement.line = word.line;
    if (word.text == "if") return parse_if(std::move(statement));
    if (word.text == "for") return parse_for(std::move(statement));
    if (word.text == "set") return parse_set(std::move(statement));
    if (word.text == "macro") return parse_macro(std::move(statement));
    if (word.text == "call") return parse_call(std::move(statement));
    if (word.text == "filter") return parse_filter(std::move(statement));
    if (word.text == "with") return parse_with(std::move(statement));
    if (word.text == "generation") return finish_body(std::move(statement), StatementKind::scope, "endgeneration");
    if (word.text == "break" || word.text == "continue") {
      statement.kind = word.text == "break" ? StatementKind::break_loop : StatementKind::continue_loop;
      if (loops_ == 0) return template_error(word.line, "{% " + word.text + " %} outside of a loop");
      CHORUS_TRY(end_block());
      return statement;
    }
    return template_error(word.line, "unknown tag " + quote_text(word.text), ErrorCode::unsupported);
  }

  // The end of the opening tag, the body and the closing tag.
  Result<Statement> finish_body(Statement statement, StatementKind kind, std::string_view end) {
    statement.kind = kind;
    CHORUS_TRY(end_block());
    CHORUS_ASSIGN(Body body, parse_body({end}, statement.line));
    statement.bodies.push_back(std::move(body));
    stream_.take();
    if (end == "endmacro" && stream_.is(TokenKind::name)) stream_.take();  // {% endmacro name %}
    CHORUS_TRY(end_block());
    return statement;
  }

  Result<Statement> parse_if(Statement statement) {
    statement.kind = StatementKind::conditional;
    while (true) {
      CHORUS_ASSIGN(ExpressionPtr condition, expressions_.parse_tuple(false));
      statement.expressions.push_back(std::move(condition));
      CHORUS_TRY(end_block());
      CHORUS_ASSIGN(Body body, parse_body({"elif", "else", "endif"}, statement.line));
      statement.bodies.push_back(std::move(body));
      const std::string word = stream_.take().text;
      if (word == "elif") continue;
      if (word == "else") {
        CHORUS_TRY(end_block());
        CHORUS_ASSIGN(Body otherwise, parse_body({"endif"}, statement.line));
        statement.bodies.push_back(std::move(otherwise));
        stream_.take();
      }
      CHORUS_TRY(end_block());
      return statement;
    }
  }

  Result<std::string> parse_name(std::string_view what) {
    if (!stream_.is(TokenKind::name))
      return template_error(stream_.line(), std::string(what) + ": expected a name, found " + stream_.shown());
    return stream_.take().text;
  }

  // name, name, ... until something else.
  Status parse_targets(Statement& statement, std::string_view what) {
    const bool bracketed = stream_.skip_mark("(");
    do {
      if (!statement.names.empty() && !stream_.is(TokenKind::name)) break;
      CHORUS_ASSIGN(std::string name, parse_name(what));
      statement.names.push_back(std::move(name));
    } while (stream_.skip_mark(","));
    if (bracketed) CHORUS_TRY(stream_.expect_mark(")"));
    return {};
  }

  Result<Statement> parse_for(Statement statement) {
    statement.kind = StatementKind::loop;
    CHORUS_TRY(parse_targets(statement, "for"));
    if (!stream_.skip_name("in")) return template_error(stream_.line(), "for: expected 'in', found " + stream_.shown());
    CHORUS_ASSIGN(ExpressionPtr items, expressions_.parse_tuple(false));
    statement.expressions.push_back(std::move(items));
    statement.expressions.emplace_back();
    if (stream_.skip_name("if")) {
      CHORUS_ASSIGN(statement.expressions[1], expressions_.parse());
    }
    statement.flag = stream_.skip_name("recursive");
    CHORUS_TRY(end_block());
    ++loops_;
    CHORUS_ASSIGN(Body body, parse_body({"else", "endfor"}, statement.line));
    --loops_;
    statement.bodies.push_back(std::move(body));
    if (stream_.take().text == "else") {
      CHORUS_TRY(end_block());
      CHORUS_ASSIGN(Body otherwise, parse_body({"endfor"}, statement.line));
      statement.bodies.push_back(std::move(otherwise));
      stream_.take();
    }
    CHORUS_TRY(end_block());
    return statement;
  }

  Result<Statement> parse_set(Statement statement) {
    statement.kind = StatementKind::assign;
    CHORUS_TRY(parse_targets(statement, "set"));
    if (statement.names.size() == 1 && stream_.skip_mark(".")) {
      CHORUS_ASSIGN(statement.text, parse_name("set"));
    }
    if (stream_.skip_mark("=")) {
      CHORUS_ASSIGN(ExpressionPtr value, expressions_.parse_tuple());
      statement.expressions.push_back(std::move(value));
      CHORUS_TRY(end_block());
      return statement;
    }
    if (statement.names.size() != 1) return template_error(stream_.line(), "set: expected '=', found " + stream_.shown());
    CHORUS_ASSIGN(ExpressionPtr filters, expressions_.parse_filters(nullptr));
    statement.expressions.push_back(std::move(filters));
    return finish_body(std::move(statement), StatementKind::assign_block, "endset");
  }

  // ( name, name = default, ... )
  Status parse_parameters(Statement& statement) {
    CHORUS_TRY(stream_.expect_mark("("));
    bool defaults = false;
    while (!stream_.is_mark(")")) {
      CHORUS_ASSIGN(std::string name, parse_name("macro"));
      statement.names.push_back(std::move(name));
      if (stream_.skip_mark("=")) {
        defaults = true;
        CHORUS_ASSIGN(ExpressionPtr value, expressions_.parse());
        statement.expressions.push_back(std::move(value));
      } else if (defaults) {
        return template_error(stream_.line(), "macro: a parameter without a default follows one that has one");
      }
      if (!stream_.skip_mark(",")) break;
    }
    return stream_.expect_mark(")");
  }

  Result<Statement> parse_macro(Statement statement) {
    CHORUS_ASSIGN(statement.text, parse_name("macro"));
    CHORUS_TRY(parse_parameters(statement));
    return outside_loops(std::move(statement), StatementKind::macro, "endmacro");
  }

  Result<Statement> parse_call(Statement statement) {
    statement.expressions.emplace_back();
    if (stream_.is_mark("(")) CHORUS_TRY(parse_parameters(statement));
    CHORUS_ASSIGN(ExpressionPtr call, expressions_.parse());
    if (call->kind != ExpressionKind::call) return template_error(statement.line, "call: expected a call");
    statement.expressions[0] = std::move(call);
    return outside_loops(std::move(statement), StatementKind::call_block, "endcall");
  }

  // break and continue do not reach through a macro.
  Result<Statement> outside_loops(Statement statement, StatementKind kind, std::string_view end) {
    const uint32_t loops = std::exchange(loops_, 0);
    CHORUS_ASSIGN(Statement made, finish_body(std::move(statement), kind, end));
    loops_ = loops;
    return made;
  }

  Result<Statement> parse_filter(Statement statement) {
    CHORUS_ASSIGN(ExpressionPtr filter, expressions_.parse_filter_after_word());
    statement.expressions.push_back(std::move(filter));
    return finish_body(std::move(statement), StatementKind::filter_block, "endfilter");
  }

  Result<Statement> parse_with(Statement statement) {
    while (!stream_.is(TokenKind::block_end)) {
      if (!statement.names.empty()) CHORUS_TRY(stream_.expect_mark(","));
      CHORUS_ASSIGN(std::string name, parse_name("with"));
      statement.names.push_back(std::move(name));
      CHORUS_TRY(stream_.expect_mark("="));
      CHORUS_ASSIGN(ExpressionPtr value, expressions_.parse());
      statement.expressions.push_back(std::move(value));
    }
    return finish_body(std::move(statement), StatementKind::with, "endwith");
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  uint32_t depth_ = 0, loops_ = 0;
};

}  // namespace

Result<std::vector<Statement>> parse(std::string_view source) {
  if (source.size() > kTemplateBytesMax) {
    return make_error(ErrorCode::limit_exceeded,
                      "chat template: " + std::to_string(source.size()) + " bytes, over the limit of " + std::to_string(kTemplateBytesMax));
  }
  if (Status valid = formats::check_utf8(source); !valid) return std::move(valid).error().with_context("reading a chat template");
  CHORUS_ASSIGN(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace chorus::generation::jinja
