add_library(chorus_warnings INTERFACE)
target_compile_options(chorus_warnings INTERFACE -Wall -Wextra -Wpedantic -Werror -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers)
