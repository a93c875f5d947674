// A Jinja template, ready to render: the front door of this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/json.h"
#include "generation/jinja/machine.h"

namespace chorus::generation::jinja {

class Template {
 public:
  static Result<Template> parse(std::string_view source);

  // `variables` is an object. Errors are one line with the line of the template; rendering is bounded in steps, depth and output.
  Result<std::string> render(const formats::JsonValue& variables, int64_t unix_time, const MachineLimits& limits = {}) const;

 private:
  std::shared_ptr<const std::vector<Statement>> program_;
};

}  // namespace chorus::generation::jinja
