// The front door of families: config.json to a Blueprint.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "models/blueprint.h"

namespace chorus::models {

// Whether the files have a tensor of that name.
using TensorIsThere = std::function<bool(const std::string& name)>;

// Reads config.json. Errors: unsupported (an architecture or setting that this program does not run exactly, named), invalid_input.
// With `is_there` the names are those of the files at hand (prefix of the backbone, experts fused or one by one); without, the hub's.
Result<Blueprint> read_blueprint(std::string_view config_json, const TensorIsThere& is_there = {});

}  // namespace chorus::models
