// Inside of the public Model, for tests that bring their own backend. Users include chorus/chorus.h.
#pragma once

#include <functional>
#include <memory>

#include "chorus/chorus.h"
#include "runtime/backend_choice.h"

namespace chorus::runtime {

using BackendFactory = std::function<Result<BackendChoice>(const BackendRequest&)>;

// Model::load with another way to make backends; it is called again after a lost device.
Result<std::unique_ptr<Model>> load_model(const ModelOptions& options, BackendFactory factory);

}  // namespace chorus::runtime
