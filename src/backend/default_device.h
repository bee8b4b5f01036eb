#pragma once

namespace opwright {

/// Whether OPWRIGHT_DEVICE names what default_device_type() gives, so that a user chose it.
bool is_default_device_chosen();

}  // namespace opwright
