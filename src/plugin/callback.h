#pragma once

#include <exception>

#include "network/operator.h"

namespace opwright {

/// The plugin interfaces are noexcept and report failure by a status. A language binding whose
/// callback failed stores the exception here, on the calling thread, and returns a failure status
/// (or null, or nothing); the engine then throws the exception instead of an Error about the
/// status.
void set_pending_exception(std::exception_ptr exception) noexcept;
/// Throws the calling thread's pending exception, if there is one, and forgets it.
void rethrow_pending_exception();

/// What kernels whose plugin is implemented in that language enter before a run; null: nothing.
/// Set once by the language's binding; `domain` must stay valid.
void set_execution_domain(APILanguage language, ExecutionDomain* domain) noexcept;
ExecutionDomain* execution_domain(APILanguage language) noexcept;

}  // namespace opwright
