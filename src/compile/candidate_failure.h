#pragma once

#include <exception>
#include <string>

#include "compile/graph.h"
#include "network/operator.h"

namespace opwright {

// Why a candidate is left out: from the exception to the text.

/// "FP32 -> FP32, tactic 2 FAST"
std::string label_of(const Candidate& candidate);
/// Rethrows an exception that ends the build, not only a candidate.
void rethrow_end(const std::exception_ptr& reason);
/// Rethrows, with the layer's name, an exception after which all further work fails, too.
void rethrow_lost_device(const std::exception_ptr& reason, const std::string& layer,
                         const Candidate& candidate);
/// Whether the exception is an opwright::Error and not a plugin's own.
bool is_error(const std::exception_ptr& reason);
std::string text_of(const std::exception_ptr& reason);
/// Drops the "Layer 'name': " with which the layer's own errors begin. Other layers' errors keep
/// theirs.
std::string without_layer(std::string text, const GraphNode& node);
/// Drops the warnings from a compiler's messages, so that only errors remain.
std::string without_warnings(const std::string& text);
/// The most telling line of an error's text. In a traceback it is the line behind the traceback.
std::string headline(const std::string& text);

}  // namespace opwright
