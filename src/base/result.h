// Result and Error live in the public headers, since the library's callers see them.
#pragma once

#include "chorus/result.h"
