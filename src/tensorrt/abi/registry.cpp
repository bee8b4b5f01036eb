// TensorRT 11's table of IPluginRegistry; version 10's is that of Opwright.

#include "opwright/registry.h"
#include "tensorrt/abi/plugin_v2.h"
#include "tensorrt/abi/slot.h"

namespace opwright::tensorrt {

namespace {

/// A list of creators as the client knows them: good until the next call on the thread.
IPluginCreatorInterface* const* originals(IPluginCreatorInterface* const* ours, int32_t* count) {
  thread_local std::vector<IPluginCreatorInterface*> list;
  list.clear();
  for (int32_t i = 0; ours != nullptr && i < *count; ++i) list.push_back(original_creator(ours[i]));
  return list.data();
}

using Creators = IPluginCreatorInterface* const*;

}  // namespace

const Table registry_table = {
    "IPluginRegistry",
    {
        OPWRIGHT_PROPERTY(IPluginRegistry, ErrorRecorder),
        OPWRIGHT_SAME(IPluginRegistry, isParentSearchEnabled),
        OPWRIGHT_SAME(IPluginRegistry, setParentSearchEnabled),
        OPWRIGHT_SAME(IPluginRegistry, loadLibrary),
        OPWRIGHT_SAME(IPluginRegistry, deregisterLibrary),
        OPWRIGHT_OTHER(
            IPluginRegistry, registerCreator,
            [](IPluginRegistry& self, IPluginCreatorInterface& creator, AsciiChar const* space) {
              return self.registerCreator(*adapted_creator(&creator, 11), space);
            }),
        OPWRIGHT_OTHER(IPluginRegistry, getAllCreators,
                       [](IPluginRegistry const& self, int32_t* count) -> Creators {
                         return originals(self.getAllCreators(count), count);
                       }),
        OPWRIGHT_OTHER(IPluginRegistry, getCreator,
                       [](IPluginRegistry& self, AsciiChar const* name, AsciiChar const* version,
                          AsciiChar const* space) {
                         return original_creator(self.getCreator(name, version, space));
                       }),
        OPWRIGHT_OTHER(IPluginRegistry, deregisterCreator,
                       [](IPluginRegistry& self, IPluginCreatorInterface const& creator) {
                         auto* const theirs = const_cast<IPluginCreatorInterface*>(&creator);
                         return self.deregisterCreator(*adapted_creator(theirs, 11));
                       }),
        OPWRIGHT_SAME(IPluginRegistry, acquirePluginResource),
        OPWRIGHT_SAME(IPluginRegistry, releasePluginResource),
        OPWRIGHT_OTHER(IPluginRegistry, getAllCreatorsRecursive,
                       [](IPluginRegistry& self, int32_t* count) -> Creators {
                         return originals(self.getAllCreatorsRecursive(count), count);
                       }),
    }};

const Kind registry_kind = {{&registry_table}};

}  // namespace opwright::tensorrt
