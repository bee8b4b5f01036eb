# Finds every dependency, or says which package to install; of the system's packages all that are missing at once.
function(opwright_missing what package)
  message(FATAL_ERROR "${what} was not found. Install it with: ${package}")
endfunction()

# A header-only dependency becomes the interface target NAME.
function(opwright_header_only name header package)
  find_path(${name}_INCLUDE_DIR ${header})
  if(NOT ${name}_INCLUDE_DIR)
    set(missing_packages ${missing_packages} ${package} PARENT_SCOPE)
    return()
  endif()
  add_library(${name} INTERFACE)
  target_include_directories(${name} SYSTEM INTERFACE ${${name}_INCLUDE_DIR})
endfunction()

opwright_header_only(protozero protozero/pbf_reader.hpp libprotozero-dev)
opwright_header_only(flatbuffers_headers flatbuffers/flatbuffers.h libflatbuffers-dev)
opwright_header_only(xxhash xxhash.h libxxhash-dev)
opwright_header_only(cli11 CLI/CLI.hpp libcli11-dev)
# Highway: its headers alone; src/backend/cpu/simd_targets.cpp stands for its library.
opwright_header_only(highway hwy/highway.h libhwy-dev)
find_program(FLATC flatc)
if(NOT FLATC)
  list(APPEND missing_packages flatbuffers-compiler)
endif()
if(missing_packages)
  list(JOIN missing_packages " " missing_packages)
  message(FATAL_ERROR "Headers or programs that the build needs were not found.
Install them with: apt-get install ${missing_packages}")
endif()
target_compile_definitions(xxhash INTERFACE XXH_INLINE_ALL)

# Python serves the build even where the extension is not wanted: oneDNN and CUDA's headers come from PyPI.
if(NOT Python_EXECUTABLE AND NOT DEFINED ENV{VIRTUAL_ENV}
   AND EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  set(Python_EXECUTABLE ${PROJECT_SOURCE_DIR}/.venv/bin/python)
endif()
set(python_components Interpreter)
if(OPWRIGHT_PYTHON)
  list(APPEND python_components Development.Module)
endif()
find_package(Python 3.10 COMPONENTS ${python_components} OPTIONAL_COMPONENTS Development.SABIModule)
if(NOT Python_FOUND)
  opwright_missing("Python 3.10 or newer with its headers" "apt-get install python3-dev")
endif()

# CUDA: its driver API's headers alone, of CUDA 12 or newer; the libraries are loaded where they are used.
set(OPWRIGHT_CUDA AUTO CACHE STRING "Build the CUDA backend: ON, OFF, or AUTO where cuda.h is found")
if(OPWRIGHT_CUDA)
  # Of PyPI's packages, installed or where pip has what a build requires.
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import sys; print(';'.join(f'{p}/nvidia' for p in sys.path if p))"
    OUTPUT_VARIABLE nvidia_packages OUTPUT_STRIP_TRAILING_WHITESPACE)
  find_path(cuda_headers_INCLUDE_DIR cuda.h
    HINTS ENV CUDA_PATH ENV CUDA_HOME /usr/local/cuda ${nvidia_packages}
    PATH_SUFFIXES include cu13/include cuda_runtime/include)
  if(cuda_headers_INCLUDE_DIR)
    file(STRINGS ${cuda_headers_INCLUDE_DIR}/cuda.h cuda_version REGEX "^#define CUDA_VERSION [0-9]+$")
    string(REGEX REPLACE "[^0-9]" "" cuda_version "${cuda_version}")
  endif()
  if(cuda_headers_INCLUDE_DIR AND cuda_version GREATER_EQUAL 12000)
    add_library(cuda_headers INTERFACE)
    target_include_directories(cuda_headers SYSTEM INTERFACE ${cuda_headers_INCLUDE_DIR})
    message(STATUS "CUDA backend: headers in ${cuda_headers_INCLUDE_DIR}")
  elseif(OPWRIGHT_CUDA STREQUAL AUTO)
    message(STATUS "CUDA backend: not built, there is no cuda.h of CUDA 12 or newer")
  else()
    opwright_missing("cuda.h of CUDA 12 or newer" "${Python_EXECUTABLE} -m pip install nvidia-cuda-runtime
or name its folder: -Dcuda_headers_INCLUDE_DIR=...; or build without a GPU: -DOPWRIGHT_CUDA=OFF")
  endif()
endif()

include(Onednn)

if(OPWRIGHT_PYTHON)
  execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
    OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    opwright_missing(nanobind "${Python_EXECUTABLE} -m pip install nanobind")
  endif()
  find_package(nanobind CONFIG REQUIRED)
endif()

if(OPWRIGHT_TESTS)
  find_package(GTest QUIET)
  if(NOT GTest_FOUND)
    opwright_missing(GoogleTest "apt-get install libgtest-dev")
  endif()
endif()
if(OPWRIGHT_BENCH)
  find_package(benchmark QUIET)
  if(NOT benchmark_FOUND)
    opwright_missing("Google Benchmark" "apt-get install libbenchmark-dev")
  endif()
endif()
