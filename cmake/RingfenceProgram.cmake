# ringfence_program(NAME SOURCE... [LIBRARY ringfence_points] [LINK TARGET...]): an executable of our
# own code, linked with LINK, then the static library and, unless a sanitizer brings its own allocator,
# jemalloc. The library itself never links jemalloc.

if(RINGFENCE_JEMALLOC AND NOT RINGFENCE_SANITIZE)
  pkg_check_modules(RINGFENCE_LIBJEMALLOC REQUIRED IMPORTED_TARGET jemalloc)
endif()

function(ringfence_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LIBRARY" "LINK")
  if(NOT arg_LIBRARY)
    set(arg_LIBRARY ringfence_static)
  endif()
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  ringfence_flags(${name})
  target_link_libraries(${name} PRIVATE ${arg_LINK} ${arg_LIBRARY})
  if(TARGET PkgConfig::RINGFENCE_LIBJEMALLOC)
    target_link_libraries(${name} PRIVATE PkgConfig::RINGFENCE_LIBJEMALLOC)
  endif()
endfunction()

# ringfence_support(NAME DIR [LINK...]): DIR/*.c as a static library, or only its include directory
# if there are no sources.
function(ringfence_support name dir)
  file(GLOB sources CONFIGURE_DEPENDS "${dir}/*.c")
  if(sources)
    add_library(${name} STATIC ${sources})
    ringfence_flags(${name})
    set(scope PUBLIC)
  else()
    add_library(${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${name} ${scope} "${dir}")
  target_link_libraries(${name} ${scope} ringfence_internal ${ARGN})
endfunction()
