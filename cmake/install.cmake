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
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/chorus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT dawn_chorus NAMESPACE dawn_chorus:: DESTINATION ${chorus_package_folder} FILE dawn_chorus-targets.cmake)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/dawn_chorus-config.cmake.in ${CMAKE_BINARY_DIR}/dawn_chorus-config.cmake
  INSTALL_DESTINATION ${chorus_package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/dawn_chorus-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/dawn_chorus-config.cmake ${CMAKE_BINARY_DIR}/dawn_chorus-config-version.cmake DESTINATION ${chorus_package_folder})
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/third_party/LICENCES.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(CHORUS_WEBGPU AND CHORUS_DAWN_LOADER)
  install(DIRECTORY ${CHORUS_DAWN_LIBRARIES}/ DESTINATION lib/dawn-chorus/dawn FILES_MATCHING PATTERN "*.so" PATTERN "*.so.*" PATTERN gconv EXCLUDE PATTERN cmake EXCLUDE)
  install(PROGRAMS $<TARGET_FILE:chorus> DESTINATION lib/dawn-chorus)
  get_filename_component(chorus_loader_name ${CHORUS_DAWN_LOADER} NAME)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/chorus-starter.in ${CMAKE_BINARY_DIR}/starter/chorus @ONLY)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/starter/chorus DESTINATION ${CMAKE_INSTALL_BINDIR})
else()
  install(TARGETS chorus RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
