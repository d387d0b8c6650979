# Unity, the test framework, as the target ringfence_unity: installed, or unpacked by cmake/deps.sh,
# or fetched.

find_package(unity CONFIG QUIET)
if(TARGET unity::framework)
  add_library(ringfence_unity ALIAS unity::framework)
  return()
endif()

if(EXISTS "${RINGFENCE_DEPS_DIR}/unity/unity.h")
  set(ringfence_unity_dir "${RINGFENCE_DEPS_DIR}/unity")
elseif(RINGFENCE_FETCH)
  include(FetchContent)
  # The subdirectory does not exist: only the sources are wanted, not upstream's own build.
  FetchContent_Declare(unity
    GIT_REPOSITORY https://github.com/ThrowTheSwitch/Unity.git
    GIT_TAG v2.6.0
    GIT_SHALLOW ON
    SOURCE_SUBDIR none)
  FetchContent_MakeAvailable(unity)
  set(ringfence_unity_dir "${unity_SOURCE_DIR}/src")
else()
  message(FATAL_ERROR
    "Unity was not found. Run cmake/deps.sh (Debian), or install it, or let CMake fetch it: "
    "-DRINGFENCE_FETCH=ON, or build no tests: -DRINGFENCE_TESTS=OFF. cmake/README.md says more.")
endif()

add_library(ringfence_unity STATIC "${ringfence_unity_dir}/unity.c")
target_include_directories(ringfence_unity SYSTEM PUBLIC "${ringfence_unity_dir}")
# Flushed after each case: a crash then shows how far it came, and a forked child has nothing
# buffered to print twice.
target_compile_definitions(ringfence_unity PUBLIC UNITY_USE_FLUSH_STDOUT)
target_compile_options(ringfence_unity PRIVATE -w)
