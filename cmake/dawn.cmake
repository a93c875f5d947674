# chorus_dawn: the system's Dawn where find_package finds one, else the private prefix made by tools/fetch_dawn.
# The prefix brings its own C library (Dawn's Debian build needs a newer one than Debian 12 has): programs start through its loader and find
# its libraries by an old-style run path. See docs/adr/0006-private-dawn-prefix.md.
add_library(chorus_dawn INTERFACE)
find_package(Dawn QUIET)
if(Dawn_FOUND)
  target_link_libraries(chorus_dawn INTERFACE dawn::webgpu_dawn)
  message(STATUS "Dawn: the system's (${Dawn_DIR})")
  return()
endif()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(dawn_triplet x86_64-linux-gnu)
  set(dawn_loader ld-linux-x86-64.so.2)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(dawn_triplet aarch64-linux-gnu)
  set(dawn_loader ld-linux-aarch64.so.1)
else()
  message(FATAL_ERROR "No Dawn prefix for ${CMAKE_SYSTEM_PROCESSOR}: install Dawn with its CMake package, or configure with -DCHORUS_WEBGPU=OFF")
endif()
set(CHORUS_DAWN_LIBRARIES ${CHORUS_DAWN_PREFIX}/usr/lib/${dawn_triplet})
set(CHORUS_DAWN_LOADER ${CHORUS_DAWN_LIBRARIES}/${dawn_loader})
if(NOT EXISTS ${CHORUS_DAWN_LIBRARIES}/libwebgpu_dawn.so OR NOT EXISTS ${CHORUS_DAWN_LOADER})
  message(FATAL_ERROR "Dawn not found: install it, run tools/fetch_dawn ${CHORUS_DAWN_PREFIX}, or configure with -DCHORUS_WEBGPU=OFF")
endif()
target_include_directories(chorus_dawn SYSTEM INTERFACE $<BUILD_INTERFACE:${CHORUS_DAWN_PREFIX}/usr/include>)
target_link_libraries(chorus_dawn INTERFACE webgpu_dawn)
# Installed: the same libraries under lib/dawn-chorus/dawn.
set(dawn_installed $<INSTALL_PREFIX>/lib/dawn-chorus/dawn)
target_link_directories(chorus_dawn INTERFACE $<BUILD_INTERFACE:${CHORUS_DAWN_LIBRARIES}> $<INSTALL_INTERFACE:${dawn_installed}>)
target_link_options(chorus_dawn INTERFACE -Wl,--allow-shlib-undefined -Wl,--disable-new-dtags
  $<BUILD_INTERFACE:-Wl,-rpath,${CHORUS_DAWN_LIBRARIES}> $<BUILD_INTERFACE:-Wl,--dynamic-linker=${CHORUS_DAWN_LOADER}>
  $<INSTALL_INTERFACE:-Wl,-rpath,${dawn_installed}> $<INSTALL_INTERFACE:-Wl,--dynamic-linker=${dawn_installed}/${dawn_loader}>)
message(STATUS "Dawn: private prefix ${CHORUS_DAWN_PREFIX}")
