# Compiler settings shared by every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# Those of the systems that are tried: later ones warn of more, which is no reason not to build.
if((CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 14) OR
   (CMAKE_CXX_COMPILER_ID STREQUAL Clang AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 15))
  set(OPWRIGHT_WERROR OFF)
endif()

add_library(opwright_flags INTERFACE)
target_include_directories(opwright_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_include_directories(opwright_flags SYSTEM INTERFACE ${PROJECT_BINARY_DIR}/generated)
target_compile_options(opwright_flags INTERFACE -Wall -Wextra $<$<BOOL:${OPWRIGHT_WERROR}>:-Werror>
  # Symbols stay exported for the extension and the program, calls within the library still bind directly.
  -fno-semantic-interposition)

# Results are those of the operations that stand in the source: only x86-64's baseline has no instruction that a compiler
# could contract a product and a sum to, unasked.
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  add_compile_options(-ffp-contract=off)
endif()

if(OPWRIGHT_SANITIZE)
  add_compile_options(-fsanitize=${OPWRIGHT_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${OPWRIGHT_SANITIZE})
  # GCC's own headers (std::regex) look uninitialized to it once the checks are woven in.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(opwright_flags INTERFACE -Wno-maybe-uninitialized)
  endif()
  if(OPWRIGHT_SANITIZE MATCHES undefined)
    # AddressSanitizer finds an access beyond an object. object-size does the same only where code is optimized.
    add_compile_options(-fno-sanitize=object-size -fno-sanitize-recover=undefined)
  endif()
endif()
# For what no fuzz target runs: counting its branches takes a quarter of its compilation.
set(uncounted_options)
if(OPWRIGHT_SANITIZE MATCHES fuzzer-no-link)
  set(uncounted_options -fno-sanitize=fuzzer-no-link)
endif()

# With sanitizers, kernels are compiled for the instruction set that this machine runs, and no other: clang takes most of
# the time for the one that stands in where there is none.
if(OPWRIGHT_SANITIZE AND EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo processor REGEX "^flags" LIMIT_COUNT 1)
  if(processor MATCHES " avx2 ")
    set(simd_options -DHWY_COMPILE_ONLY_STATIC -ffp-contract=off -mavx2 -mfma -mbmi -mbmi2 -mlzcnt -mf16c -mpclmul -maes)
    if(processor MATCHES " avx512f .*avx512dq .*avx512cd .*avx512bw .*avx512vl ")
      list(APPEND simd_options -mavx512f -mavx512dq -mavx512cd -mavx512bw -mavx512vl)
    endif()
  endif()
endif()

# Headers and what they instantiate are most of what there is to compile, so sources and tests are compiled together, a
# third of the work. What is in their anonymous namespaces has names of its own, then, and GCC, which knows the main file
# alone, warns of types from there in classes that a file keeps to itself. Highway compiles a file once for each target.
function(opwright_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${OPWRIGHT_UNITY})
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    file(STRINGS ${source} targets REGEX "define HWY_TARGET_INCLUDE")
    if(targets)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      # Clang 14 takes three minutes for the stand-in with the checks of UndefinedBehaviorSanitizer.
      if(OPWRIGHT_SANITIZE MATCHES undefined AND NOT simd_options)
        set(simd_options -fno-sanitize=undefined)
      endif()
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${simd_options}")
    endif()
  endforeach()
endfunction()
