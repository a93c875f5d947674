# Sanitizers cover every target of a build, so that no object is left uninstrumented. A finding ends the program.
if(CHORUS_SANITIZE)
  add_compile_options(-fsanitize=${CHORUS_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1 -O1)
  add_link_options(-fsanitize=${CHORUS_SANITIZE})
  add_compile_definitions(CHORUS_FEW_SIMD_TARGETS)
endif()
if(CHORUS_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "CHORUS_FUZZ needs clang (libFuzzer); the compiler is ${CMAKE_CXX_COMPILER_ID}")
  endif()
endif()

# Coverage guides the fuzzer through what reads bytes; in kernels and tests it would only cost time to compile and to run.
function(chorus_guides_fuzzing)
  foreach(target ${ARGN})
    if(CHORUS_FUZZ)
      target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
    endif()
  endforeach()
endfunction()

# Compiling dominates a sanitized run: what neither computes nor parses much is not optimised there.
function(chorus_sanitized_plainly)
  foreach(target ${ARGN})
    if(CHORUS_SANITIZE AND TARGET ${target})
      target_compile_options(${target} PRIVATE -O0)
    endif()
  endforeach()
endfunction()
