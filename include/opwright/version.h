#pragma once

/// \file
/// Versions of Opwright and of the TensorRT API that its headers provide.

/// Opwright's own version.
#define OPWRIGHT_VERSION_MAJOR 0
#define OPWRIGHT_VERSION_MINOR 2
#define OPWRIGHT_VERSION_PATCH 0

// The same in one string.
#define OPWRIGHT_TEXT_OF(number) #number
#define OPWRIGHT_VERSION_TEXT(major, minor, patch) \
  OPWRIGHT_TEXT_OF(major) "." OPWRIGHT_TEXT_OF(minor) "." OPWRIGHT_TEXT_OF(patch)
#define OPWRIGHT_VERSION \
  OPWRIGHT_VERSION_TEXT(OPWRIGHT_VERSION_MAJOR, OPWRIGHT_VERSION_MINOR, OPWRIGHT_VERSION_PATCH)

/// The level of the TensorRT API with which these headers are source compatible. Plugins test these
/// macros to choose between API generations.
#define NV_TENSORRT_MAJOR 11
#define NV_TENSORRT_MINOR 4
#define NV_TENSORRT_PATCH 0
#define NV_TENSORRT_BUILD 0
#define NV_TENSORRT_LWS_MAJOR 0
#define NV_TENSORRT_LWS_MINOR 0
#define NV_TENSORRT_LWS_PATCH 0
#define NV_TENSORRT_RELEASE_TYPE_EARLY_ACCESS 0
#define NV_TENSORRT_RELEASE_TYPE_RELEASE_CANDIDATE 1
#define NV_TENSORRT_RELEASE_TYPE_GENERAL_AVAILABILITY 2
#define NV_TENSORRT_RELEASE_TYPE NV_TENSORRT_RELEASE_TYPE_GENERAL_AVAILABILITY

// The same numbers once more, as digits, because build scripts read them with regular expressions.
#define TRT_MAJOR_ENTERPRISE 11
#define TRT_MINOR_ENTERPRISE 4
#define TRT_PATCH_ENTERPRISE 0
#define TRT_BUILD_ENTERPRISE 0

/// A version as one comparable integer, usable in preprocessor conditions.
#define NV_TENSORRT_VERSION_INT(major, minor, patch) ((major)*10000L + (minor)*100L + (patch)*1L)
#define NV_TENSORRT_VERSION \
  NV_TENSORRT_VERSION_INT(NV_TENSORRT_MAJOR, NV_TENSORRT_MINOR, NV_TENSORRT_PATCH)
