// What an adapter lacks of what kernels can use, in words, for `chorus devices`. Pure. Must not know: single kernels.
#pragma once

#include <string>
#include <vector>

#include "gpu/device.h"

namespace chorus::gpu {

struct Lack {
  std::string feature;    // "f16", "storage binding of 1 GiB" ...
  std::string effect;     // what happens without it
  bool required = false;  // no kernel set runs without it
};

// Needs of the base variants and wishes of the fast ones, compared with `adapter`. Empty: nothing is missing.
std::vector<Lack> lacks_of(const Capabilities& adapter);
// Error when a required one is missing.
Status check_required(const Capabilities& adapter);

}  // namespace chorus::gpu
