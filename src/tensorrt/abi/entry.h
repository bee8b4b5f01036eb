#pragma once

#include <cstdint>

#include "opwright/types.h"

/// \file
/// What the libraries under TensorRT's names call, with the major version whose tables their
/// clients expect, 10 or 11. Each corresponds to an entry point of TensorRT's. Functions that make
/// an object return null for another version, with an error in the logger.

extern "C" {
OPWRIGHT_API void* opwrightTensorrtBuilder(void* logger, int32_t version) noexcept;
OPWRIGHT_API void* opwrightTensorrtRuntime(void* logger, int32_t version) noexcept;
OPWRIGHT_API void* opwrightTensorrtRefitter(void* engine, void* logger, int32_t version) noexcept;
OPWRIGHT_API void* opwrightTensorrtParser(void* network, void* logger) noexcept;
OPWRIGHT_API void* opwrightTensorrtParserRefitter(void* refitter, void* logger) noexcept;
OPWRIGHT_API void* opwrightTensorrtRegistry(int32_t major) noexcept;
OPWRIGHT_API void* opwrightTensorrtBuilderRegistry(int32_t major, int32_t capability) noexcept;
OPWRIGHT_API void* opwrightTensorrtLogger(int32_t major) noexcept;
/// Opwright's creator for one that a library of that version exports.
OPWRIGHT_API void* opwrightTensorrtCreator(void* creator, int32_t major) noexcept;
OPWRIGHT_API void* opwrightTensorrtLoggerFinder(int32_t major) noexcept;
OPWRIGHT_API bool opwrightTensorrtInitPlugins(void* logger, char const* space,
                                              int32_t major) noexcept;
/// The tables, a line for each slot: class, number, method and signature. Lives until the next
/// call.
OPWRIGHT_API char const* opwrightTensorrtTables(int32_t major) noexcept;
}
