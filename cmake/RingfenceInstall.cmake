# Headers, both libraries, ringfence.pc and the CMake package. What is installed names no directory
# absolutely, so it can be moved. The static library has an export set of its own, because it alone
# needs to find what it was built with.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/ringfence")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/lib/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h")
install(TARGETS ringfence EXPORT ringfenceTargets)
install(TARGETS ringfence_static EXPORT ringfenceStaticTargets)
foreach(set ringfenceTargets ringfenceStaticTargets)
  install(EXPORT ${set} NAMESPACE ringfence:: DESTINATION "${package_dir}")
endforeach()

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/ringfenceConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/ringfenceConfig.cmake" INSTALL_DESTINATION "${package_dir}"
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/ringfenceConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/ringfenceConfig.cmake"
  "${PROJECT_BINARY_DIR}/ringfenceConfigVersion.cmake" DESTINATION "${package_dir}")

set(RINGFENCE_PC_REQUIRES_PRIVATE "")
set(RINGFENCE_PC_LIBS_PRIVATE "")
if(RINGFENCE_URING)
  string(APPEND RINGFENCE_PC_LIBS_PRIVATE " -luring")
endif()
if(RINGFENCE_BLAKE3 STREQUAL "PKGCONFIG")
  string(APPEND RINGFENCE_PC_REQUIRES_PRIVATE " libblake3")
elseif(RINGFENCE_BLAKE3 STREQUAL "CONFIG")
  string(APPEND RINGFENCE_PC_LIBS_PRIVATE " -lblake3")
endif()
file(RELATIVE_PATH RINGFENCE_PC_TO_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" RINGFENCE_PC_TO_PREFIX "${RINGFENCE_PC_TO_PREFIX}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/ringfence.pc.in" "${PROJECT_BINARY_DIR}/ringfence.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/ringfence.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
