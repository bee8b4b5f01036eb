#pragma once

namespace opwright {

/// dynamic_cast of an object whose class a library may have, compiled without type information.
template <class To, class From>
To* cast_to(From* object) {
  if (object == nullptr) return nullptr;
  // The type information's address lies before the virtual table.
  const void* const* const table = *reinterpret_cast<const void* const* const*>(object);
  return table[-1] == nullptr ? nullptr : dynamic_cast<To*>(object);
}

}  // namespace opwright
