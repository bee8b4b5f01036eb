#pragma once

#include "creators.h"

namespace opwright::python {

/// Whether the Python object is a creator of V2 plugins.
bool is_python_v2_creator(nb::handle object);
std::shared_ptr<IPluginCreatorInterface> make_v2_creator_face(nb::handle object);
/// An object of the Python class LibraryCreatorV2, which stands for the C++ creator.
nb::object make_library_creator_v2(IPluginCreator& creator);
/// The creator that such an object stands for, or null.
IPluginCreator* library_creator_v2(nb::handle object);
void bind_creators_v2(nb::module_& m);

}  // namespace opwright::python
