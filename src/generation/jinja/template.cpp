#include "generation/jinja/template.h"

#include "generation/jinja/parser.h"

namespace chorus::generation::jinja {

Result<Template> Template::parse(std::string_view source) {
  CHORUS_ASSIGN(std::vector<Statement> program, jinja::parse(source));
  Template made;
  made.program_ = std::make_shared<const std::vector<Statement>>(std::move(program));
  return made;
}

Result<std::string> Template::render(const formats::JsonValue& variables, int64_t unix_time, const MachineLimits& limits) const {
  if (!variables.is_object()) return make_error(ErrorCode::invalid_argument, "chat template: the variables are not an object");
  CHORUS_ASSIGN(const Value values, Value::from_json(variables));
  return Machine(values, unix_time, limits).run(*program_);
}

}  // namespace chorus::generation::jinja
