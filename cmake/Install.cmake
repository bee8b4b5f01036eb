# Two layouts: a wheel (everything under the package opwright/) and a plain prefix (lib, include, bin).
include(CMakePackageConfigHelpers)
if(SKBUILD)
  set(root opwright)
  set(bin_dir ${SKBUILD_SCRIPTS_DIR})
  # Beside LICENSE and NOTICE, which scikit-build-core puts into a wheel's metadata (PEP 639).
  if(SKBUILD_METADATA_DIR)
    install(DIRECTORY ${licenses_dir}/third-party DESTINATION ${SKBUILD_METADATA_DIR}/licenses)
  endif()
  # The program lies in the environment's bin folder, the library in its site-packages.
  set(program_rpath)
  foreach(minor RANGE 10 14)
    foreach(packages lib/python3.${minor}/site-packages lib/python3.${minor}/dist-packages
                     local/lib/python3.${minor}/dist-packages)
      list(APPEND program_rpath $ORIGIN/../${packages}/opwright/lib)
    endforeach()
  endforeach()
else()
  set(root .)
  set(bin_dir bin)
  install(DIRECTORY ${licenses_dir}/ DESTINATION share/licenses/opwright)
  # The second is where the Debian package has them.
  set(program_rpath $ORIGIN/../lib $ORIGIN/../lib/opwright)
endif()

set_target_properties(opwright opwright_threads PROPERTIES INSTALL_RPATH $ORIGIN)
install(TARGETS opwright opwright_threads LIBRARY DESTINATION ${root}/lib)
if(TARGET opwright_cuda)
  set_target_properties(opwright_cuda PROPERTIES INSTALL_RPATH $ORIGIN)
  install(TARGETS opwright_cuda LIBRARY DESTINATION ${root}/lib)
endif()
set_target_properties(opwright_trials PROPERTIES INSTALL_RPATH $ORIGIN)
install(TARGETS opwright_trials RUNTIME DESTINATION ${root}/lib)
install(FILES ${bundled_libraries} DESTINATION ${root}/lib
  PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${root}/include FILES_MATCHING PATTERN "*.h")
include(TensorRTPrefix)
include(TensorRTAbi)

configure_file(${PROJECT_SOURCE_DIR}/cmake/OpwrightConfig.cmake.in OpwrightConfig.cmake @ONLY)
write_basic_package_version_file(OpwrightConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/OpwrightConfig.cmake ${PROJECT_BINARY_DIR}/OpwrightConfigVersion.cmake
  DESTINATION ${root}/lib/cmake/Opwright)

if(TARGET opwright_cli)
  set_target_properties(opwright_cli PROPERTIES INSTALL_RPATH "${program_rpath}")
  install(TARGETS opwright_cli RUNTIME DESTINATION ${bin_dir})
  install(PROGRAMS ${PROJECT_SOURCE_DIR}/cli/trtexec DESTINATION ${root}/tensorrt/bin)
  if(TARGET opwright_shell AND NOT SKBUILD)  # an environment of Python has no such folders
    install(FILES ${shell_dir}/bash DESTINATION share/bash-completion/completions RENAME opwright)
    install(FILES ${shell_dir}/zsh DESTINATION share/zsh/site-functions RENAME _opwright)
    install(FILES ${shell_dir}/fish DESTINATION share/fish/vendor_completions.d RENAME opwright.fish)
    install(FILES ${shell_dir}/man DESTINATION share/man/man1 RENAME opwright.1)
  endif()
endif()
if(TARGET _core AND SKBUILD)
  set_target_properties(_core PROPERTIES INSTALL_RPATH $ORIGIN/lib)
  install(TARGETS _core LIBRARY DESTINATION ${root})
  install(DIRECTORY ${PROJECT_BINARY_DIR}/python/_core DESTINATION ${root} FILES_MATCHING PATTERN "*.pyi")
endif()

# All that is installed, and no tests.
add_custom_target(opwright_package)
foreach(target bundle opwright opwright_threads opwright_cuda opwright_cli opwright_trials opwright_shell _core stub___init__ stub__plugin)
  if(TARGET ${target})
    add_dependencies(opwright_package ${target})
  endif()
endforeach()

# The archive of `make dist`, for machines without Python.
if(NOT SKBUILD)
  set(CPACK_GENERATOR TGZ)
  set(CPACK_PACKAGE_FILE_NAME opwright-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
  set(CPACK_STRIP_FILES ON)
  include(CPack)
endif()
