# BLAKE3, for the library's private use. Defines ringfence_blake3_headers, to compile against, and
# - built from sources (the usual case): ringfence_blake3_objects, which go into libringfence.a, and
#   ringfence_blake3, the same as an archive, for libringfence.so;
# - installed on this system: ringfence_blake3, which stands for the installed one. libringfence.a
#   then needs it too.
# RINGFENCE_BLAKE3 says which: SOURCES, CONFIG (a CMake package) or PKGCONFIG.

function(ringfence_find_blake3_sources out)
  if(EXISTS "${RINGFENCE_DEPS_DIR}/blake3/blake3.h")
    set(${out} "${RINGFENCE_DEPS_DIR}/blake3" PARENT_SCOPE)
  elseif(RINGFENCE_FETCH)
    include(FetchContent)
    # The subdirectory does not exist: only the sources are wanted, not upstream's own build.
    FetchContent_Declare(blake3
      GIT_REPOSITORY https://github.com/BLAKE3-team/BLAKE3.git
      GIT_TAG 1.8.2
      GIT_SHALLOW ON
      SOURCE_SUBDIR none)
    FetchContent_MakeAvailable(blake3)
    set(${out} "${blake3_SOURCE_DIR}/c" PARENT_SCOPE)
  else()
    message(FATAL_ERROR
      "BLAKE3 was not found. Run cmake/deps.sh (Debian), or install it, or let CMake fetch it: "
      "-DRINGFENCE_FETCH=ON. cmake/README.md says more.")
  endif()
endfunction()

function(ringfence_build_blake3 dir)
  set(sources ${dir}/blake3.c ${dir}/blake3_dispatch.c ${dir}/blake3_portable.c)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$" AND CMAKE_SIZEOF_VOID_P EQUAL 8)
    foreach(set sse2 sse41 avx2 avx512)
      list(APPEND sources ${dir}/blake3_${set}_x86-64_unix.S)
    endforeach()
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    list(APPEND sources ${dir}/blake3_neon.c)
    set(defines BLAKE3_USE_NEON=1)
  else()
    set(defines BLAKE3_NO_SSE2 BLAKE3_NO_SSE41 BLAKE3_NO_AVX2 BLAKE3_NO_AVX512 BLAKE3_USE_NEON=0)
  endif()

  set(names "${PROJECT_SOURCE_DIR}/cmake/blake3_names.h")
  set_property(SOURCE ${sources} APPEND PROPERTY OBJECT_DEPENDS "${names}")
  add_library(ringfence_blake3_headers INTERFACE)
  target_include_directories(ringfence_blake3_headers SYSTEM INTERFACE "${dir}")
  target_compile_options(ringfence_blake3_headers INTERFACE "SHELL:-include \"${names}\"")

  add_library(ringfence_blake3_objects OBJECT ${sources})
  target_link_libraries(ringfence_blake3_objects PRIVATE ringfence_blake3_headers)
  target_compile_definitions(ringfence_blake3_objects PRIVATE ${defines})
  target_compile_options(ringfence_blake3_objects PRIVATE -O3 -w)
  if(RINGFENCE_SANITIZE STREQUAL "thread")
    # It would report the CPU feature cache of older versions, a plain word that every thread sets
    # to the same value.
    target_compile_options(ringfence_blake3_objects PRIVATE $<$<COMPILE_LANGUAGE:C>:-fno-sanitize=thread>)
  endif()
  set_target_properties(ringfence_blake3_objects PROPERTIES
    POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)

  add_library(ringfence_blake3 STATIC $<TARGET_OBJECTS:ringfence_blake3_objects>)
  set_target_properties(ringfence_blake3 PROPERTIES LINKER_LANGUAGE C)
endfunction()

find_package(BLAKE3 CONFIG QUIET)
if(NOT TARGET BLAKE3::blake3)
  pkg_check_modules(RINGFENCE_LIBBLAKE3 QUIET IMPORTED_TARGET libblake3)
endif()

if(TARGET BLAKE3::blake3)
  set(RINGFENCE_BLAKE3 CONFIG)
  set(ringfence_blake3_installed BLAKE3::blake3)
elseif(TARGET PkgConfig::RINGFENCE_LIBBLAKE3)
  set(RINGFENCE_BLAKE3 PKGCONFIG)
  set(ringfence_blake3_installed PkgConfig::RINGFENCE_LIBBLAKE3)
else()
  set(RINGFENCE_BLAKE3 SOURCES)
  ringfence_find_blake3_sources(ringfence_blake3_dir)
  ringfence_build_blake3("${ringfence_blake3_dir}")
endif()
if(NOT RINGFENCE_BLAKE3 STREQUAL "SOURCES")
  add_library(ringfence_blake3 ALIAS ${ringfence_blake3_installed})
  add_library(ringfence_blake3_headers ALIAS ${ringfence_blake3_installed})
endif()
