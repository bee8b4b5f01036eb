#pragma once

namespace opwright {

/// Throws Error where work with a communicator has failed since it was made.
using CommunicatorCheck = void (*)(void* communicator);

/// Called by a backend once it has loaded its library of collectives.
void set_communicator_check(CommunicatorCheck check);
/// Asks that library for the communicator of an engine on a GPU. Without the library nothing has
/// used the communicator.
void check_communicator(void* communicator);

}  // namespace opwright
