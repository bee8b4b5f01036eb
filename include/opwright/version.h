#pragma once

/// \file
/// Versions of Opwright and of the TensorRT API that its headers answer to.

/// Opwright's own version.
#define OPWRIGHT_VERSION_MAJOR 0
#define OPWRIGHT_VERSION_MINOR 1
#define OPWRIGHT_VERSION_PATCH 0

/// The level of the TensorRT API that these headers are source compatible with. Plugins test these
/// macros to choose between API generations.
#define NV_TENSORRT_MAJOR 11
#define NV_TENSORRT_MINOR 0
#define NV_TENSORRT_PATCH 0
#define NV_TENSORRT_BUILD 0

/// A version as one comparable integer, usable in preprocessor conditions.
#define NV_TENSORRT_VERSION_INT(major, minor, patch) ((major)*10000L + (minor)*100L + (patch)*1L)
#define NV_TENSORRT_VERSION \
  NV_TENSORRT_VERSION_INT(NV_TENSORRT_MAJOR, NV_TENSORRT_MINOR, NV_TENSORRT_PATCH)
