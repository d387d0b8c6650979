# The flags that are one for the whole build directory, and ringfence_flags(), which a target of our
# own code gets. Third-party code gets only the former.

if(RINGFENCE_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "RINGFENCE_FUZZ needs clang: configure with -DCMAKE_C_COMPILER=clang")
  endif()
  set(RINGFENCE_SANITIZE "address,undefined")
endif()

if(RINGFENCE_SANITIZE)
  set(sanitize -fsanitize=${RINGFENCE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(${sanitize})
  if(RINGFENCE_FUZZ)
    list(APPEND sanitize -fsanitize=fuzzer-no-link)
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:C>:${sanitize}>")
  unset(sanitize)
endif()

function(ringfence_flags target)
  # -UNDEBUG comes after the flags of the build type, whatever it is and whoever chose it.
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -UNDEBUG)
  if(RINGFENCE_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  # Empty, as in `#define _GNU_SOURCE`, so that a source which says so itself redefines nothing.
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE=)
  set_target_properties(${target} PROPERTIES
    C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS ON C_VISIBILITY_PRESET hidden)
endfunction()
