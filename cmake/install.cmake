# cmake --install: the program, the libraries, the public headers and a CMake package (find_package(dawn_chorus), target dawn_chorus::chorus_runtime).
# With the private Dawn prefix its shared libraries come along, and bin/chorus is a small script that starts the program through their loader,
# so that the installed tree can be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(chorus_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/dawn_chorus)
set(chorus_interface_libraries chorus_utf8proc chorus_libzip chorus_hwy chorus_xxhash)
if(CHORUS_WEBGPU)
  list(APPEND chorus_interface_libraries chorus_dawn)
endif()
install(TARGETS ${chorus_libraries} ${chorus_interface_libraries} EXPORT dawn_chorus ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/dawn-chorus)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/chorus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT dawn_chorus NAMESPACE dawn_chorus:: DESTINATION ${chorus_package_folder} FILE dawn_chorus-targets.cmake)
set(chorus_needs_system_dawn OFF)
if(CHORUS_WEBGPU AND NOT CHORUS_DAWN_LOADER)
  set(chorus_needs_system_dawn ON)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/dawn_chorus-config.cmake.in ${PROJECT_BINARY_DIR}/dawn_chorus-config.cmake
  INSTALL_DESTINATION ${chorus_package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/dawn_chorus-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/dawn_chorus-config.cmake ${PROJECT_BINARY_DIR}/dawn_chorus-config-version.cmake DESTINATION ${chorus_package_folder})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/third_party/LICENCES.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(CHORUS_WEBGPU AND CHORUS_DAWN_LOADER)
  # The loader among them is a program.
  install(DIRECTORY ${CHORUS_DAWN_LIBRARIES}/ DESTINATION lib/dawn-chorus/dawn USE_SOURCE_PERMISSIONS FILES_MATCHING PATTERN "*.so" PATTERN "*.so.*" PATTERN gconv EXCLUDE PATTERN cmake EXCLUDE)
  install(PROGRAMS $<TARGET_FILE:chorus> DESTINATION lib/dawn-chorus)
  get_filename_component(chorus_loader_name ${CHORUS_DAWN_LOADER} NAME)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/chorus-starter.in ${PROJECT_BINARY_DIR}/starter/chorus @ONLY)
  install(PROGRAMS ${PROJECT_BINARY_DIR}/starter/chorus DESTINATION ${CMAKE_INSTALL_BINDIR})
else()
  install(TARGETS chorus RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
