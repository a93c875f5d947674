# CHORUS_QUICK_BUILD: most of a compilation is the same headers again, so files are compiled in groups. Files of chorus_compile_alone reuse
# a name of another file of their target. GCC 12 warns of std::string's own code when much is inlined; builds without the option keep the warnings.
function(chorus_compile_together)
  foreach(target ${ARGN})
    if(CHORUS_QUICK_BUILD AND TARGET ${target})
      set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
      if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
      endif()
    endif()
  endforeach()
endfunction()

function(chorus_compile_alone)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/src/)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
