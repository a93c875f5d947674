// Inside of the public TextModel, for tests that bring their own backend. Users include chorus/generate.h.
#pragma once

#include <memory>

#include "chorus/generate.h"
#include "runtime/model.h"

namespace chorus::runtime {

// TextModel::load with another way to make backends; it is called again after a lost device.
Result<std::unique_ptr<TextModel>> load_text_model(const TextModelOptions& options, BackendFactory factory);

}  // namespace chorus::runtime
