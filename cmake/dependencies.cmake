# Third-party libraries. Each has one line of reason here; versions are those of Debian 12 unless pinned in third_party/.
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
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)            # portable SIMD with run-time choice of instruction set
add_library(chorus_hwy INTERFACE)
target_link_libraries(chorus_hwy INTERFACE PkgConfig::HWY)

if(CHORUS_WEBGPU)
  add_library(chorus_dawn INTERFACE)
  find_package(Dawn QUIET)
  if(Dawn_FOUND)
    target_link_libraries(chorus_dawn INTERFACE dawn::webgpu_dawn)
    message(STATUS "Dawn: the system's")
  else()
    set(dawn_lib ${CHORUS_DAWN_PREFIX}/usr/lib/x86_64-linux-gnu)
    if(NOT EXISTS ${dawn_lib}/libwebgpu_dawn.so)
      message(FATAL_ERROR "Dawn not found: install it, run tools/fetch_dawn ${CHORUS_DAWN_PREFIX}, or configure with -DCHORUS_WEBGPU=OFF")
    endif()
    # The prefix brings its own C library: programs start through its loader and find its libraries by an old-style run path.
    target_include_directories(chorus_dawn SYSTEM INTERFACE ${CHORUS_DAWN_PREFIX}/usr/include)
    target_link_directories(chorus_dawn INTERFACE ${dawn_lib})
    target_link_libraries(chorus_dawn INTERFACE webgpu_dawn)
    target_link_options(chorus_dawn INTERFACE -Wl,--allow-shlib-undefined -Wl,--disable-new-dtags -Wl,-rpath,${dawn_lib}
      -Wl,--dynamic-linker=${dawn_lib}/ld-linux-x86-64.so.2)
    message(STATUS "Dawn: private prefix ${CHORUS_DAWN_PREFIX}")
  endif()
endif()
if(CHORUS_DEVELOPER_MODE)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()
