# Third-party libraries, each with one line of reason; third_party/LICENCES.md has versions and licences.
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)      # SHA-256 of files
find_package(nlohmann_json REQUIRED)                  # SAX reader: order, duplicate keys and raw numbers are visible
find_package(CLI11 REQUIRED)                          # command line
find_package(spdlog REQUIRED)                         # log lines of the program
find_package(PkgConfig REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter) # build step that embeds the WGSL texts

pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)  # Unicode normalisation and classes
add_library(chorus_utf8proc INTERFACE)
target_link_libraries(chorus_utf8proc INTERFACE PkgConfig::UTF8PROC)
pkg_check_modules(LIBZIP REQUIRED IMPORTED_TARGET libzip)         # the zip archive inside head.pt
add_library(chorus_libzip INTERFACE)
target_link_libraries(chorus_libzip INTERFACE PkgConfig::LIBZIP)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)      # hashes of packed experts, checked at every read
add_library(chorus_xxhash INTERFACE)
target_link_libraries(chorus_xxhash INTERFACE PkgConfig::XXHASH)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)            # portable SIMD with run-time choice of instruction set
add_library(chorus_hwy INTERFACE)
target_link_libraries(chorus_hwy INTERFACE PkgConfig::HWY)

if(CHORUS_WEBGPU)
  include(cmake/dawn.cmake)
endif()
if(CHORUS_DEVELOPER_MODE)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()
