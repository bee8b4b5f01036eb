#pragma once

#include <exception>
#include <string>

#include "compile/graph.h"
#include "network/operator.h"

namespace opwright {

// Why a candidate is left out: from the exception to the text.

/// "FP32 -> FP32, tactic 2 FAST"
std::string label_of(const Candidate& candidate);
/// Throws anew what ends the build rather than a candidate.
void rethrow_end(const std::exception_ptr& reason);
/// Throws anew, with the layer's name, what makes all that follows fail, too.
void rethrow_lost_device(const std::exception_ptr& reason, const std::string& layer,
                         const Candidate& candidate);
/// Whether it is an opwright::Error and not a plugin's own.
bool is_error(const std::exception_ptr& reason);
std::string text_of(const std::exception_ptr& reason);
/// What the layer's own errors begin with is not another one's.
std::string without_layer(std::string text, const GraphNode& node);
/// Of a compiler's messages in the text the errors alone.
std::string without_warnings(const std::string& text);
/// The line of an error's text that says most: of a traceback that which follows it.
std::string headline(const std::string& text);

}  // namespace opwright
