#include "tensorrt/abi/plugin_v2.h"

#include <dlfcn.h>

#include <array>
#include <map>
#include <mutex>
#include <string_view>
#include <typeinfo>

#include "base/cast.h"
#include "tensorrt/abi/received.h"

namespace opwright::tensorrt {
namespace {

/// What Opwright takes for a plugin: a table of its own layout, and the client's plugin.
struct PluginFace {
  void* const* table;
  void* theirs;
};

template <class Function>
Function* slot_of(void* object, size_t slot) {
  return reinterpret_cast<Function*>((*static_cast<void***>(object))[slot]);
}

/// A function of Opwright's table that calls a slot of the client's plugin.
template <class Signature>
struct Forward;
template <class R, class... Args>
struct Forward<R(Args...)> {
  template <size_t slot>
  static R call(PluginFace* self, Args... args) noexcept {
    return slot_of<R(void*, Args...)>(self->theirs, slot)(self->theirs, args...);
  }
};
template <class Signature, size_t slot>
void* forward() {
  return reinterpret_cast<void*>(&Forward<Signature>::template call<slot>);
}

// TensorRT 11's slots whose functions do more than forward.
constexpr size_t kVersion = 0, kDestroy = 13, kClone = 14;

PluginFace* made_face(void* theirs);

void destroy(PluginFace* self) noexcept {
  slot_of<void(void*)>(self->theirs, kDestroy)(self->theirs);
  delete self;
}
PluginFace* clone(PluginFace* self) noexcept {
  void* const copy = slot_of<void*(void*)>(self->theirs, kClone)(self->theirs);
  return copy == nullptr ? nullptr : made_face(copy);
}
void end(PluginFace*) noexcept {}
void end_and_free(PluginFace* self) noexcept { delete self; }
bool no(PluginFace*) noexcept { return false; }

using Types = DataType const*;
using Flags = bool const*;
using Descs = PluginTensorDesc const*;
using DynamicDescs = DynamicPluginTensorDesc const*;
using Pointers = void* const*;
using Inputs = void const* const*;

/// Opwright's table of IPluginV2Ext and, behind it, what the classes below it have.
template <class... Functions>
std::array<void*, 27 + sizeof...(Functions)> table_of(const std::type_info& type,
                                                      Functions... further) {
  return {nullptr, const_cast<std::type_info*>(&type), forward<int32_t(), kVersion>(),
          forward<char const*(), 1>(), forward<char const*(), 2>(), forward<int32_t(), 3>(),
          forward<Dims(int32_t, Dims const*, int32_t), 4>(),
          forward<bool(DataType, PluginFormat), 5>(),
          forward<void(Dims const*, int32_t, Dims const*, int32_t, DataType, PluginFormat, int32_t),
                  6>(),
          forward<int32_t(), 7>(), forward<void(), 8>(), forward<size_t(int32_t), 9>(),
          forward<int32_t(int32_t, Inputs, Pointers, void*, cudaStream_t), 10>(),
          forward<size_t(), 11>(), forward<void(void*), 12>(), reinterpret_cast<void*>(&destroy),
          reinterpret_cast<void*>(&clone), forward<void(char const*), 15>(),
          forward<char const*(), 16>(), reinterpret_cast<void*>(&end),
          reinterpret_cast<void*>(&end_and_free), forward<DataType(int32_t, Types, int32_t), 19>(),
          // isOutputBroadcastAcrossBatch() and canBroadcastInputAcrossBatch()
          reinterpret_cast<void*>(&no), reinterpret_cast<void*>(&no),
          forward<void(Dims const*, int32_t, Dims const*, int32_t, Types, Types, Flags, Flags,
                       PluginFormat, int32_t),
                  20>(),
          forward<void(cudnnContext*, cublasContext*, IGpuAllocator*), 21>(), forward<void(), 22>(),
          further...};
}

const auto ext_table = table_of(typeid(IPluginV2Ext));
const auto io_table =
    table_of(typeid(IPluginV2IOExt), forward<void(Descs, int32_t, Descs, int32_t), 23>(),
             forward<bool(int32_t, Descs, int32_t, int32_t), 24>());
const auto dynamic_table =
    table_of(typeid(IPluginV2DynamicExt),
             forward<DimsExprs(int32_t, DimsExprs const*, int32_t, IExprBuilder&), 23>(),
             forward<bool(int32_t, Descs, int32_t, int32_t), 24>(),
             forward<void(DynamicDescs, int32_t, DynamicDescs, int32_t), 25>(),
             forward<size_t(Descs, int32_t, Descs, int32_t), 26>(),
             forward<int32_t(Descs, Descs, Inputs, Pointers, void*, cudaStream_t), 27>());

void* const* table_for(void* theirs) {
  const auto version = slot_of<int32_t(void*)>(theirs, kVersion)(theirs);
  // Plugins of NVIDIA's Python binding have the bit set, too.
  constexpr uint32_t kKind = 0x7FU & ~uint32_t{kPLUGIN_VERSION_PYTHON_BIT};
  const auto kind = static_cast<PluginVersion>(static_cast<uint32_t>(version) >> 24U & kKind);
  if (kind == PluginVersion::kV2_DYNAMICEXT) return dynamic_table.data() + 2;
  return (kind == PluginVersion::kV2_IOEXT ? io_table.data() : ext_table.data()) + 2;
}

PluginFace* made_face(void* theirs) { return new PluginFace{table_for(theirs), theirs}; }

bool is_face(const PluginFace* face) {
  return face->table == ext_table.data() + 2 || face->table == io_table.data() + 2 ||
         face->table == dynamic_table.data() + 2;
}

/// The client's library stays: the registry cannot see that an adapter uses it.
void keep_library_of(void* object) {
  Dl_info info{};
  if (dladdr(*static_cast<void**>(object), &info) != 0 && info.dli_fname != nullptr)
    dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

class CreatorAdapter final : public IPluginCreator {
 public:
  explicit CreatorAdapter(IPluginCreator* theirs) : theirs_(theirs) { keep_library_of(theirs); }
  IPluginCreator* theirs() const { return theirs_; }

  APILanguage getAPILanguage() const noexcept override { return theirs_->getAPILanguage(); }
  AsciiChar const* getPluginName() const noexcept override { return theirs_->getPluginName(); }
  AsciiChar const* getPluginVersion() const noexcept override {
    return theirs_->getPluginVersion();
  }
  PluginFieldCollection const* getFieldNames() noexcept override {
    return theirs_->getFieldNames();
  }
  IPluginV2* createPlugin(AsciiChar const* name,
                          PluginFieldCollection const* fields) noexcept override {
    return owned(theirs_->createPlugin(name, fields));
  }
  IPluginV2* deserializePlugin(AsciiChar const* name, void const* data,
                               size_t size) noexcept override {
    return owned(theirs_->deserializePlugin(name, data, size));
  }
  void setPluginNamespace(AsciiChar const* space) noexcept override {
    theirs_->setPluginNamespace(space);
  }
  AsciiChar const* getPluginNamespace() const noexcept override {
    return theirs_->getPluginNamespace();
  }

 private:
  static IPluginV2* owned(void* plugin) {
    return plugin == nullptr ? nullptr : reinterpret_cast<IPluginV2*>(made_face(plugin));
  }
  IPluginCreator* theirs_;
};

template <class Adapter>
struct Adapters {
  static Adapters& all() {
    static auto* const kept = new Adapters;
    return *kept;
  }
  std::mutex mutex;
  std::map<void*, Adapter> by_object;
};

}  // namespace

template <>
IPluginV2* Adapter<IPluginV2>::adapt(void* theirs, int major) {
  if (theirs == nullptr || major != 11 || is_face(static_cast<PluginFace*>(theirs)))
    return static_cast<IPluginV2*>(theirs);
  auto& faces = Adapters<PluginFace>::all();
  const std::lock_guard lock(faces.mutex);
  PluginFace& face = faces.by_object[theirs];
  face = {table_for(theirs), theirs};
  return reinterpret_cast<IPluginV2*>(&face);
}

template <>
void* Adapter<IPluginV2>::original(IPluginV2* ours, int) {
  const auto* const face = reinterpret_cast<const PluginFace*>(ours);
  return face != nullptr && is_face(face) ? face->theirs : ours;
}

IPluginCreatorInterface* adapted_creator(IPluginCreatorInterface* theirs, int major) {
  const bool is_v2 =
      theirs != nullptr && std::string_view(theirs->getInterfaceInfo().kind) == "PLUGIN CREATOR_V1";
  if (major != 11 || !is_v2) return theirs;
  auto& adapters = Adapters<CreatorAdapter>::all();
  const std::lock_guard lock(adapters.mutex);
  auto* const creator = static_cast<IPluginCreator*>(theirs);
  return &adapters.by_object.try_emplace(theirs, creator).first->second;
}

IPluginCreatorInterface* original_creator(IPluginCreatorInterface* ours) {
  if (ours == nullptr) return nullptr;
  const auto* const adapter = cast_to<const CreatorAdapter>(ours);
  return adapter == nullptr ? ours : adapter->theirs();
}

}  // namespace opwright::tensorrt
