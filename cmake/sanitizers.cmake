if(CHORUS_SANITIZE)
  add_compile_options(-fsanitize=${CHORUS_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${CHORUS_SANITIZE})
endif()
